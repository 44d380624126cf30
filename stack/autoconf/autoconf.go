// Package autoconf gives an interface its IPv6 addresses: static ones, a link-local one, and those that routers' prefixes are for (RFC
// 4862); it verifies that nobody else has them, finds routers (RFC 4861, 6.3), and reports its multicast groups (RFC 3810).
//
// It is passive: it reads no clock and sends nothing itself. What arrives goes to the methods that take it; Poll returns the messages
// that are due; Changed says that Snapshot has something new to tell.
package autoconf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Config of a Host.
type Config struct {
	MAC    wire.MAC
	MTU    int    // of the port
	Name   string // of the interface; goes into identifiers
	Secret []byte // goes into identifiers, so that a host is not known again in another network (RFC 7217, 5)
	Seed   uint64 // of delays and nonces
	SLAAC  bool   // follow router advertisements
	// Transmits is how often an address is asked for before it is used (RFC 4862, 5.1: DupAddrDetectTransmits); 0: used at once.
	Transmits int
}

// Origin of an address.
type Origin uint8

// Origins.
const (
	Static Origin = iota
	LinkLocal
	Auto // from a router's prefix
)

func (o Origin) String() string { return [...]string{"static", "link-local", "slaac"}[o] }

// State of an address (RFC 4862, 2).
type State uint8

// States.
const (
	Tentative  State = iota // being verified
	Preferred               // in use
	Deprecated              // in use by what began with it
	Duplicate               // somebody else has it; not in use
)

func (s State) String() string {
	return [...]string{"tentative", "preferred", "deprecated", "duplicate"}[s]
}

// Addr describes an address.
type Addr struct {
	Prefix           netip.Prefix
	Origin           Origin
	State            State
	Preferred, Valid plugins.Time // until when; plugins.Never: for ever
}

// Message is an ICMPv6 message to send. ICMP is complete with its checksum and valid until the next Poll. Alert wants a hop-by-hop header
// with the router alert before it.
type Message struct {
	Src, Dst wire.Addr
	HopLimit uint8
	Alert    bool
	ICMP     []byte
}

// maxAddrs bounds the addresses, static ones apart: routers, or who says to be one, can make us have so many.
const maxAddrs = 16

// retransTime separates the questions for one address (RFC 4861, 10).
const retransTime = time.Second

type addr struct {
	Addr
	a       wire.Addr
	due     plugins.Time // of the next question, or of the verdict
	left    int          // questions to ask
	counter uint8        // of conflicts, for the next identifier
	nonces  [4][6]byte   // of questions asked
	asked   int
}

// Host is the configuration of one interface. It has one owner.
type Host struct {
	cfg     Config
	rng     *rand.Rand
	addrs   []*addr
	groups  []*group
	router  routerState
	mld     mldState
	next    plugins.Time
	changed bool
	out     []Message
	stats   Stats
}

// Stats are a Host's counters.
type Stats struct {
	Duplicates uint64 // addresses that somebody else has
	LoopedBack uint64 // questions of ours that came back (RFC 7527)
	Adverts    uint64 // router advertisements taken
	Ignored    uint64 // parts of router advertisements not taken: limits, contradictions
}

// New makes a host with a link-local address.
func New(cfg Config, now plugins.Time) *Host {
	h := &Host{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6175746f)), changed: true}
	h.router.due, h.router.interval = plugins.Never, 0
	h.mld.due = plugins.Never
	prefix := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfe, 0x80}), 64)
	h.add(h.identifier(prefix, 0), LinkLocal, plugins.Never, plugins.Never, now)
	h.schedule()
	return h
}

// Stats returns the counters.
func (h *Host) Stats() Stats { return h.stats }

// AddStatic adds an address with the length of its network.
func (h *Host) AddStatic(p netip.Prefix, now plugins.Time) error {
	a := p.Addr()
	if !p.IsValid() || !a.Is6() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" {
		return fmt.Errorf("autoconf: %v is no IPv6 address of a host", p)
	}
	if x := h.find(wire.AddrFrom(a)); x != nil {
		return fmt.Errorf("autoconf: address %v is there twice", a)
	}
	h.add(p, Static, plugins.Never, plugins.Never, now)
	h.schedule()
	return nil
}

// errNoAddr is the error for an address that is not there.
var errNoAddr = errors.New("autoconf: no such static address")

// RemoveStatic removes a static address.
func (h *Host) RemoveStatic(a netip.Addr, now plugins.Time) error {
	x := h.find(wire.AddrFrom(a))
	if x == nil || x.Origin != Static {
		return errNoAddr
	}
	h.remove(x, now)
	h.schedule()
	return nil
}

func (h *Host) add(p netip.Prefix, o Origin, preferred, valid plugins.Time, now plugins.Time) *addr {
	x := &addr{Addr: Addr{Prefix: p, Origin: o, Preferred: preferred, Valid: valid}, a: wire.AddrFrom(p.Addr()), due: plugins.Never}
	h.addrs = append(h.addrs, x)
	h.join(x.a.SolicitedNode(), now)
	h.verify(x, now)
	h.changed = true
	return x
}

func (h *Host) remove(x *addr, now plugins.Time) {
	h.addrs = slices.DeleteFunc(h.addrs, func(y *addr) bool { return y == x })
	h.leave(x.a.SolicitedNode(), now)
	h.changed = true
}

func (h *Host) find(a wire.Addr) *addr {
	for _, x := range h.addrs {
		if x.a == a {
			return x
		}
	}
	return nil
}

// usable returns the first link-local address that may be a source; :: if there is none yet.
func (h *Host) usable() (a wire.Addr) {
	for _, x := range h.addrs {
		if x.Origin == LinkLocal && (x.State == Preferred || x.State == Deprecated) {
			return x.a
		}
	}
	return a
}

// Deadline is the next time at which Poll has work; plugins.Never if there is none.
func (h *Host) Deadline() plugins.Time { return h.next }

// schedule finds the deadline anew; every method that changes something ends with it.
func (h *Host) schedule() {
	h.next = min(h.router.deadline(), h.mldDeadline())
	for _, x := range h.addrs {
		h.next = min(h.next, x.due, x.Valid)
		if x.State == Preferred {
			h.next = min(h.next, x.Preferred)
		}
	}
}

// Poll runs what is due and returns the messages to send, valid until the next call.
func (h *Host) Poll(now plugins.Time) []Message {
	h.out = h.out[:0]
	if now < h.next {
		return nil
	}
	for _, x := range slices.Clone(h.addrs) {
		h.pollAddr(x, now)
	}
	h.pollRouters(now)
	h.pollMLD(now)
	h.schedule()
	return h.out
}

func (h *Host) pollAddr(x *addr, now plugins.Time) {
	switch {
	case now >= x.Valid: // RFC 4862, 5.5.4
		h.remove(x, now)
		return
	case x.due <= now && x.State == Duplicate:
		h.another(x, now)
	case x.due <= now:
		h.question(x, now)
	}
	if x.State == Preferred && now >= x.Preferred {
		x.State, h.changed = Deprecated, true
	}
}

// delay draws from [0, d).
func (h *Host) delay(d time.Duration) time.Duration {
	return time.Duration(h.rng.Int64N(max(int64(d), 1)))
}

// Changed reports whether a Snapshot has something new since the last call.
func (h *Host) Changed() bool {
	c := h.changed
	h.changed = false
	return c
}

// Snapshot is what a Host knows.
type Snapshot struct {
	Addrs   []Addr
	Routers []Router       // the best first
	OnLink  []netip.Prefix // that routers say; the subnets of static addresses are not there
	MTU     int            // that a router says; 0: none did
	DNS     []netip.Addr
}

// Snapshot returns a copy of what is known.
func (h *Host) Snapshot() Snapshot {
	var s Snapshot
	for _, x := range h.addrs {
		s.Addrs = append(s.Addrs, x.Addr)
	}
	h.router.snapshot(&s)
	return s
}

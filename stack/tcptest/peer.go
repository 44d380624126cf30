// Package tcptest scripts packet traces: a peer made of hand-written segments against one stack, on virtual time. Whatever the stack
// sends that the script does not expect fails the test.
//
// Segments are written as tcpdump shows them, with sequence numbers relative to each end's initial one:
//
//	p.Send("S 0:0(0) win 65535 <mss 1460,sackOK>")
//	p.Expect("S. 0:0(0) ack 1 <mss 1460,sackOK>")
package tcptest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Clock is a virtual clock.
type Clock struct{ now plugins.Time }

// Now is the present.
func (c *Clock) Now() plugins.Time { return c.now }

// Addresses of the two ends.
var (
	StackAddr = netip.MustParseAddr("10.0.0.1")
	PeerAddr  = netip.MustParseAddr("10.0.0.2")
	// With Config.IPv6.
	StackAddr6 = netip.MustParseAddr("2001:db8::1")
	PeerAddr6  = netip.MustParseAddr("2001:db8::2")
)

// Start is the first time of a Peer whose Config names none.
const Start plugins.Time = 1e9

// Config describes a Peer. Port, Addrs and Clock of the stack's configuration are set by New. The modules are by default reno and
// none, so that the window is all that holds data back.
type Config struct {
	Stack stack.Config
	Link  memlink.Config // no impairments
	Start plugins.Time
	// IPv6 makes both ends use it: flows are between PeerAddr6 and StackAddr6. Reports of multicast groups are not seen by the script.
	IPv6 bool
	// Silent peers answer no ARP requests, and the stack does not know their address.
	Silent bool
}

// Peer is the hand-written end of a link. Its methods belong to the test's goroutine.
type Peer struct {
	T     testing.TB
	Clock *Clock
	Stack *stack.Stack
	Arena *mem.Arena // of the streams; on the Go heap, where the race detector looks

	silent   bool
	watch6   bool
	stackIP  netip.Addr
	peerIP   netip.Addr
	queue    pmd.Queue
	port     *memlink.Port
	mac, his wire.MAC
	mtu      int
	pending  []Frame // received, not expected yet
	flows    []*Flow
	ipID     uint16
	closed   bool
}

// Frame is a frame of the stack and the time at which it was sent.
type Frame struct {
	At   plugins.Time
	Data []byte
}

// New makes a stack and its peer. At the end of the test it closes the stack, and fails the test if a frame was not expected or a
// buffer or chunk of memory is missing.
func New(t testing.TB, cfg Config) *Peer {
	t.Helper()
	if cfg.Start == 0 {
		cfg.Start = Start
	}
	p := &Peer{T: t, Clock: &Clock{cfg.Start}, silent: cfg.Silent}
	cfg.Link.Now, cfg.Link.Virtual = p.Clock.Now, true
	a, b, err := memlink.New(cfg.Link)
	if err != nil {
		t.Fatal(err)
	}
	p.port, p.queue = b, b.Queue(0)
	p.his, p.mac, p.mtu = wire.MAC(a.Info().MAC), wire.MAC(b.Info().MAC), a.Info().MTU
	sc := cfg.Stack
	p.stackIP, p.peerIP = StackAddr, PeerAddr
	sc.Port, sc.Addrs, sc.Clock = a, []netip.Prefix{netip.PrefixFrom(StackAddr, 24)}, p.Clock
	if cfg.IPv6 {
		p.stackIP, p.peerIP = StackAddr6, PeerAddr6
		sc.Addrs, sc.DADTransmits = []netip.Prefix{netip.PrefixFrom(StackAddr6, 64)}, -1
	}
	if sc.Seed == 0 {
		sc.Seed = 1
	}
	if sc.Budget == nil {
		sc.Budget = new(mem.Budget)
		if err := sc.Budget.SetLimits(mem.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	if sc.Arena == nil {
		sc.Arena = mem.NewHeapArena(sc.Budget)
	}
	p.Arena = sc.Arena
	if sc.Modules[plugins.Cong].Name == "" {
		sc.Modules[plugins.Cong].Name = "reno"
	}
	if sc.Modules[plugins.Pace].Name == "" {
		sc.Modules[plugins.Pace].Name = "none"
	}
	if p.Stack, err = stack.New(sc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if !p.silent { // the stack learns our address from a request for its own
		p.Introduce()
	}
	p.run()
	for _, f := range p.takeFrames() {
		if wire.MAC(f.Data[:6]) != p.mac && !p.isARP(f.Data) {
			t.Fatalf("unexpected frame at the start: %s", p.describe(f.Data))
		}
	}
	return p
}

// Close closes the stack and the peer's port. It returns what leaked.
func (p *Peer) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if !p.T.Failed() {
		p.Done()
	}
	err := p.Stack.Close()
	for _, f := range p.flows {
		if f.Conn != nil {
			f.Conn.Close()
		}
	}
	for range 10 { // what the stack sent at the end
		var rx [64]*pmd.Buf
		_, n := p.queue.Poll(nil, rx[:])
		for _, b := range rx[:n] {
			b.Free()
		}
	}
	return errors.Join(err, p.port.Close(), p.Arena.Close())
}

// Done fails the test if the stack has sent something that was not expected.
func (p *Peer) Done() {
	p.T.Helper()
	p.run()
	for _, f := range p.pending {
		p.T.Errorf("unexpected at %v: %s", p.since(f.At), p.describe(f.Data))
	}
	if len(p.pending) > 0 {
		p.T.FailNow()
	}
}

func (p *Peer) since(t plugins.Time) time.Duration { return t.Sub(Start) }

// run turns the stack until it has nothing to do, without letting time pass, and collects what it sends.
func (p *Peer) run() {
	for range 10000 {
		busy := p.Stack.Turn()
		got := p.collect()
		if !busy && !got {
			return
		}
	}
	p.T.Fatal("the stack does not come to rest")
}

// collect takes what the stack has sent; ARP is answered here.
func (p *Peer) collect() (got bool) {
	var rx [64]*pmd.Buf
	for {
		_, n := p.queue.Poll(nil, rx[:])
		if n == 0 {
			return got
		}
		got = true
		for _, b := range rx[:n] {
			f := append([]byte(nil), b.Bytes()...)
			b.Free()
			if p.isARP(f) {
				p.arp(f)
				continue
			}
			if p.control6(f) {
				continue
			}
			p.pending = append(p.pending, Frame{p.Clock.now, f})
		}
	}
}

func (p *Peer) isARP(f []byte) bool {
	return len(f) >= wire.EthLen && f[12] == wire.EtherTypeARP>>8 && f[13] == wire.EtherTypeARP&0xff
}

// arp answers a request for our address.
func (p *Peer) arp(f []byte) {
	a, d := wire.ParseARP(f[wire.EthLen:])
	if d != wire.DropNone {
		p.T.Fatalf("the stack sent a malformed ARP packet: %v", d)
	}
	if p.silent || a.Op != wire.ARPRequest || a.TPA != PeerAddr.As4() {
		return
	}
	p.push(p.ARP(wire.ARPReply, p.mac, PeerAddr, a.SHA, StackAddr))
}

// Introduce tells the stack the peer's link address, by a request for its own.
func (p *Peer) Introduce() {
	p.T.Helper()
	if p.peerIP.Is4() {
		p.SendFrame(p.ARP(wire.ARPRequest, p.mac, PeerAddr, wire.MAC{}, StackAddr))
		return
	}
	p.SendFrame(p.ND(p.his, p.peerIP, p.stackIP, &wire.ND{Type: wire.ICMP6NeighborSol, Target: wire.AddrFrom(p.stackIP), LLA: p.mac, HasLLA: true}))
}

// ND builds a message of neighbour discovery.
func (p *Peer) ND(to wire.MAC, src, dst netip.Addr, n *wire.ND) []byte {
	f := make([]byte, wire.EthLen+wire.IPv6Len+wire.MaxNDLen)
	s, d := wire.AddrFrom(src), wire.AddrFrom(dst)
	l := wire.PutND(f[wire.EthLen+wire.IPv6Len:], s, d, n)
	wire.PutEthernet(f, to, p.mac, wire.EtherTypeIPv6)
	wire.PutIPv6(f[wire.EthLen:], s, d, wire.ProtoICMPv6, 0, 255, 0, l)
	return f[:wire.EthLen+wire.IPv6Len+l]
}

// Watch6 says whether the script is to see the stack's neighbour advertisements.
func (p *Peer) Watch6(on bool) { p.watch6 = on }

// control6 answers solicitations for our IPv6 address, and takes what else of neighbour discovery and MLD the stack sends on its own.
func (p *Peer) control6(f []byte) bool {
	var pk wire.Packet
	if wire.Parse(f, &pk, false) != wire.DropNone || pk.Proto != wire.ProtoICMPv6 || !p.peerIP.Is6() {
		return false
	}
	typ, _, _, d := wire.ParseICMP6(&pk, false)
	if d != wire.DropNone {
		p.T.Fatalf("the stack sent a malformed ICMPv6 message: %v: %x", d, f)
	}
	switch typ {
	case wire.ICMP6MLDv2Report, wire.ICMP6RouterSol:
		return true
	case wire.ICMP6NeighborAdv:
		return !p.watch6
	case wire.ICMP6NeighborSol:
		var n wire.ND
		if d := wire.ParseND(&pk, &n); d != wire.DropNone {
			p.T.Fatalf("the stack sent a malformed solicitation: %v: %x", d, f)
		}
		if !p.silent && n.Target == wire.AddrFrom(p.peerIP) {
			p.push(p.ND(p.his, p.peerIP, pk.Src.Netip(), &wire.ND{
				Type: wire.ICMP6NeighborAdv, Flags: wire.NDSolicited | wire.NDOverride, Target: n.Target, LLA: p.mac, HasLLA: true,
			}))
		}
		return true
	}
	return false
}

// Speak ends the silence of a peer: from now on it answers ARP requests.
func (p *Peer) Speak() { p.silent = false }

// ARP builds an ARP frame.
func (p *Peer) ARP(op uint16, sha wire.MAC, spa netip.Addr, tha wire.MAC, tpa netip.Addr) []byte {
	f := make([]byte, wire.EthMinLen)
	dst := wire.Broadcast
	if op == wire.ARPReply {
		dst = tha
	}
	wire.PutEthernet(f, dst, sha, wire.EtherTypeARP)
	wire.PutARP(f[wire.EthLen:], &wire.ARP{Op: op, SHA: sha, SPA: spa.As4(), THA: tha, TPA: tpa.As4()})
	return f
}

// MACs are the peer's and the stack's Ethernet addresses.
func (p *Peer) MACs() (peer, stack wire.MAC) { return p.mac, p.his }

// SendFrame sends any frame and lets the stack react.
func (p *Peer) SendFrame(f []byte) {
	p.T.Helper()
	p.push(f)
	p.run()
}

// push puts a frame on the link.
func (p *Peer) push(f []byte) {
	p.T.Helper()
	b := p.queue.Pool().Get()
	if b == nil {
		p.T.Fatal("the peer has no buffer left: the stack keeps them")
	}
	if !b.Append(f) {
		p.T.Fatalf("frame of %d bytes does not fit", len(f))
	}
	if n, _ := p.queue.Poll([]*pmd.Buf{b}, nil); n != 1 {
		p.T.Fatal("the link took no frame")
	}
}

// Idle lets d pass. What the stack sends meanwhile stays to be expected.
func (p *Peer) Idle(d time.Duration) {
	p.T.Helper()
	p.advance(p.Clock.now.Add(d), false)
}

// Quiet lets d pass, in which the stack must send nothing.
func (p *Peer) Quiet(d time.Duration) {
	p.T.Helper()
	p.Idle(d)
	p.Done()
}

// advance moves time on to limit, or until a frame has come.
func (p *Peer) advance(limit plugins.Time, untilFrame bool) {
	p.T.Helper()
	for past := 0; ; {
		p.run()
		if untilFrame && len(p.pending) > 0 || p.Clock.now >= limit {
			return
		}
		past = p.pass(limit, past)
	}
}

// pass moves time on to the stack's next deadline, at most to limit. A stack that has come to rest and still wants a turn at once,
// time after time, would keep a processor busy for nothing.
func (p *Peer) pass(limit plugins.Time, past int) int {
	p.T.Helper()
	next := p.Stack.Deadline()
	if next > p.Clock.now {
		past = 0
	} else if past++; past > 1000 {
		p.T.Fatalf("at %v: the stack has nothing to do and wants a turn at once, a thousand times in a row", p.since(p.Clock.now))
	}
	p.Clock.now = min(max(next, p.Clock.now+1), limit)
	return past
}

// takeFrames returns what has come and was not expected yet.
func (p *Peer) takeFrames() []Frame {
	f := p.pending
	p.pending = nil
	return f
}

// Take returns, and so expects, all frames that have come.
func (p *Peer) Take() []Frame {
	p.run()
	return p.takeFrames()
}

// Until lets time pass until f returns true, at most d.
func (p *Peer) Until(d time.Duration, f func() bool) {
	p.T.Helper()
	limit := p.Clock.now.Add(d)
	for past := 0; ; {
		p.run()
		if f() {
			return
		}
		if p.Clock.now >= limit {
			p.T.Fatalf("did not happen within %v", d)
		}
		past = p.pass(limit, past)
	}
}

// Stats returns the figures of the stack's worker.
func (p *Peer) Stats() stack.WorkerStats { return p.Stack.Stats()[0] }

// StackPool is the pool of the stack's buffers.
func (p *Peer) StackPool() *pmd.Pool { return p.Stack.Port().Queue(0).Pool() }

// PeerPool is the pool of the peer's buffers.
func (p *Peer) PeerPool() *pmd.Pool { return p.queue.Pool() }

// Exchange sends frames, lets the stack react, and drops its answers; rx is room for them. Unlike SendFrame it keeps nothing, for
// tests that count allocations.
func (p *Peer) Exchange(tx, rx []*pmd.Buf) {
	p.queue.Poll(tx, nil)
	for p.Stack.Turn() {
		for {
			_, n := p.queue.Poll(nil, rx)
			for _, b := range rx[:n] {
				b.Free()
			}
			if n == 0 {
				break
			}
		}
	}
}

// Pending returns what has come and was not expected yet, without taking it.
func (p *Peer) Pending() []Frame {
	p.run()
	return p.pending
}

// SendFrames sends frames that the stack receives in one turn.
func (p *Peer) SendFrames(frames ...[]byte) {
	p.T.Helper()
	for _, f := range frames {
		p.push(f)
	}
	p.run()
}

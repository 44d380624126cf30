// Package neigh is the neighbour cache of one interface: which Ethernet address a next hop has, by ARP (RFC 826, RFC 1122 2.3.2, RFC
// 5227) and by neighbour discovery (RFC 4861, 7).
//
// It is passive: it reads no clock and sends nothing itself. Input (ARP), Heard and Advertised (neighbour discovery) take what arrives,
// Poll returns the requests that are due. The states are those of RFC 4861, 7.3.2, and the times Linux's.
package neigh

import (
	"math/rand/v2"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/timer"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// State of an entry.
type State uint8

// States.
const (
	Free       State = iota
	Incomplete       // asked for; packets wait
	Reachable        // confirmed lately
	Stale            // known, not confirmed lately; used without asking, but asked about once it is used
	Delay            // used while stale: upper layers may still confirm it
	Probe            // asked by unicast; still used
	numStates
)

var stateNames = [numStates]string{"free", "incomplete", "reachable", "stale", "delay", "probe"}

func (s State) String() string { return stateNames[s] }

// Times and counts (Linux's defaults; RFC 1122, 2.3.2.1: at most one request per second and destination).
const (
	ReachableTime = 30 * time.Second // times 0.5 to 1.5
	DelayTime     = 5 * time.Second
	RetransTime   = time.Second
	Retries       = 3
	StaleTime     = 60 * time.Second // an entry unused for that long is removed
	LockTime      = time.Second      // a changed address is not taken sooner
)

// Announcements and defence of our own addresses (RFC 5227, 1.1).
const (
	announceNum      = 2
	announceInterval = 2 * time.Second
	defendInterval   = 10 * time.Second
)

// Ref names an entry. It stays usable, if only to learn from Resolve that the entry is gone. The zero Ref is none.
type Ref struct{ Idx, Gen uint32 }

// Result of Resolve.
type Result uint8

// Results.
const (
	OK   Result = iota // send to this address
	Wait               // not known yet: Enqueue the packet
	Gone               // the entry is gone: Lookup again
)

// Config of a Cache.
type Config struct {
	MAC   wire.MAC
	Max   int    // entries; 0 means 1024
	Queue int    // packets that wait per entry; 0 means 3. The latest are kept (RFC 1122, 2.3.2.2)
	Seed  uint64 // of the random part of ReachableTime
}

// Stats are a cache's counters.
type Stats struct {
	Entries   int
	Requests  uint64 // sent
	Replies   uint64 // sent
	Resolved  uint64 // incomplete entries that were answered
	Failed    uint64 // entries removed because nobody answered
	Evicted   uint64 // entries removed to make room
	Full      uint64 // lookups refused: no entry can be evicted
	Dropped   uint64 // packets that could not wait, or were pushed out by later ones
	Changed   uint64 // known neighbours that changed their address
	Locked    uint64 // changes ignored within LockTime
	Conflicts uint64 // others that use one of our addresses
	Ignored   uint64 // malformed senders
}

type entry struct {
	addr      wire.Addr
	mac       wire.MAC
	state     State
	tries     uint8
	router    bool // says its advertisements (RFC 4861, 5.1: IsRouter)
	gen       uint32
	waiting   int32
	head      *pmd.Buf // waiting packets, oldest first
	tail      *pmd.Buf
	confirmed plugins.Time // Reachable: until when
	used      plugins.Time // last use
	updated   plugins.Time // last time that mac was set
	asked     plugins.Time // last request
}

type local struct {
	addr      wire.Addr
	announces int // still to send
	due       plugins.Time
	defended  plugins.Time // last time
}

// Cache is the cache of one interface. It has one owner, a worker.
type Cache struct {
	cfg     Config
	index   map[wire.Addr]uint32
	entries []entry // [0] is unused, so that the zero Ref is none
	free    []uint32
	wheel   *timer.Wheel
	due     []uint32
	pending int    // incomplete entries
	hand    uint32 // where the search for a victim goes on
	locals  []local
	failed  []wire.Addr
	probe   probe
	rng     *rand.Rand
	stats   Stats
}

// New returns an empty cache.
func New(cfg Config, now plugins.Time) *Cache {
	if cfg.Max <= 0 {
		cfg.Max = 1024
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 3
	}
	return &Cache{
		cfg:     cfg,
		index:   make(map[wire.Addr]uint32),
		entries: make([]entry, 1),
		wheel:   timer.New(now),
		probe:   probe{due: plugins.Never},
		rng:     rand.New(rand.NewPCG(cfg.Seed, 0x6e65696768)),
	}
}

// MAC is the interface's own address.
func (c *Cache) MAC() wire.MAC { return c.cfg.MAC }

// Stats returns the counters.
func (c *Cache) Stats() Stats {
	s := c.stats
	s.Entries = len(c.index)
	return s
}

// Entry describes an entry.
type Entry struct {
	Addr   wire.Addr
	MAC    wire.MAC
	State  State
	Router bool
}

// Entries returns all entries.
func (c *Cache) Entries(now plugins.Time) []Entry {
	var r []Entry
	for i := range c.entries {
		if e := &c.entries[i]; e.state != Free {
			r = append(r, Entry{e.addr, e.mac, e.at(now), e.router})
		}
	}
	return r
}

// at is the state at now: a reachable entry becomes stale without an event.
func (e *entry) at(now plugins.Time) State {
	if e.state == Reachable && now >= e.confirmed {
		return Stale
	}
	return e.state
}

// Lookup returns the entry of a next hop on link. If there is none it makes one, whose request is then due at
// once. ok is false if the cache is full and no entry can be evicted, or if half of it waits for answers: who sends us packets from
// addresses that do not exist must not push out the neighbours that do, nor make us ask without end (RFC 6583, 6.2 and 7.1).
func (c *Cache) Lookup(a wire.Addr, now plugins.Time) (r Ref, ok bool) {
	return c.lookup(a, now, c.cfg.Max/2)
}

// LookupGateway is Lookup for an address that the configuration named: it finds a place however many others wait for answers.
func (c *Cache) LookupGateway(a wire.Addr, now plugins.Time) (r Ref, ok bool) {
	return c.lookup(a, now, c.cfg.Max)
}

func (c *Cache) lookup(a wire.Addr, now plugins.Time, maxPending int) (r Ref, ok bool) {
	if i, ok := c.index[a]; ok {
		return Ref{i, c.entries[i].gen}, true
	}
	if c.pending >= maxPending {
		c.stats.Full++
		return Ref{}, false
	}
	i := c.alloc(a, now)
	if i == 0 {
		return Ref{}, false
	}
	e := &c.entries[i]
	e.state = Incomplete
	c.pending++
	c.wheel.Set(i, now)
	return Ref{i, e.gen}, true
}

// Reroute makes all Refs stale, so that who holds one looks its next hop up again. Call it when routes have changed.
func (c *Cache) Reroute() {
	for i := range c.entries {
		c.entries[i].gen++
	}
}

// Resolve returns the Ethernet address for a packet to the entry. It is cheap: no map, no list.
func (c *Cache) Resolve(r Ref, now plugins.Time) (wire.MAC, Result) {
	if int(r.Idx) >= len(c.entries) || r.Idx == 0 {
		return wire.MAC{}, Gone
	}
	e := &c.entries[r.Idx]
	if e.gen != r.Gen || e.state == Free {
		return wire.MAC{}, Gone
	}
	e.used = now
	switch e.state {
	case Reachable:
		if now < e.confirmed {
			return e.mac, OK
		}
		c.delay(r.Idx, now)
	case Stale:
		c.delay(r.Idx, now)
	case Incomplete:
		return wire.MAC{}, Wait
	}
	return e.mac, OK
}

// delay starts the time in which upper layers may confirm an entry that is used while stale.
func (c *Cache) delay(i uint32, now plugins.Time) {
	c.entries[i].state = Delay
	c.wheel.Set(i, now.Add(DelayTime))
}

// Confirm says that the neighbour forwards: new data of ours was acknowledged (RFC 1122, 2.3.2.1; RFC 4861, 7.3.1).
func (c *Cache) Confirm(r Ref, now plugins.Time) {
	if int(r.Idx) >= len(c.entries) || r.Idx == 0 {
		return
	}
	e := &c.entries[r.Idx]
	if e.gen != r.Gen || e.state == Free || e.state == Incomplete {
		return
	}
	if e.state == Reachable && e.confirmed-now > plugins.Time(ReachableTime)/2 {
		return // fresh enough
	}
	c.reachable(r.Idx, now)
}

// Doubt says that what goes through the neighbour gets no answer (RFC 1122, 3.3.1.4: negative advice): what was confirmed counts no more,
// so that the next packet has it asked, unless it is confirmed meanwhile.
func (c *Cache) Doubt(r Ref, now plugins.Time) {
	if int(r.Idx) >= len(c.entries) || r.Idx == 0 {
		return
	}
	if e := &c.entries[r.Idx]; e.gen == r.Gen && e.state == Reachable {
		e.confirmed = min(e.confirmed, now)
	}
}

// reachable marks an entry as confirmed. A timer checks in a minute whether it is still used.
func (c *Cache) reachable(i uint32, now plugins.Time) {
	e := &c.entries[i]
	c.complete(e)
	e.state, e.tries = Reachable, 0
	e.confirmed = now + plugins.Time(ReachableTime)/2 + plugins.Time(c.rng.Int64N(int64(ReachableTime)))
	c.wheel.Set(i, now.Add(StaleTime))
}

// stale marks an entry as known but not confirmed.
func (c *Cache) stale(i uint32, now plugins.Time) {
	e := &c.entries[i]
	c.complete(e)
	e.state, e.tries = Stale, 0
	c.wheel.Set(i, now.Add(StaleTime))
}

// complete counts an entry that gets another state.
func (c *Cache) complete(e *entry) {
	if e.state == Incomplete {
		c.pending--
	}
}

// Enqueue lets b wait for the entry that Resolve said Wait about. It returns packets that lost their place; the caller frees
// the chain. It takes b in any case.
func (c *Cache) Enqueue(r Ref, b *pmd.Buf) (dropped *pmd.Buf) {
	b.Next = nil
	if r.Idx == 0 || int(r.Idx) >= len(c.entries) {
		c.stats.Dropped++
		return b
	}
	e := &c.entries[r.Idx]
	if e.gen != r.Gen || e.state != Incomplete {
		c.stats.Dropped++
		return b
	}
	if e.head == nil {
		e.head = b
	} else {
		e.tail.Next = b
	}
	e.tail = b
	e.waiting++
	if int(e.waiting) > c.cfg.Queue {
		dropped = e.head
		e.head = dropped.Next
		dropped.Next = nil
		e.waiting--
		c.stats.Dropped++
	}
	return dropped
}

// takeQueue empties the queue of an entry.
func (e *entry) takeQueue() *pmd.Buf {
	q := e.head
	e.head, e.tail, e.waiting = nil, nil, 0
	return q
}

// Drain removes all entries and returns the packets that waited. For the end of the worker.
func (c *Cache) Drain() (dropped *pmd.Buf) {
	for i := range c.entries {
		if e := &c.entries[i]; e.state != Free {
			if e.head != nil {
				e.tail.Next = dropped
				dropped = e.head
			}
			c.remove(uint32(i))
		}
	}
	return dropped
}

// alloc returns a free entry for a, made free if need be; 0 if there is none.
func (c *Cache) alloc(a wire.Addr, now plugins.Time) uint32 {
	var i uint32
	switch {
	case len(c.free) > 0:
		i = c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
	case len(c.entries) <= c.cfg.Max:
		c.entries = append(c.entries, entry{})
		i = uint32(len(c.entries) - 1)
	default:
		if i = c.victim(now); i == 0 {
			c.stats.Full++
			return 0
		}
		c.stats.Evicted++
		c.remove(i)
		c.free = c.free[:len(c.free)-1]
	}
	e := &c.entries[i]
	*e = entry{addr: a, gen: e.gen + 1, used: now, updated: now.Add(-LockTime), asked: now.Add(-RetransTime)}
	c.index[a] = i
	return i
}

// victimSample is how many entries are compared for eviction, beyond those that may not go: one frame costs no walk over the cache.
const victimSample = 32

// victim chooses the entry to evict, among the next few: a stale one before others, then the one that was not used for longest.
// Incomplete ones and those asked within a second stay: to forget them would let us ask again too soon.
func (c *Cache) victim(now plugins.Time) (best uint32) {
	bestStale := false
	seen := 0
	for range len(c.entries) - 1 {
		if c.hand++; int(c.hand) >= len(c.entries) {
			c.hand = 1
		}
		e := &c.entries[c.hand]
		if e.state == Free || e.state == Incomplete || now-e.asked < plugins.Time(RetransTime) {
			continue
		}
		stale := e.at(now) == Stale
		if best == 0 || stale && !bestStale || stale == bestStale && e.used < c.entries[best].used {
			best, bestStale = c.hand, stale
		}
		if seen++; seen == victimSample {
			break
		}
	}
	return best
}

// remove frees an entry; its queue was taken before.
func (c *Cache) remove(i uint32) {
	e := &c.entries[i]
	if e.state == Incomplete {
		c.pending--
	}
	delete(c.index, e.addr)
	c.wheel.Stop(i)
	*e = entry{gen: e.gen}
	c.free = append(c.free, i)
}

// Package attack sets a stack under attack: floods, injections, hoarders and scans, on virtual time, with bounds on the memory and the
// work that they may cost. During each attack an honest client's requests to the same stack must succeed.
//
// Work is counted, not timed: turns, frames, queue entries looked at, allocations, bytes held.
package attack

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
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

// Addresses. The victim and the client are neighbours in a /16; everything outside is behind the attacker, who is the gateway too.
var (
	VictimAddr  = netip.MustParseAddr("10.0.0.1")
	ClientAddr  = netip.MustParseAddr("10.0.0.2")
	GatewayAddr = netip.MustParseAddr("10.0.0.254")
	Victim6     = netip.MustParseAddr("2001:db8::1")
	Client6     = netip.MustParseAddr("2001:db8::2")
	victim      = wire.AddrFrom(VictimAddr)
)

// Port is where the victim's server listens.
const Port = 80

// Net is an Ethernet segment with a victim, an honest client, and an attacker who sends any frame and sees all that the victim sends to
// others than the client.
type Net struct {
	T              testing.TB
	Clock          *Clock
	Victim, Client *stack.Stack
	Budget         *mem.Budget // of the victim's streams
	// Seen, if set, gets each frame that the victim sends to the attacker; it must not keep it.
	Seen func(f []byte)
	// OnPath, if set, gets each frame between victim and client and says what arrives instead; it may keep it.
	OnPath func(toVictim bool, f []byte) [][]byte

	// Answers says for which neighbours' addresses, besides the gateway's, the attacker answers ARP requests.
	Answers func(netip.Addr) bool

	arenas   [2]*mem.Arena
	ports    [2]*memlink.Port
	macs     [2]wire.MAC
	frames   [][]byte // of the attacker, on their way
	steps    []func()
	nextStep plugins.Time
	visits   interface{ Visits() uint64 }
	ipID     uint16
	small    bool
	past     int // turns in a row that a stack wanted for nothing

	Rounds uint64 // ever

	// What the attack has cost.
	In, Out           uint64 // frames of the attacker, and the victim's answers to him
	InBytes, OutBytes uint64
	Turns             uint64 // busy turns of the victim
	Peak              int64  // most bytes charged to the budget
	mallocs           uint64
	sampled           uint64 // turns whose allocations were counted
}

// Config describes a Net.
type Config struct {
	Stack  stack.Config // of the victim
	Limits mem.Limits   // of the victim's memory
	Heap   bool         // streams on the Go heap
	IPv6   bool         // victim and client have Victim6 and Client6 too
	Small  bool         // links of few buffers, which are made faster, and no count of allocations
}

// AttackerMAC is the link address of everybody but the victim and the client.
var AttackerMAC = wire.MAC{2, 0, 0, 0, 0xba, 0xd0}

// sampleEvery is how seldom allocations are counted: it stops the world.
const sampleEvery = 64

// New makes a Net. At the end of the test all must be closed without a leak.
func New(t testing.TB, cfg Config) *Net {
	t.Helper()
	n := &Net{T: t, Clock: &Clock{1e9}, small: cfg.Small}
	var err error
	if n.Budget, err = mem.NewBudget(cfg.Limits); err != nil {
		t.Fatal(err)
	}
	n.arenas[0] = mem.NewArena(n.Budget)
	if cfg.Heap {
		n.arenas[0] = mem.NewHeapArena(n.Budget)
	}
	n.arenas[1] = mem.NewArena(new(mem.Budget))
	if cfg.Heap {
		n.arenas[1] = mem.NewHeapArena(new(mem.Budget))
	}
	if err := n.arenas[1].Budget().SetLimits(mem.Limits{}); err != nil {
		t.Fatal(err)
	}
	client := stack.Config{TCP: cfg.Stack.TCP}
	if cfg.IPv6 {
		cfg.Stack.Addrs = append(cfg.Stack.Addrs, netip.PrefixFrom(Victim6, 64))
		client.Addrs = []netip.Prefix{netip.PrefixFrom(Client6, 64)}
	}
	n.Victim = n.stack(cfg.Stack, 0, VictimAddr)
	n.Client = n.stack(client, 1, ClientAddr)
	n.countVisits()
	t.Cleanup(n.close)
	n.Idle(10 * time.Millisecond)
	if cfg.IPv6 {
		n.Idle(5 * time.Second) // until its addresses are known to be its own (RFC 4862, 5.4)
	}
	return n
}

func (n *Net) stack(c stack.Config, i int, addr netip.Addr) *stack.Stack {
	link := memlink.Config{
		A: memlink.End{Name: "near", MAC: []byte{2, 0, 0, 0, 0, byte(1 + i)}}, B: memlink.End{Name: "far", MAC: AttackerMAC[:]},
		Now: n.Clock.Now, Virtual: true, Ring: 4096,
	}
	if n.small {
		link.Ring, link.Bufs = 64, 256
	}
	near, far, err := memlink.New(link)
	if err != nil {
		n.T.Fatal(err)
	}
	n.ports[i] = far
	n.macs[i] = wire.MAC(near.Info().MAC)
	c.Port, c.Clock, c.Seed, c.Arena = near, n.Clock, uint64(1+i), n.arenas[i]
	c.Addrs = append([]netip.Prefix{netip.PrefixFrom(addr, 16)}, c.Addrs...)
	c.Gateway = GatewayAddr
	s, err := stack.New(c)
	if err != nil {
		n.T.Fatal(err)
	}
	return s
}

// countVisits gives the victim a retransmission module whose work is counted.
func (n *Net) countVisits() {
	m, err := rtx.NewBTree(nil, 1)
	if err != nil {
		n.T.Fatal(err)
	}
	i, err := n.Victim.Attach(plugins.Rtx, "counted", []any{m})
	if err == nil {
		_, err = n.Victim.Use(plugins.Rtx, i, plugins.Selection{})
	}
	if err != nil {
		n.T.Fatal(err)
	}
	n.visits = m.(interface{ Visits() uint64 })
}

// Visits is how many entries of retransmission queues the victim has looked at.
func (n *Net) Visits() uint64 { return n.visits.Visits() }

// Stats are the figures of the victim's worker.
func (n *Net) Stats() stack.WorkerStats { return n.Victim.Stats()[0] }

// close ends both stacks, which must have leaked nothing.
func (n *Net) close() {
	for i, s := range []*stack.Stack{n.Victim, n.Client} {
		if err := s.Close(); err != nil {
			n.T.Errorf("stack %d: %v", i, err)
		}
		var rx [64]*pmd.Buf
		for got := 1; got > 0; {
			_, got = n.ports[i].Queue(0).Poll(nil, rx[:])
			for _, b := range rx[:got] {
				b.Free()
			}
		}
		if err := n.ports[i].Close(); err != nil {
			n.T.Errorf("link %d: %v", i, err)
		}
		if err := n.arenas[i].Close(); err != nil {
			n.T.Errorf("stack %d: %v", i, err)
		}
	}
}

// Each makes Run call step once per millisecond: applications.
func (n *Net) Each(step func()) { n.steps = append(n.steps, step) }

// grain is how often applications run, if there are any.
const grain = time.Millisecond

// turnTime is how long a round takes that had something to do.
const turnTime = 2 * time.Microsecond

// Inject sends a frame of the attacker to the victim. It is his from now on.
func (n *Net) Inject(f []byte) { n.frames = append(n.frames, f) }

// round runs both stacks once and moves frames. It reports whether there was anything to do.
func (n *Net) round() (busy bool) {
	n.Rounds++
	busy = n.turn()
	busy = n.Client.Turn() || busy
	for i := range n.ports {
		var rx [64]*pmd.Buf
		_, got := n.ports[i].Queue(0).Poll(nil, rx[:])
		for _, b := range rx[:got] {
			n.carry(i, append([]byte(nil), b.Bytes()...))
			b.Free()
		}
		busy = busy || got > 0
	}
	sent := 0
	for sent < len(n.frames) && n.put(0, n.frames[sent]) {
		n.In++
		n.InBytes += uint64(len(n.frames[sent]))
		sent++
	}
	if n.frames = n.frames[:copy(n.frames, n.frames[sent:])]; sent > 0 {
		busy = true
	}
	n.Peak = max(n.Peak, n.Budget.Used())
	return busy
}

// turn is one of the victim's.
func (n *Net) turn() (busy bool) {
	if n.small || n.Rounds%sampleEvery != 0 {
		busy = n.Victim.Turn()
	} else {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		busy = n.Victim.Turn()
		runtime.ReadMemStats(&after)
		if busy {
			n.mallocs += after.Mallocs - before.Mallocs
			n.sampled++
		}
	}
	if busy {
		n.Turns++
	}
	return busy
}

// MallocsPerTurn is the mean number of allocations of a turn of the victim.
func (n *Net) MallocsPerTurn() float64 { return float64(n.mallocs) / float64(max(n.sampled, 1)) }

// Reset begins to count the cost anew.
func (n *Net) Reset() {
	n.In, n.Out, n.InBytes, n.OutBytes, n.Turns, n.Peak, n.mallocs, n.sampled = 0, 0, 0, 0, 0, 0, 0, 0
}

// put sends a frame to stack i. It returns false if there is no room now.
func (n *Net) put(i int, f []byte) bool {
	q := n.ports[i].Queue(0)
	b := q.Pool().Get()
	if b == nil {
		return false
	}
	if !b.Append(f) {
		n.T.Fatalf("a frame of %d bytes does not fit", len(f))
	}
	if sent, _ := q.Poll([]*pmd.Buf{b}, nil); sent == 0 {
		q.Pool().Put(b)
		return false
	}
	return true
}

// carry takes a frame of stack i to where it is addressed.
func (n *Net) carry(i int, f []byte) {
	dst := wire.MAC(f[:6])
	if dst == n.macs[1-i] || dst.IsMulticast() {
		out := [][]byte{f}
		if n.OnPath != nil {
			out = n.OnPath(i == 1, f)
		}
		for _, g := range out {
			n.put(1-i, g) // without room it is lost
		}
	}
	if i != 0 || dst == n.macs[1] {
		return
	}
	if f[12] == wire.EtherTypeARP>>8 && f[13] == wire.EtherTypeARP&0xff {
		n.arp(f)
		return
	}
	n.Out++
	n.OutBytes += uint64(len(f))
	if n.Seen != nil {
		n.Seen(f)
	}
}

// arp answers a request of the victim for an address of the attacker.
func (n *Net) arp(f []byte) {
	a, d := wire.ParseARP(f[wire.EthLen:])
	if d != wire.DropNone {
		n.T.Fatalf("the victim sent a malformed ARP packet: %v", d)
	}
	if who := netip.AddrFrom4(a.TPA); a.Op == wire.ARPRequest && (who == GatewayAddr || n.Answers != nil && n.Answers(who)) {
		n.put(0, ARP(wire.ARPReply, AttackerMAC, who, n.macs[0], VictimAddr))
	}
}

// Idle lets d pass.
func (n *Net) Idle(d time.Duration) {
	n.Run(d, func() bool { return false })
}

// Run goes on until done returns true, which it reports, or d has passed.
func (n *Net) Run(d time.Duration, done func() bool) bool {
	limit := n.Clock.now.Add(d)
	for n.Clock.now < limit {
		busy := n.round()
		if n.Clock.now >= n.nextStep && len(n.steps) > 0 {
			n.nextStep = n.Clock.now.Add(grain)
			for _, f := range n.steps {
				f()
			}
			busy = true
		}
		if done() {
			return true
		}
		if busy {
			n.Clock.now = n.Clock.now.Add(turnTime)
			continue
		}
		next := min(n.Victim.Deadline(), n.Client.Deadline(), limit)
		if len(n.steps) > 0 {
			next = min(next, n.nextStep)
		}
		if next > n.Clock.now {
			n.past = 0
		} else if n.past++; n.past > 1000 {
			n.T.Fatalf("a stack has nothing to do and wants a turn at once, a thousand times in a row: deadlines %v and %v, now %v", n.Victim.Deadline(), n.Client.Deadline(), n.Clock.now)
		}
		n.Clock.now = max(next, n.Clock.now+1)
	}
	return done()
}

// Flood calls inject every so often for d: what it passes to Inject is the attack.
func (n *Net) Flood(d, every time.Duration, inject func(i int)) {
	end := n.Clock.now.Add(d)
	for i := 0; n.Clock.now < end; i++ {
		inject(i)
		n.Idle(every)
	}
}

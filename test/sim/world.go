// Package sim runs the real stack on virtual time: two stacks joined by an emulated link, deterministic for a seed.
package sim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Clock is a virtual clock.
type Clock struct{ now plugins.Time }

// Now is the present.
func (c *Clock) Now() plugins.Time { return c.now }

// World is two stacks, A and B, and the link between them.
type World struct {
	Clock *Clock
	A, B  *stack.Stack
	PortA *memlink.Port
	PortB *memlink.Port
	// TurnTime is how long a round of turns takes that had something to do.
	TurnTime time.Duration
	Rounds   uint64
}

// Addresses of the two stacks.
var (
	AddrA = netip.MustParsePrefix("10.0.0.1/24")
	AddrB = netip.MustParsePrefix("10.0.0.2/24")
)

// Start is the first time of a World: not 0, which means "never" in places.
const Start plugins.Time = 1e9

// WorldConfig describes a World. Port, Addrs and Clock of the stacks' configurations are set by NewWorld, and Seed from Seed.
type WorldConfig struct {
	Link memlink.Config
	A, B stack.Config
	Seed uint64
	// WrapPorts, if set, wraps each port, for captures and faults.
	WrapPorts func(pmd.Port) pmd.Port
}

// NewWorld makes a world at time Start.
func NewWorld(cfg WorldConfig) (*World, error) {
	w := &World{Clock: &Clock{now: Start}, TurnTime: time.Microsecond}
	cfg.Link.Now, cfg.Link.Virtual = w.Clock.Now, true
	if cfg.Link.Seed == 0 {
		cfg.Link.Seed = cfg.Seed
	}
	var err error
	if w.PortA, w.PortB, err = memlink.New(cfg.Link); err != nil {
		return nil, err
	}
	wrap := cfg.WrapPorts
	if wrap == nil {
		wrap = func(p pmd.Port) pmd.Port { return p }
	}
	make := func(c stack.Config, p pmd.Port, addr netip.Prefix, salt uint64) (*stack.Stack, error) {
		c.Port, c.Clock, c.Seed = wrap(p), w.Clock, cfg.Seed*2+salt
		c.Addrs = append([]netip.Prefix{addr}, c.Addrs...)
		return stack.New(c)
	}
	if w.A, err = make(cfg.A, w.PortA, AddrA, 1); err != nil {
		return nil, err
	}
	if w.B, err = make(cfg.B, w.PortB, AddrB, 2); err != nil {
		return nil, err
	}
	return w, nil
}

// Step runs one round: a turn of each stack, and, if neither had anything to do, time moves on to the next event, at most to limit.
func (w *World) Step(limit plugins.Time) {
	w.Rounds++
	a, b := w.A.Turn(), w.B.Turn()
	if a || b {
		w.Clock.now = w.Clock.now.Add(w.TurnTime)
		return
	}
	next := min(w.A.Deadline(), w.B.Deadline(), w.PortA.NextRelease(), w.PortB.NextRelease(), limit)
	w.Clock.now = max(next, w.Clock.now+1)
}

// Run steps until done returns true, or fails after the given virtual time.
func (w *World) Run(d time.Duration, done func() bool) error {
	limit := w.Clock.now.Add(d)
	for !done() {
		if w.Clock.now >= limit {
			return fmt.Errorf("sim: not done after %v of virtual time", d)
		}
		w.Step(limit)
	}
	return nil
}

// Idle lets the given time pass.
func (w *World) Idle(d time.Duration) {
	limit := w.Clock.now.Add(d)
	for w.Clock.now < limit {
		w.Step(limit)
	}
}

// Connect opens a connection from A to a port of B and returns both ends, established.
func (w *World) Connect(port uint16) (a, b *tcp.Conn, err error) {
	return w.connect(netip.AddrPortFrom(AddrB.Addr(), port))
}

// connect is Connect to an address of B.
func (w *World) connect(to netip.AddrPort) (a, b *tcp.Conn, err error) {
	l, err := w.B.Listen(to, 16)
	if err != nil {
		return nil, nil, err
	}
	if a, err = w.A.Connect(netip.AddrPort{}, to); err != nil {
		return nil, nil, err
	}
	err = w.Run(time.Minute, func() bool {
		if b == nil {
			b, _ = l.TryAccept()
		}
		return b != nil && a.Up() || a.Done()
	})
	if err == nil && a.Err() != tcp.OK {
		err = a.Err()
	}
	return a, b, err
}

// Close ends both stacks; the error tells of buffers that leaked.
func (w *World) Close() error {
	if err := w.A.Close(); err != nil {
		return err
	}
	return w.B.Close()
}

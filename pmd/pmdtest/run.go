package pmdtest

import (
	"sync/atomic"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// Options say what a driver or its wire lacks. The zero value asks for everything.
type Options struct {
	// TxRing is the number of frames that one Poll can take at most. If it is set, the suite offers more at once and wants
	// partial acceptance, counted in TxFull. The pool must hold more than that.
	TxRing int
	// DropsUncounted: frames can be lost for want of room or buffers without appearing in RxDropped.
	DropsUncounted bool
	// Async: Poll may hand out a frame some time after the peer sent it, as when a kernel lies between. The suite then polls
	// longer before it concludes that nothing more will come.
	Async bool
	// Allocates: Poll allocates, so the test of that is left out.
	Allocates bool
	// Only, if set, is the one test to run, for variants of a driver whose others pass the whole suite.
	Only string
	// Idle, if set, is called after each turn in which nothing was received, for instance to advance a virtual clock.
	Idle func()
}

// Run runs the suite, each test on a fresh pair of ports.
func Run(t *testing.T, open func(t *testing.T) (a, b pmd.Port), o Options) {
	t.Helper()
	tests := []struct {
		name string
		f    func(*pair)
	}{
		{"Info", testInfo},
		{"Sizes", testSizes},
		{"Both", testBothDirections},
		{"Burst", testBurst},
		{"Room", testRoom},
		{"Echo", testEcho},
		{"Exhaustion", testExhaustion},
		{"RemoteFree", testRemoteFree},
		{"Stats", testStats},
		{"Large", testLarge},
		{"Allocs", testAllocs},
		{"Wake", testWake},
		{"Leak", testLeak},
		{"CloseTwice", testCloseTwice},
	}
	for _, tc := range tests {
		if o.Only != "" && tc.name != o.Only {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			a, b := open(t)
			p := &pair{T: t, o: o, run: runs.Add(1)}
			p.a, p.b = newSide(p, a), newSide(p, b)
			p.a.peer, p.b.peer = p.b, p.a
			for _, s := range p.sides() {
				if !until(patience, s.port.LinkUp) {
					t.Errorf("port %s: the link is not up", s.info.Name)
				}
			}
			defer p.close()
			tc.f(p)
		})
	}
}

// runs gives each test its own id, so that a straggler of an earlier one is foreign to the next.
var runs atomic.Uint32

// pair is the two ports under test, polled by one goroutine.
type pair struct {
	*testing.T
	o    Options
	run  uint32
	a, b *side

	closed bool
}

func (p *pair) sides() []*side { return []*side{p.a, p.b} }

// close closes both ports, unless the test did, and wants no error. A test that failed may have left buffers behind.
func (p *pair) close() {
	p.Helper()
	if p.closed {
		return
	}
	for _, s := range p.sides() {
		switch err := s.port.Close(); {
		case p.Failed():
			pmd.Forgive(err)
		case err != nil:
			p.Errorf("Close of port %s: %v", s.info.Name, err)
		}
	}
}

// drain receives what is still on its way.
func (p *pair) drain() {
	p.Helper()
	if p.o.Async {
		until(settle, func() bool { p.a.turn(); p.b.turn(); return false })
		return
	}
	for quiet := 0; quiet < 4; {
		if p.a.turn()+p.b.turn() > 0 {
			quiet = 0
		} else {
			quiet++
		}
	}
}

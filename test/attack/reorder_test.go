package attack

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/stream"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Segments out of order, each with a gap before it (CVE-2018-5390 and its kin): at most so many pieces are kept, in no more memory than
// they can need, and each costs little.
func TestOutOfOrderFlood(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	for _, c := range []struct {
		name string
		at   func(i int) (off uint32, size int)
		full bool // there are more pieces than are kept
	}{
		{"every second byte", func(i int) (uint32, int) { return 10 + uint32(i*2), 1 }, true},
		{"backwards", func(i int) (uint32, int) { return 3_000_000 - uint32(i*2%2_900_000), 1 }, true},
		{"every page", func(i int) (uint32, int) { return 10 + uint32(i*4096)%3_900_000 + uint32(i/1000)*2, 1 }, true},
		{"anywhere", func(int) (uint32, int) { return 10 + rng.Uint32N(3_900_000), 1 + rng.IntN(1400) }, true},
		{"the same", func(int) (uint32, int) { return 5000, 1000 }, false},
		{"overlapping", func(i int) (uint32, int) { return 10 + uint32(i%1000), 1 + i%1400 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New(t, Config{Stack: stack.Config{TCP: tcp.Config{RecvStart: 4 << 20, RecvBuffer: 4 << 20}}}) // a window worth the attack
			n.Serve(backlog)
			h := n.Ask(5000)
			bots := n.Bots()
			b := bots.Open(BotAddr(0), 65535, Usual)
			n.Idle(100 * time.Millisecond)
			b.Send(wire.ACK, []byte{0, 0}) // half a request; now the window is what the buffer has
			n.Idle(100 * time.Millisecond)
			n.Reset()
			base := n.Stats().TCP
			sent, bytes := make([]bool, 4<<20), 0
			n.perSecond(2*time.Second, 30_000, func(i int) {
				off, size := c.at(i)
				for k := range uint32(size) {
					if at := off + k; !sent[at] {
						sent[at] = true
						bytes++
					}
				}
				b.SendAt(b.Seq+off, wire.ACK, make([]byte, size), wire.Options{})
			})
			n.cost()
			h.Want(50, time.Second)
			s := n.Stats().TCP
			dropped := s.RcvPieceDrops - base.RcvPieceDrops
			t.Logf("%d out of order, %d dropped", s.OutOfOrder-base.OutOfOrder, dropped)
			if c.full != (dropped > 0) || s.RcvMemDrops != base.RcvMemDrops {
				t.Errorf("%d dropped because there were too many pieces, %d for want of memory", dropped, s.RcvMemDrops-base.RcvMemDrops)
			}
			// A piece needs its bytes, and at worst a small chunk of its own beside them.
			if limit := int64(min(stream.DefaultRanges*mem.Small.Size()+2*bytes, 6<<20) + 512<<10); n.Peak > limit {
				t.Errorf("%d bytes, want at most %d", n.Peak, limit)
			}
			if n.Out > n.In {
				t.Errorf("%d segments were answered %d times", n.In, n.Out)
			}
			if n.MallocsPerTurn() > 3 {
				t.Errorf("%.2f allocations per turn", n.MallocsPerTurn())
			}
		})
	}
}

// Out-of-order data on 2000 connections fills the windows of all of them. It is kept as long as memory is plenty; honest clients have
// theirs all the same.
func TestOutOfOrderHoarders(t *testing.T) {
	limits := mem.Limits{Low: 24 << 20, Pressure: 32 << 20, High: 48 << 20}
	n := New(t, Config{Limits: limits})
	n.Serve(4096)
	h := n.Ask(100_000)
	bots := n.Bots()
	n.connect(bots, 2000, 65535)
	n.Reset()
	rng := rand.New(rand.NewPCG(6, 1))
	n.perSecond(5*time.Second, 20_000, func(i int) {
		b := bots.List[rng.IntN(len(bots.List))]
		b.SendAt(b.Seq+10+rng.Uint32N(60_000), wire.ACK, make([]byte, 1400), wire.Options{})
	})
	n.cost()
	h.Want(100, time.Second)
	if n.Peak > limits.High {
		t.Errorf("%d bytes were charged, the limit is %d", n.Peak, limits.High)
	}
	if f := n.Budget.Stats().Fulls; f != 0 {
		t.Errorf("memory was exhausted %d times", f)
	}
	if n.Stats().TCP.RcvMemDrops == 0 {
		t.Error("nothing was dropped")
	}
}

// connect opens bots and waits until they are connected.
func (n *Net) connect(bots *Bots, num int, window uint16) {
	n.T.Helper()
	for len(bots.List) < num {
		for range min(32, num-len(bots.List)) {
			bots.Open(BotAddr(len(bots.List)), window, Usual)
		}
		n.Idle(2 * time.Millisecond)
	}
	n.Idle(1500 * time.Millisecond) // a SYN-ACK again, where one was needed
	if up := bots.Up(); up != num {
		n.T.Fatalf("%d of %d bots are connected", up, num)
	}
}

// Data in segments of one byte, in order, to an application that does not read: what is kept is what the window holds, however it came.
func TestTinySegments(t *testing.T) {
	n := New(t, Config{})
	srv := n.Serve(backlog)
	h := n.Ask(5000)
	bots := n.Bots()
	n.Idle(10 * time.Millisecond)
	srv.Keep = func(c *tcp.Conn) bool { return c.Tuple.RemoteAddr() == BotAddr(0) }
	b := bots.Open(BotAddr(0), 65535, Usual)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	const total = 60_000
	n.perSecond(2*time.Second, total/2, func(i int) { b.Send(wire.ACK, []byte{byte(i)}) })
	n.cost()
	h.Want(50, time.Second)
	if got := srv.Held[0].Readable(); got != total {
		t.Errorf("%d bytes are there to be read", got)
	}
	if n.Peak > 2*total+1<<20 {
		t.Errorf("%d bytes are held for %d", n.Peak, total)
	}
	if n.Out > n.In {
		t.Errorf("%d segments were answered %d times", n.In, n.Out)
	}
	srv.Held[0].Close()
}

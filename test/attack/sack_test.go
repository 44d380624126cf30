package attack

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// greedy opens a bot that asks for much, and acknowledges what comes until the victim has at least flight bytes under way.
func (n *Net) greedy(opts wire.Options, flight uint32) *Bot {
	n.T.Helper()
	bots := n.Bots()
	b := bots.Open(BotAddr(0), 65535, opts)
	n.Idle(20 * time.Millisecond)
	b.Request(1 << 30)
	for range 1000 {
		n.Idle(5 * time.Millisecond)
		if b.Last-b.Ack >= flight {
			return b
		}
		b.Ack = b.Last
		b.SendAt(b.Seq, wire.ACK, nil, wire.Options{})
	}
	n.T.Fatalf("%d bytes are under way, want %d", b.Last-b.Ack, flight)
	return nil
}

// Selective acknowledgements that are made to cost (CVE-2019-11477, 11478 and 11479, and floods of all kinds of blocks) cost a few
// entries each, and no memory.
func TestSACKStorm(t *testing.T) {
	const flight = 300_000
	tiny := Usual
	tiny.MSS = 48
	for _, c := range []struct {
		name   string
		opts   wire.Options
		blocks func(b *Bot, rng *rand.Rand, i int) []seq.Range
		visits uint64 // at most, per acknowledgement
		// limited: what is outstanding would be cut into more pieces than may be.
		limited bool
	}{
		{"single bytes", Usual, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			at := b.Ack + 1500 + uint32(i*7)%(flight-3000)
			return []seq.Range{{Start: at, End: at + 1}}
		}, 40, false},
		{"every second segment", tiny, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			at := b.Ack + 76 + uint32(i)*152%(flight-300)
			return []seq.Range{{Start: at, End: at + 76}}
		}, 60, true},
		{"backwards", tiny, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			at := b.Last - 152 - uint32(i)*152%(flight-300)
			return []seq.Range{{Start: at, End: at + 76}}
		}, 60, true},
		{"three anywhere", tiny, func(b *Bot, rng *rand.Rand, i int) (r []seq.Range) {
			for range 3 {
				at := b.Ack + 1 + rng.Uint32N(flight-2000)
				r = append(r, seq.Range{Start: at, End: at + 1 + rng.Uint32N(1500)})
			}
			return r
		}, 60, false},
		{"all but the head", tiny, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			return []seq.Range{{Start: b.Ack + 76, End: b.Last}}
		}, 40, false},
		{"growing", tiny, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			return []seq.Range{{Start: b.Ack + 76, End: b.Ack + 77 + uint32(i)%(flight-100)}}
		}, 60, false},
		{"duplicates", Usual, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			at := b.Ack - 1 - rng.Uint32N(50_000)
			return []seq.Range{{Start: at - 500, End: at}, {Start: b.Ack + 1448, End: b.Ack + 2896}}
		}, 40, false},
		{"out of bounds", Usual, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			at := rng.Uint32()
			return []seq.Range{{Start: at, End: at + rng.Uint32()}, {Start: b.Last, End: b.Last + 5000}, {Start: b.Ack + 9, End: b.Ack + 3}}
		}, 60, false},
		{"reneging", Usual, func(b *Bot, rng *rand.Rand, i int) []seq.Range {
			if i%2 == 0 {
				return nil
			}
			return []seq.Range{{Start: b.Ack + 1448, End: b.Last}}
		}, 60, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New(t, Config{})
			n.Serve(backlog)
			b := n.greedy(c.opts, flight)
			h := n.Ask(5000)
			n.Idle(50 * time.Millisecond)
			rng := rand.New(rand.NewPCG(7, 1))
			n.Reset()
			small := n.Stats().TCP.SmallMSS
			visits, frames, used := n.Visits(), uint64(0), n.Budget.Used()
			n.perSecond(2*time.Second, 20_000, func(i int) {
				r := c.blocks(b, rng, i)
				o := wire.Options{}
				if len(r) > 0 {
					o.Set |= wire.OptSACK
					o.NSack = uint8(copy(o.Sack[:], r))
				}
				b.SendAt(b.Seq, wire.ACK, nil, o)
				frames++
			})
			n.cost()
			per := (n.Visits() - visits) / frames
			s := n.Stats().TCP
			t.Logf("%d visits per acknowledgement; %d bytes under way; limited %d times", per, b.Last-b.Ack, s.SackLimited)
			if (c.opts.MSS < 88) != (small == 1) {
				t.Errorf("an MSS of %d was counted as small %d times", c.opts.MSS, small)
			}
			if c.limited != (s.SackLimited > 0) {
				t.Errorf("SACK blocks were left aside %d times", s.SackLimited)
			}
			if per > c.visits {
				t.Errorf("%d queue entries were looked at per acknowledgement, want at most %d", per, c.visits)
			}
			h.Want(50, time.Second)
			if n.Peak > used+8<<20 {
				t.Errorf("%d bytes were charged, %d before", n.Peak, used)
			}
			if n.MallocsPerTurn() > 3 {
				t.Errorf("%.2f allocations per turn", n.MallocsPerTurn())
			}
		})
	}
}

// A peer that announces an MSS of 1 does not make the victim send a segment per byte (CVE-2019-11479).
func TestTinyMSS(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(5000)
	n.Idle(10 * time.Millisecond)
	opts := wire.Options{Set: wire.OptMSS, MSS: 1}
	bots := n.Bots()
	segments, bytes := 0, 0
	bots.Behave = func(b *Bot, s *wire.TCP, _ *wire.Options) {
		if len(s.Payload) > 0 {
			segments++
			bytes += len(s.Payload)
		}
		b.Ack = b.Last
		b.SendAt(b.Seq, wire.ACK, nil, wire.Options{})
	}
	b := bots.Open(BotAddr(0), 65535, opts)
	n.Idle(20 * time.Millisecond)
	b.Request(50_000)
	n.Idle(time.Second)
	h.Want(30, time.Second)
	if bytes != 50_000 || segments > 50_000/88+2 {
		t.Errorf("%d bytes came in %d segments", bytes, segments)
	}
}

// A peer that acknowledges what it has not received yet makes the victim send faster, but not beyond what was sent, and honest clients
// are served beside it (Savage et al., TCP Congestion Control with a Misbehaving Receiver, 1999).
func TestOptimisticACKs(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(20_000)
	b := n.greedy(Usual, 100_000)
	n.Idle(20 * time.Millisecond)
	n.Reset()
	bad := n.Stats().TCP.BadAcks
	done := h.Done
	n.perSecond(time.Second, 20_000, func(i int) {
		b.Ack = b.Last + uint32(i%4)*1448 // one of four is true
		b.SendAt(b.Seq, wire.ACK, nil, wire.Options{})
	})
	n.cost()
	h.Want(done+20, time.Second)
	s := n.Stats().TCP
	t.Logf("%d acknowledgements of what was not sent, %d challenges", s.BadAcks-bad, s.ChallengeAcks)
	if s.BadAcks-bad < 1000 || s.ChallengeAcks > 10 {
		t.Errorf("%d bad acknowledgements, %d challenges", s.BadAcks-bad, s.ChallengeAcks)
	}
	if n.Peak > 32<<20 {
		t.Errorf("%d bytes were held", n.Peak)
	}
}

// An acknowledgement that is cut into one per byte opens the congestion window no more than the whole one would.
func TestACKDivision(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(5000)
	bots := n.Bots()
	b := bots.Open(BotAddr(0), 65535, Usual)
	n.Idle(20 * time.Millisecond)
	b.Request(1 << 20)
	n.Idle(5 * time.Millisecond)
	first := b.Last - b.Ack
	for range first {
		b.Ack++
		b.SendAt(b.Seq, wire.ACK, nil, wire.Options{})
		n.Idle(10 * time.Microsecond)
	}
	n.Idle(5 * time.Millisecond)
	h.Want(1, time.Second)
	if got := b.Last - b.Ack; got > 2*first+3000 {
		t.Errorf("after %d bytes in as many acknowledgements %d bytes are under way", first, got)
	}
}

// A window that grows, shrinks, closes and opens by single bytes, at 20 000 acknowledgements per second: the victim answers none with
// more than it should, and sends nothing beyond the window's edge but probes.
func TestWindowGames(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for _, c := range []struct {
		name   string
		window func(i int) uint16
	}{
		{"shrinking", func(i int) uint16 { return uint16(65535 - i*13) }},
		{"open and closed", func(i int) uint16 { return uint16(i%2) * 500 }},
		{"single bytes", func(i int) uint16 { return uint16(i % 3) }},
		{"anything", func(int) uint16 { return uint16(rng.Uint32()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New(t, Config{})
			n.Serve(backlog)
			h := n.Ask(5000)
			bots := n.Bots()
			opts := Usual
			opts.Set &^= wire.OptWScale
			b := bots.Open(BotAddr(0), 65535, opts)
			edge, beyond := uint32(0), 0
			bots.Behave = func(b *Bot, s *wire.TCP, _ *wire.Options) {
				// What left before the window shrank may still come: the edge is the farthest that the victim was told.
				if len(s.Payload) > 0 && edge != 0 && int32(s.Seq+uint32(len(s.Payload))-edge) > 0 {
					beyond++
				}
			}
			n.Idle(20 * time.Millisecond)
			edge = b.Ack + 65535
			b.Request(1 << 24)
			n.Reset()
			n.perSecond(2*time.Second, 20_000, func(i int) {
				b.Ack = b.Last
				b.Window = c.window(i)
				if e := b.Ack + uint32(b.Window); int32(e-edge) > 0 {
					edge = e
				}
				b.SendAt(b.Seq, wire.ACK, nil, wire.Options{})
			})
			n.cost()
			h.Want(50, time.Second)
			if beyond > 0 {
				t.Errorf("%d segments went beyond the window", beyond)
			}
			if n.Out > 3*n.In {
				t.Errorf("%d acknowledgements were answered by %d segments", n.In, n.Out)
			}
		})
	}
}

// Timestamps that jump, run backwards or echo what was never sent do not end or slow a connection of somebody else, and leave sane
// round-trip times in the attacker's own.
func TestTimestampGames(t *testing.T) {
	n := New(t, Config{})
	srv := n.Serve(backlog)
	h := n.Ask(5000)
	n.Idle(10 * time.Millisecond)
	srv.Keep = func(c *tcp.Conn) bool { return c.Tuple.RemoteAddr() == BotAddr(0) }
	b := n.Bots().Open(BotAddr(0), 65535, Usual)
	n.Idle(20 * time.Millisecond)
	rng := rand.New(rand.NewPCG(9, 1))
	n.Reset()
	b.TS = false
	n.perSecond(2*time.Second, 20_000, func(i int) {
		if i%100 == 0 {
			srv.Held[0].TryWrite(Content(0, 100)) //nolint:errcheck // it may be full
		}
		b.Ack = b.Last
		b.SendAt(b.Seq, wire.ACK, nil, wire.Options{Set: wire.OptTS, TSVal: uint32(i) * 0x7fffffff, TSEcr: rng.Uint32()})
	})
	n.cost()
	h.Want(50, time.Second)
	for _, c := range n.Victim.Conns() {
		if c.Remote == BotAddr(0) && (c.RTT < 0 || c.RTT > time.Minute || c.RTO < 0 || c.RTO > 3*time.Minute) {
			t.Errorf("round-trip time %v, RTO %v", c.RTT, c.RTO)
		}
	}
	srv.Held[0].Abort()
}

package attack

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// numbers is what the victim knows of a connection, as frames tell it.
type numbers struct {
	rcvNxt, sndNxt uint32
	tsVal          uint32 // last of the client
	window         uint32 // that the victim advertises
	scale          uint8
}

// watch follows the numbers of the chat.
func (n *Net) watch() *numbers {
	w := new(numbers)
	n.OnPath = func(toVictim bool, f []byte) [][]byte {
		if _, t, o, ok := Parse(f); ok && (t.DstPort == chatPort || t.SrcPort == chatPort) {
			if toVictim {
				if o.Set&wire.OptTS != 0 {
					w.tsVal = o.TSVal
				}
			} else {
				if t.Flags&wire.SYN != 0 {
					w.scale = o.WScale
				} else {
					w.window = uint32(t.Window) << w.scale
				}
				w.rcvNxt = t.Ack
				if end := t.Seq + uint32(len(t.Payload)); int32(end-w.sndNxt) > 0 || w.sndNxt == 0 {
					w.sndNxt = end
				}
			}
		}
		return [][]byte{f}
	}
	return w
}

// Somebody who knows the addresses and ports, and whose sequence numbers fall into the window, injects segments of every kind, 20 000
// per second. The connection lives, no byte is altered, and what it is answered is little (RFC 5961).
func TestBlindInjection(t *testing.T) {
	garbage := make([]byte, 100)
	for i := range garbage {
		garbage[i] = 0xee
	}
	for _, c := range []struct {
		name string
		// make sets flags, numbers and payload; r is random and falls into the window.
		make func(s *Segment, w *numbers, r uint32)
		// limited: the answers are challenges, at most two per second; else each batch may have one, and duplicates so many beside them.
		limited bool
	}{
		{"RST in window", func(s *Segment, w *numbers, r uint32) { s.Flags, s.Seq = wire.RST, w.rcvNxt+1+r }, true},
		{"RST, ACK in window", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack = wire.RST|wire.ACK, w.rcvNxt+1+r, w.sndNxt
		}, true},
		{"RST outside", func(s *Segment, w *numbers, r uint32) { s.Flags, s.Seq = wire.RST, w.rcvNxt-1-r }, true},
		{"SYN", func(s *Segment, w *numbers, r uint32) { s.Flags, s.Seq, s.Options = wire.SYN, w.rcvNxt+r, Usual }, true},
		{"SYN, ACK", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack = wire.SYN|wire.ACK, w.rcvNxt+r, w.sndNxt
		}, true},
		{"FIN, wrong ACK", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack = wire.FIN|wire.ACK, w.rcvNxt+r, w.sndNxt+1<<31
		}, true},
		{"FIN at the edge, wrong ACK", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack = wire.FIN|wire.ACK, w.rcvNxt, w.sndNxt+1+r
		}, true},
		{"data, wrong ACK", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack, s.Payload = wire.ACK|wire.PSH, w.rcvNxt+r%100, w.sndNxt+1<<31+r, garbage
		}, true},
		{"data without ACK", func(s *Segment, w *numbers, r uint32) { s.Flags, s.Seq, s.Payload = 0, w.rcvNxt, garbage }, true},
		{"old data", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack, s.Payload = wire.ACK, w.rcvNxt-100-r, w.sndNxt, garbage
		}, false},
		{"ACK of what was never sent", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack = wire.ACK, w.rcvNxt, w.sndNxt+1+r
		}, true},
		{"ACK of long ago", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack = wire.ACK, w.rcvNxt, w.sndNxt-1<<30-r
		}, true},
		{"timestamp of the future, wrong ACK", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack, s.Payload = wire.ACK, w.rcvNxt-50, w.sndNxt+1<<31, garbage
			s.Options = wire.Options{Set: wire.OptTS, TSVal: w.tsVal + 1<<30}
		}, true},
		{"timestamp of the past", func(s *Segment, w *numbers, r uint32) {
			s.Flags, s.Seq, s.Ack, s.Payload = wire.ACK, w.rcvNxt, w.sndNxt, garbage
			s.Options = wire.Options{Set: wire.OptTS, TSVal: w.tsVal - 10000 - r}
		}, false},
		{"no flags", func(s *Segment, w *numbers, r uint32) { s.Flags, s.Seq = 0, w.rcvNxt+r }, true},
		{"all flags", func(s *Segment, w *numbers, r uint32) { s.Flags, s.Seq = 0x1ff, w.rcvNxt+1+r }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New(t, Config{})
			n.Serve(backlog)
			h := n.Ask(5000)
			w := n.watch()
			chat := n.Chat()
			n.Idle(time.Second)
			n.Reset()
			before := n.Stats().TCP
			toClient := uint64(0)
			watch := n.OnPath
			n.OnPath = func(toVictim bool, f []byte) [][]byte {
				if _, t, _, ok := Parse(f); ok && t.SrcPort == chatPort && !toVictim && len(t.Payload) == 0 {
					toClient++ // the answers go to the client, whose address the attacker has stolen
				}
				return watch(toVictim, f)
			}
			rng := rand.New(rand.NewPCG(4, 1))
			const seconds = 3
			frames := 0
			n.perSecond(seconds*time.Second, 20_000, func(int) {
				s := Segment{Src: chat.ClientAddr(), DstPort: chatPort, TCP: wire.TCP{Window: 1}}
				c.make(&s, w, rng.Uint32N(min(w.window, 1<<15)-1))
				n.Inject(n.TCP(&s))
				frames++
			})
			n.cost()
			h.Want(100, time.Second)
			chat.Want(4 * time.Second)
			s := n.Stats().TCP
			t.Logf("%d acknowledgements to the client, %d challenges", toClient, s.ChallengeAcks-before.ChallengeAcks)
			// The chat itself costs at most one acknowledgement per line.
			limit := uint64(seconds * (100 + 2 + 100)) // 2 challenges, and 100 answers to what lies outside of the window
			if !c.limited {
				limit = seconds*1000 + (1+seconds)*tcp.DSACKsPerSecond
			}
			if toClient > limit+10 {
				t.Errorf("%d segments were answered %d times, want at most %d", frames, toClient, limit)
			}
			if n.MallocsPerTurn() > 1 {
				t.Errorf("%.2f allocations per turn", n.MallocsPerTurn())
			}
		})
	}
}

// A RST with the very sequence number that is expected ends a connection (RFC 9293, 3.10.7.4): a window of 2^16 needs 65 536 times as
// many tries as before RFC 5961. It must not end any other.
func TestExactReset(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(5000)
	chat := n.Chat()
	bots := n.Bots()
	b := bots.Open(BotAddr(1), 65535, Usual)
	n.Idle(100 * time.Millisecond)
	if bots.Up() != 1 {
		t.Fatal("not connected")
	}
	conns := n.Stats().TCP.Conns
	b.SendAt(b.Seq+1, wire.RST, nil, wire.Options{})
	n.Idle(5 * time.Millisecond)
	if n.Stats().TCP.EstabResets != 0 {
		t.Error("a RST beside the expected number ended the connection")
	}
	b.SendAt(b.Seq, wire.RST, nil, wire.Options{})
	n.Idle(5 * time.Millisecond)
	if s := n.Stats().TCP; s.EstabResets != 1 {
		t.Errorf("%d resets, %d connections of %d", s.EstabResets, s.Conns, conns)
	}
	n.Idle(time.Second)
	chat.Want(time.Second)
	h.Want(30, time.Second)
}

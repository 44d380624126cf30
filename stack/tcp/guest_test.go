package tcp

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// packets is a guest that sends packets of some size.
type packets struct {
	Guest
	fifo  *pmd.Fifo
	size  uint32
	n     int // that it has; -1: always more
	sent  int
	turns []uint32 // what each could send
}

func (p *packets) SendSome(most uint32) (sent uint32, left GuestLeft) {
	p.turns = append(p.turns, most)
	for p.n != 0 {
		if sent >= most && sent > 0 {
			return sent, GuestMore
		}
		if !p.fifo.Push(&pmd.Buf{}) {
			return sent, GuestFull
		}
		p.n--
		p.sent++
		sent += p.size + PacketCost
	}
	return sent, GuestEmpty
}

// F12: guests share the port as connections do: what a greedy one may put into FIFO and port is bounded by the backlog, and a light one, which
// becomes ready, goes before it. One that found no room keeps its turn.
func TestGuests(t *testing.T) {
	fifo := pmd.NewFifo(128)
	e := New(Config{}, Env{Fifo: fifo, Keeps: true}, 1e9)
	guest := func(n int, size uint32) *packets {
		p := &packets{fifo: fifo, size: size, n: n}
		p.Flow = p
		return p
	}
	greedy, light := guest(-1, 1480), guest(0, 200)
	e.QueueGuest(&greedy.Guest)
	e.QueueGuest(&greedy.Guest)
	e.Output()
	if most := (leastBacklog + 1480 + segCost - 1) / (1480 + segCost); greedy.sent != most || e.ready.n != 1 || !e.fullStop {
		t.Fatalf("%d packets in an empty port, want %d; %d flows queued", greedy.sent, most, e.ready.n)
	}
	for turn := range 100 { // each turn the port takes and completes one frame
		fifo.Drop(1)
		e.Begin(e.now.Add(12_000))
		e.complete()
		before := greedy.sent
		if turn%10 == 9 {
			light.n = 1
			e.QueueGuest(&light.Guest)
		}
		e.Output()
		if turn%10 == 9 && light.n != 0 {
			t.Errorf("turn %d: the light one waits, the greedy one has sent %d", turn, greedy.sent-before)
		}
		if n := fifo.Len(); n > 2*leastBacklog/1514 {
			t.Fatalf("turn %d: %d packets in the FIFO", turn, n)
		}
	}
	if greedy.sent < 90 {
		t.Errorf("the greedy one has sent %d packets", greedy.sent)
	}
	for _, most := range greedy.turns {
		if most > firstCredit {
			t.Errorf("a turn of %d bytes", most)
		}
	}
	// No room in the FIFO, whatever the backlog says.
	e.cfg.NoBacklogLimit = true
	e.Output()
	if fifo.Room() > 0 || !e.fullStop || e.ready.n != 1 || e.Stats.TxFull != 1 {
		t.Errorf("room for %d, %d flows queued, %d times full", fifo.Room(), e.ready.n, e.Stats.TxFull)
	}
	fifo.Drop(fifo.Len())
	greedy.n = 3
	e.Begin(e.now.Add(12_000))
	e.complete()
	e.Output()
	if greedy.n != 0 || e.ready.n != 0 || e.Busy() {
		t.Errorf("%d packets left, %d flows queued", greedy.n, e.ready.n)
	}
}

package attack

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// backlog is that of the server in these tests.
const backlog = 64

// perSecond makes the flood of n frames per second: inject is called with their numbers.
func (n *Net) perSecond(d time.Duration, rate int, inject func(i int)) {
	const every = time.Millisecond
	each, sent := max(rate/int(time.Second/every), 1), 0
	n.Flood(d, every, func(int) {
		for range each {
			inject(sent)
			sent++
		}
	})
}

// cost logs what an attack has cost.
func (n *Net) cost() {
	n.T.Helper()
	s := n.Stats()
	n.T.Logf("attack: %d frames, %d bytes; answers: %d frames, %d bytes; %d turns, %.2f allocations per turn; peak of streams %d bytes; %d connections; neighbours %+v",
		n.In, n.InBytes, n.Out, n.OutBytes, n.Turns, n.MallocsPerTurn(), n.Peak, s.TCP.Conns, s.Neigh)
}

// Segments of no connection, at 100 000 per second, on ports that listen and ports that do not: resets go out at a limited rate, and
// nothing is remembered.
func TestScan(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(20_000)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	rng := rand.New(rand.NewPCG(2, 1))
	kinds := []uint16{wire.SYN, wire.ACK, wire.FIN, wire.FIN | wire.PSH | wire.URG, 0, wire.SYN | wire.ACK, wire.RST, wire.ACK | wire.PSH}
	const seconds = 2
	n.perSecond(seconds*time.Second, 100_000, func(i int) {
		n.Inject(n.TCP(&Segment{Src: netip.AddrPortFrom(Outside(i/65536), 40_000), DstPort: max(uint16(i), 81), TCP: wire.TCP{
			Seq: rng.Uint32(), Ack: rng.Uint32(), Flags: kinds[i%len(kinds)], Window: 1024,
		}}))
	})
	n.cost()
	h.Want(40, time.Second)
	s := n.Stats()
	if limit := uint64(seconds+2) * tcp.ResetsPerSecond; n.Out > limit || s.TCP.OutRsts > limit {
		t.Errorf("%d answers, %d resets, want at most %d", n.Out, s.TCP.OutRsts, limit)
	}
	if s.TCP.ResetsLimited == 0 {
		t.Error("no reset was held back")
	}
	if s.TCP.Conns > 2 || n.MallocsPerTurn() > 1 {
		t.Errorf("%d connections, %.1f allocations per turn", s.TCP.Conns, n.MallocsPerTurn())
	}
}

// UDP datagrams and unknown protocols, at 100 000 per second: ICMP errors go out at a limited rate.
func TestICMPErrorsAreLimited(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(20_000)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	n.perSecond(2*time.Second, 100_000, func(i int) {
		n.Inject(n.Proto(Outside(i%1000), []uint8{wire.ProtoUDP, 132, 50}[i%3], []byte{0x30, 0x39, byte(i >> 8), byte(i), 0, 12, 0, 0, 1, 2, 3, 4}))
	})
	n.cost()
	h.Want(40, time.Second)
	if n.Out > 2*1000+1000 {
		t.Errorf("%d answers", n.Out)
	}
}

// Acknowledgements of connections that exist nowhere, for the listener's port: each could be the third segment of a handshake.
func TestACKFlood(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(20_000)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	rng := rand.New(rand.NewPCG(3, 1))
	n.perSecond(2*time.Second, 100_000, func(i int) {
		src := netip.AddrPortFrom(Outside(rng.IntN(1<<16)), uint16(rng.Uint32()))
		n.Inject(n.TCP(&Segment{Src: src, TCP: wire.TCP{Seq: rng.Uint32(), Ack: rng.Uint32(), Flags: wire.ACK, Window: 1024, Payload: make([]byte, i%3*100)}}))
	})
	n.cost()
	h.Want(40, time.Second)
	if limit := uint64(4) * tcp.ResetsPerSecond; n.Out > limit {
		t.Errorf("%d answers, want at most %d", n.Out, limit)
	}
	if s := n.Stats(); s.TCP.Conns > 2 || n.Peak > 1<<20 {
		t.Errorf("%d connections, %d bytes", s.TCP.Conns, n.Peak)
	}
}

// ARP requests for the victim from ten thousand senders, replies that nobody asked for, and others' requests: the cache stays small, the
// neighbours in use stay known, and each request is answered once.
func TestARPFlood(t *testing.T) {
	n := New(t, Config{})
	n.Serve(backlog)
	h := n.Ask(20_000)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	before := n.Stats()
	requests := uint64(0)
	n.perSecond(3*time.Second, 20_000, func(i int) {
		who, mac := Neighbour(i%10_000), wire.MAC{2, 1, 0, 0, byte(i >> 8), byte(i)}
		switch i % 3 {
		case 0:
			requests++
			n.Inject(ARP(wire.ARPRequest, mac, who, wire.MAC{}, VictimAddr))
		case 1:
			n.Inject(ARP(wire.ARPReply, mac, who, n.macs[0], VictimAddr))
		case 2:
			n.Inject(ARP(wire.ARPRequest, mac, who, wire.MAC{}, Neighbour(i+1)))
		}
	})
	n.cost()
	h.Want(80, time.Second)
	s := n.Stats()
	if s.Neigh.Entries > 1024 {
		t.Errorf("%d entries", s.Neigh.Entries)
	}
	if got := s.Neigh.Replies - before.Neigh.Replies; got > requests+10 {
		t.Errorf("%d requests were answered %d times", requests, got)
	}
	if got := s.Neigh.Requests - before.Neigh.Requests; got > 20 {
		t.Errorf("the victim asked %d times", got)
	}
}

// SYNs that seem to come from neighbours that do not exist make the victim ask for ten thousand link addresses. A client that is new on
// the link is still found.
func TestResolutionExhaustion(t *testing.T) {
	n := New(t, Config{Stack: stack.Config{}})
	n.Serve(backlog)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	before := n.Stats()
	var h *Honest
	const seconds = 4
	n.perSecond(seconds*time.Second, 20_000, func(i int) {
		n.Inject(n.TCP(&Segment{Src: netip.AddrPortFrom(Neighbour(i%10_000), 4000), DstPort: 9, TCP: wire.TCP{Seq: 1, Flags: wire.SYN, Window: 1024}, Options: Usual}))
		if i == 20_000 {
			h = n.Ask(20_000)
		}
	})
	n.cost()
	h.Want(50, time.Second)
	s := n.Stats()
	if s.Neigh.Entries > 1024 {
		t.Errorf("%d entries", s.Neigh.Entries)
	}
	// At most a request per second for each entry that waits.
	if got := s.Neigh.Requests - before.Neigh.Requests; got > seconds*1024+1024 {
		t.Errorf("the victim asked %d times", got)
	}
}

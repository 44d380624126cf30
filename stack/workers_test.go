package stack_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// twoStacks are joined by a memlink on virtual time.
type twoStacks struct {
	t     *testing.T
	clock *ticks
	s     [2]*stack.Stack
	arena *mem.Arena
}

func newTwoStacks(t *testing.T, link memlink.Config, workers [2]int) *twoStacks {
	t.Helper()
	w := &twoStacks{t: t, clock: &ticks{1e9}}
	link.Now, link.Virtual = w.clock.Now, true
	a, b, err := memlink.New(link)
	if err != nil {
		t.Fatal(err)
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	w.arena = mem.NewHeapArena(budget)
	for i, p := range []pmd.Port{a, b} {
		w.s[i], err = stack.New(stack.Config{
			Port: p, Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+1))}, Clock: w.clock, Seed: uint64(i + 1),
			Workers: make([]stack.WorkerConfig, workers[i]), Arena: w.arena,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *twoStacks) close() {
	w.t.Helper()
	for _, s := range w.s {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	}
	if err := w.arena.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *twoStacks) until(done func() bool) {
	w.t.Helper()
	for end := w.clock.now.Add(10 * time.Minute); !done(); {
		busy := w.s[0].Turn()
		if busy = w.s[1].Turn() || busy; busy {
			w.clock.now += 1000
			continue
		}
		if w.clock.now > end {
			w.t.Fatal("not done within ten minutes")
		}
		w.clock.now = max(min(w.s[0].Deadline(), w.s[1].Deadline()), w.clock.now+1)
	}
}

// rss is the steering of a NIC: the Toeplitz hash of a TCP segment picks an entry of the table.
func rss(t *testing.T, queues int) memlink.Config {
	hash, err := wire.NewToeplitz(wire.RSSKey)
	if err != nil {
		t.Fatal(err)
	}
	table := make([]uint16, 64)
	for i := range table {
		table[i] = uint16(i*7) % uint16(queues)
	}
	return memlink.Config{Queues: queues, RSSKey: wire.RSSKey, RSSTable: table, Steer: func(f []byte) (uint32, int) {
		var p wire.Packet
		if wire.Parse(f, &p, true) != wire.DropNone || p.EtherType != wire.EtherTypeIPv4 || p.Proto != wire.ProtoTCP || len(p.Payload) < 4 {
			return 0, 0
		}
		l4 := p.Payload
		h := hash.Hash(p.Src, p.Dst, uint16(l4[0])<<8|uint16(l4[1]), uint16(l4[2])<<8|uint16(l4[3]))
		return h, int(table[h%64])
	}}
}

// Many connections between stacks with several workers: over one queue (software dispatch), over as many queues without RSS, and over
// queues with RSS. Every flow lives on one worker: a second one that saw a segment of it would refuse it.
func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		name    string
		link    memlink.Config
		workers [2]int
		rss     bool
	}{
		{"one queue, 2 and 1 workers", memlink.Config{}, [2]int{2, 1}, false},
		{"one queue, 2 and 3 workers", memlink.Config{}, [2]int{2, 3}, false},
		{"two queues, 2 and 3 workers", memlink.Config{Queues: 2}, [2]int{2, 3}, false},
		{"two queues with RSS", rss(t, 2), [2]int{2, 2}, true},
		{"three queues with RSS", rss(t, 3), [2]int{3, 3}, true},
		{"two queues with RSS, more workers", rss(t, 2), [2]int{4, 2}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTwoStacks(t, c.link, c.workers)
			defer w.close()
			const conns, size = 60, 30_000
			var ends []*end
			for i, s := range w.s { // half of them are opened by either end
				l, err := s.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80), conns)
				if err != nil {
					t.Fatal(err)
				}
				for range conns / 2 {
					c, err := w.s[1-i].Connect(netip.AddrPort{}, l.Addr())
					if err != nil {
						t.Fatal(err)
					}
					ends = append(ends, &end{c: c, send: size, want: size})
				}
				accepted := 0
				w.until(func() bool {
					for {
						c, err := l.TryAccept()
						if err != nil {
							return accepted == conns/2
						}
						accepted++
						ends = append(ends, &end{c: c, send: size, want: size})
					}
				})
			}
			buf := make([]byte, 8192)
			w.until(func() bool {
				done := true
				for _, e := range ends {
					e.step(t, buf)
					if e.bad {
						t.Fatalf("a connection ended with %v", e.c.Err())
					}
					done = done && e.eof
				}
				return done
			})
			checkWorkers(t, w, c.rss)
			for _, e := range ends {
				e.c.Close()
			}
		})
	}
}

func checkWorkers(t *testing.T, w *twoStacks, rss bool) {
	t.Helper()
	for i, s := range w.s {
		for _, st := range s.Stats() {
			if st.TCP.NoPorts != 0 || st.TCP.OutRsts != 0 || st.TCP.OutOfOrder != 0 || st.TCP.RetransSegs != 0 {
				t.Errorf("stack %d worker %d: a flow's frames went astray: %d refused, %d resets, %d out of order, %d sent again", i, st.Index,
					st.TCP.NoPorts, st.TCP.OutRsts, st.TCP.OutOfOrder, st.TCP.RetransSegs)
			}
			if rss && st.L3.HandedOver != 0 {
				t.Errorf("stack %d worker %d: %d frames handed over, though the port steers", i, st.Index, st.L3.HandedOver)
			}
			if st.TCP.SegsIn == 0 || st.TCP.ActiveOpens == 0 {
				t.Errorf("stack %d worker %d: %d segments, %d active opens: it has no share", i, st.Index, st.TCP.SegsIn, st.TCP.ActiveOpens)
			}

			if st.Neigh.Entries != 1 {
				t.Errorf("stack %d worker %d knows %d neighbours, want 1", i, st.Index, st.Neigh.Entries)
			}
		}
	}
}

// One peer, several workers behind one queue: ARP reaches all, a ping is answered once, and an ICMP error reaches the worker of the flow
// that it quotes.
func TestWorkersARPAndICMP(t *testing.T) {
	for _, n := range []int{2, 3} {
		p := tcptest.New(t, tcptest.Config{Stack: stack.Config{Workers: make([]stack.WorkerConfig, n)}})
		ping(t, p)
		peer, his := p.MACs()
		p.SendFrame(p.ARP(wire.ARPRequest, peer, tcptest.PeerAddr, wire.MAC{}, tcptest.StackAddr))
		fr := &frames{peer, his}
		seen := map[int]bool{}
		for range 4 * n {
			f := p.Connect()
			f.Expect("S 0:0(0)")
			seen[f.Info().Worker] = true
			quote := make([]byte, 4+wire.IPv4Len+8)
			wire.PutIPv4(quote[4:], wire.AddrFrom(tcptest.StackAddr), wire.AddrFrom(tcptest.PeerAddr), wire.ProtoTCP, 0, 64, 0, 40)
			l4 := quote[4+wire.IPv4Len:]
			l4[0], l4[1], l4[3] = byte(f.StackPort>>8), byte(f.StackPort), 80
			l4[4], l4[5], l4[6], l4[7] = byte(f.IRS>>24), byte(f.IRS>>16), byte(f.IRS>>8), byte(f.IRS)
			p.SendFrame(fr.icmp(wire.ICMPUnreachable, wire.ICMPPortUnreachable, quote))
			if f.Conn.Err() != tcp.Refused {
				t.Errorf("%d workers: error %v after an ICMP error, want refused", n, f.Conn.Err())
			}
		}
		if len(seen) != n {
			t.Errorf("connections on %d workers of %d", len(seen), n)
		}
		for _, s := range p.Stack.Stats() {
			if s.Neigh.Entries != 1 || s.Neigh.Requests > 4 {
				t.Errorf("worker %d of %d: %d neighbours after %d requests", s.Index, n, s.Neigh.Entries, s.Neigh.Requests)
			}
		}
	}
}

// A port whose queues nobody would poll is refused.
func TestMoreQueuesThanWorkers(t *testing.T) {
	a, b, err := memlink.New(memlink.Config{Queues: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stack.New(stack.Config{Port: a, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}})
	if err == nil || !strings.Contains(err.Error(), "2 queues") {
		t.Errorf("error %v", err)
	}
	a.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

package stack_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/udp"
)

// The end of the stack ends its endpoints: calls return net.ErrClosed, what waits to be read can be read, and nothing leaks.
func TestUDPStackClose(t *testing.T) {
	w := newTwoStacks(t, memlink.Config{}, [2]int{2, 1})
	w.learn(t)
	var eps []*udp.Endpoint
	for _, s := range w.s {
		ep, err := s.ListenUDP(netip.MustParseAddrPort("0.0.0.0:53"), 0)
		if err != nil {
			t.Fatal(err)
		}
		eps = append(eps, ep)
	}
	if err := eps[1].TryWrite([]byte("before"), netip.MustParseAddrPort("10.0.0.1:53")); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return eps[0].Info().In == 1 })
	if err := eps[0].TryWrite([]byte("unsent"), netip.MustParseAddrPort("10.0.0.2:53")); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.s {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wantRead(t, eps[0], "before", "10.0.0.2:53")
	if _, _, _, err := eps[0].TryRead(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if err := eps[0].TryWrite(nil, netip.MustParseAddrPort("10.0.0.2:9")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	for i, s := range w.s {
		s.CloseUDP(eps[i])
	}
	if err := w.arena.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.s[0].ListenUDP(netip.MustParseAddrPort("0.0.0.0:1"), 0); !errors.Is(err, stack.ErrClosed) {
		t.Errorf("bind: %v", err)
	}
}

// learn has all workers of both stacks learn each other's link addresses: few packets wait for an unknown one.
func (w *twoStacks) learn(t *testing.T) {
	for i, s := range w.s {
		for range s.Workers() {
			to := w.s[1-i].Addrs()[0].Addr()
			ep, err := s.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(to, 7))
			if err != nil {
				t.Fatal(err)
			}
			if err := ep.TryWrite(nil, netip.AddrPort{}); err != nil {
				t.Fatal(err)
			}
			w.until(func() bool { return ep.Info().Out == 1 })
			w.until(func() bool { _, _, _, err := ep.TryRead(nil); return err == syscall.ECONNREFUSED })
			s.CloseUDP(ep)
			w.clock.now += 2e6 // the limit of ICMP errors
		}
	}
}

// Several workers, over one queue and over many: whichever worker gets a datagram delivers it; each flow's stay in order.
func TestUDPWorkers(t *testing.T) {
	for _, c := range []struct {
		name    string
		link    memlink.Config
		workers [2]int
	}{
		{"one queue", memlink.Config{}, [2]int{3, 2}},
		{"three queues", memlink.Config{Queues: 3}, [2]int{3, 3}},
		{"RSS", rss(t, 2), [2]int{2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTwoStacks(t, c.link, c.workers)
			defer w.close()
			server, err := w.s[1].ListenUDP(netip.MustParseAddrPort("10.0.0.2:53"), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.s[1].CloseUDP(server)
			var clients []*udp.Endpoint
			for range 12 {
				c, err := w.s[0].DialUDP(netip.AddrPort{}, server.Local())
				if err != nil {
					t.Fatal(err)
				}
				defer w.s[0].CloseUDP(c)
				clients = append(clients, c)
			}
			asked, answered := make([]int, len(clients)), make([]int, len(clients))
			buf := make([]byte, 100)
			w.learn(t)
			w.until(func() bool {
				done := true
				for i, c := range clients {
					if asked[i] == answered[i] && asked[i] < 20 {
						if err := c.TryWrite([]byte{byte(i), byte(asked[i])}, netip.AddrPort{}); err != nil {
							t.Fatal(err)
						}
						asked[i]++
					}
					if n, _, from, err := c.TryRead(buf); err == nil {
						if n != 2 || int(buf[0]) != i || int(buf[1]) != answered[i] || from != server.Local() {
							t.Fatalf("client %d got %v from %v", i, buf[:n], from)
						}
						answered[i]++
					}
					done = done && answered[i] == 20
				}
				for {
					n, _, from, err := server.TryRead(buf)
					if err != nil {
						return done
					}
					if err := server.TryWrite(buf[:n], from); err != nil {
						t.Fatal(err)
					}
				}
			})
			homes := map[int]bool{}
			for _, i := range w.s[0].UDPSockets() {
				homes[i.Worker] = true
			}
			if len(homes) != c.workers[0] {
				t.Errorf("endpoints at home on %d workers of %d", len(homes), c.workers[0])
			}
		})
	}
}

// Sending and receiving allocate nothing.
func TestUDPAllocs(t *testing.T) {
	w := newTwoStacks(t, memlink.Config{}, [2]int{1, 1})
	defer w.close()
	server, err := w.s[1].ListenUDP(netip.MustParseAddrPort("10.0.0.2:53"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.s[1].CloseUDP(server)
	client, err := w.s[0].DialUDP(netip.AddrPort{}, server.Local())
	if err != nil {
		t.Fatal(err)
	}
	defer w.s[0].CloseUDP(client)
	buf := make([]byte, 1000)
	turn := func() {
		w.s[0].Turn()
		w.s[1].Turn()
		w.clock.now += 1000
	}
	trip := func() {
		if err := client.TryWrite(buf, netip.AddrPort{}); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, from, err := server.TryRead(buf)
			if err == nil {
				if err := server.TryWrite(buf[:n], from); err != nil {
					t.Fatal(err)
				}
				break
			}
			turn()
		}
		for {
			if _, _, _, err := client.TryRead(buf); err == nil {
				return
			}
			turn()
		}
	}
	for range 100 {
		trip()
	}
	if n := testing.AllocsPerRun(500, trip); n != 0 {
		t.Errorf("%v allocations per round trip", n)
	}
}

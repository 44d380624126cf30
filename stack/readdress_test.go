package stack_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// An address that goes while it is in use takes its connections and sockets with it, on all workers; others stay. The new one works.
func TestReaddress(t *testing.T) {
	w := newTwoStacks(t, memlink.Config{}, [2]int{3, 1})
	defer w.close()
	s := w.s[0]
	lease := func(addr string) *stack.Binding {
		return &stack.Binding{Addr: netip.MustParsePrefix(addr), Routes: []stack.Route{
			{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("10.0.0.2")},
		}}
	}
	first, second := lease("10.0.0.50/24"), lease("10.0.0.51/24")
	if err := s.Readdress(nil, first); err != nil {
		t.Fatal(err)
	}
	ln, err := w.s[1].Listen(netip.MustParseAddrPort("10.0.0.2:80"), 100)
	if err != nil {
		t.Fatal(err)
	}
	w.learn(t)
	open := func(from string) *tcp.Conn {
		c, err := s.Connect(netip.MustParseAddrPort(from), ln.Addr())
		if err != nil {
			t.Fatal(err)
		}
		w.until(c.Up)
		return c
	}
	var leased []*tcp.Conn
	for range 9 {
		leased = append(leased, open("10.0.0.50:0"))
	}
	static := open("10.0.0.1:0")
	bound, err := s.DialUDP(netip.MustParseAddrPort("10.0.0.50:0"), netip.MustParseAddrPort("10.0.0.2:9"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.CloseUDP(bound)
	any, err := s.ListenUDP(netip.MustParseAddrPort("0.0.0.0:0"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.CloseUDP(any)
	if err := s.Readdress(first, second); err != nil {
		t.Fatal(err)
	}
	for _, c := range leased {
		if c.Err() != tcp.Aborted {
			t.Errorf("a connection from the old address has error %v", c.Err())
		}
		c.Close()
	}
	if static.Err() != tcp.OK {
		t.Errorf("another connection has error %v", static.Err())
	}
	if _, _, _, err := bound.TryRead(nil); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("a socket of the old address: %v", err)
	}
	wantNothing(t, any)
	c := open("10.0.0.51:0")
	if r := s.Routes(); len(r) != 1 {
		t.Errorf("routes %v", r)
	}
	c.Close()
	static.Close()
	// What cannot be used changes nothing.
	if err := s.Readdress(second, &stack.Binding{Addr: netip.MustParsePrefix("10.0.0.1/24")}); err == nil {
		t.Error("an address was taken twice")
	}
	if err := s.Readdress(first, nil); err == nil {
		t.Error("an address was removed twice")
	}
	if a := s.Addrs(); len(a) != 2 || a[1] != second.Addr {
		t.Errorf("addresses %v", a)
	}
	if err := s.Readdress(second, nil); err != nil {
		t.Fatal(err)
	}
	if r := s.Routes(); len(r) != 0 {
		t.Errorf("routes %v", r)
	}
}

// A stack may begin without an address; then it has none until it gets one.
func TestDynamic(t *testing.T) {
	for _, dynamic := range []bool{false, true} {
		a, b, err := memlink.New(memlink.Config{Virtual: true, Now: (&ticks{1e9}).Now})
		if err != nil {
			t.Fatal(err)
		}
		s, err := stack.New(stack.Config{Port: a, Dynamic: dynamic, Clock: &ticks{1e9}, Arena: mem.NewHeapArena(new(mem.Budget))})
		if (err == nil) != dynamic {
			t.Fatalf("dynamic %v: %v", dynamic, err)
		}
		if err != nil {
			a.Close()
			b.Close()
			continue
		}
		if _, err := s.Connect(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:80")); err == nil {
			t.Error("connected without an address")
		}
		if err := s.Readdress(nil, &stack.Binding{Addr: netip.MustParsePrefix("10.0.0.1/24")}); err != nil {
			t.Error(err)
		}
		c, err := s.Connect(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:80"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		c.Close()
		b.Close()
	}
}

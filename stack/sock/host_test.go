package sock_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// Two stacks of one host with a peer each: the longest prefix decides where a dial goes, and a listener hears both.
func TestHost(t *testing.T) {
	make := func(p *memlink.Port, addr, gw string) *stack.Stack {
		c := stack.Config{Port: p, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}
		if gw != "" {
			c.Gateway = netip.MustParseAddr(gw)
		}
		s, err := stack.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	a1, b1, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a2, b2, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s1, s2 := make(a1, "10.0.0.1/16", "10.0.0.2"), make(a2, "10.0.1.1/24", "")
	p1, p2 := make(b1, "10.0.0.2/16", ""), make(b2, "10.0.1.2/24", "")
	h := sock.Host{Stacks: []*stack.Stack{s1, s2}}
	for dst, want := range map[string]*stack.Stack{
		"10.0.0.2": s1, "10.0.1.2": s2, "10.0.2.2": s1, "192.0.2.1": s1, // by the gateway
		"10.0.1.1":    s1, // s2 does not reach itself; s1's prefix covers it
		"2001:db8::1": nil,
	} {
		if got := h.Stack(netip.MustParseAddr(dst)); got != want {
			t.Errorf("to %s over the wrong stack", dst)
		}
	}
	ln, err := h.Listen("tcp", netip.MustParseAddrPort("0.0.0.0:80"), func(*stack.Stack) sock.ListenConfig { return sock.ListenConfig{} })
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		s  *stack.Stack
		to string
	}{{p1, "10.0.0.1:80"}, {p2, "10.0.1.1:80"}} {
		d := sock.Dialer{Stack: x.s}
		c, err := d.Dial("tcp", x.to)
		if err != nil {
			t.Fatal(err)
		}
		acc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if acc.LocalAddr().String() != x.to {
			t.Errorf("accepted at %v, want %s", acc.LocalAddr(), x.to)
		}
		c.Close()
		acc.Close()
	}
	r := async(func() (int, error) { _, err := ln.Accept(); return 0, err })
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if got := wait(t, r); !errors.Is(got.err, net.ErrClosed) {
		t.Errorf("accept: %v", got.err)
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	// TCP and UDP to the peer of each stack.
	for _, x := range []struct {
		s  *stack.Stack
		to string
	}{{p1, "10.0.0.2:7"}, {p2, "10.0.1.2:7"}} {
		l, err := sock.Listen(x.s, "tcp", x.to)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, _ = io.Copy(c, c)
				c.Close()
			}
		}()
		pc, err := sock.ListenPacket(x.s, "udp", x.to)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			b := [10]byte{}
			n, from, err := pc.ReadFrom(b[:])
			if err == nil {
				_, _ = pc.WriteTo(b[:n], from)
			}
		}()
		for _, network := range []string{"tcp", "udp"} {
			c, err := h.Dial(network, x.to)
			if err != nil {
				t.Fatal(err)
			}
			b := [3]byte{}
			if _, err := c.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, b[:]); err != nil || string(b[:]) != "abc" {
				t.Errorf("%s %s: %q, %v", network, x.to, b[:], err)
			}
			c.Close()
		}
		l.Close()
		pc.Close()
	}
	if _, err := h.Dial("tcp", "[2001:db8::1]:80"); err == nil {
		t.Error("dialled without a route")
	}
	for _, bad := range []string{"0.0.0.0:0", "10.9.9.9:80"} {
		if l, err := h.Listen("tcp", netip.MustParseAddrPort(bad), func(*stack.Stack) sock.ListenConfig { return sock.ListenConfig{} }); err == nil {
			t.Errorf("listens on %s", bad)
			l.Close()
		}
	}
}

package sock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// pair6 makes two stacks with an address of each family.
func pair6(t testing.TB, cfg stack.Config) (a, b *stack.Stack) {
	t.Helper()
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	start := func(p *memlink.Port, addrs ...string) *stack.Stack {
		c := cfg
		c.Port = p
		for _, x := range addrs {
			c.Addrs = append(c.Addrs, netip.MustParsePrefix(x))
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
	return start(pa, "10.0.0.1/24", "2001:db8::1/64"), start(pb, "10.0.0.2/24", "2001:db8::2/64")
}

// linkLocal is the stack's link-local address.
func linkLocal(t testing.TB, s *stack.Stack) netip.Addr {
	t.Helper()
	for _, a := range s.Addrs() {
		if a.Addr().IsLinkLocalUnicast() {
			return a.Addr()
		}
	}
	t.Fatal("no link-local address")
	return netip.Addr{}
}

func TestConn6(t *testing.T) {
	for name, workers := range map[string]int{"one worker": 1, "two workers": 2} {
		t.Run(name, func(t *testing.T) {
			sa, sb := pair6(t, stack.Config{Workers: make([]stack.WorkerConfig, workers), DADTransmits: -1})
			ln, err := sock.Listen(sb, "tcp6", "[2001:db8::2]:80")
			if err != nil {
				t.Fatal(err)
			}
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				d := sock.Dialer{Stack: sa}
				if c1, err = d.DialContext(context.Background(), "tcp", "[2001:db8::2]:80"); err != nil {
					return nil, nil, nil, err
				}
				if c2, err = ln.Accept(); err != nil {
					return nil, nil, nil, err
				}
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
	}
}

// One listener hears both families, and says of each connection what family it has.
func TestDualStack(t *testing.T) {
	sa, sb := pair6(t, stack.Config{DADTransmits: -1})
	ln, err := sock.Listen(sb, "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ln.Addr().String() != "[::]:80" {
		t.Errorf("listens on %v", ln.Addr())
	}
	ll := linkLocal(t, sb)
	zone := sa.Port().Info().Name
	for dst, want := range map[string]string{
		"10.0.0.2:80": "10.0.0.1", "[2001:db8::2]:80": "2001:db8::1", "[" + ll.String() + "]:80": linkLocal(t, sa).String(),
		"[" + ll.String() + "%" + zone + "]:80": linkLocal(t, sa).String(),
	} {
		d := sock.Dialer{Stack: sa}
		c, err := d.Dial("tcp", dst)
		if err != nil {
			t.Fatalf("%s: %v", dst, err)
		}
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		from := s.RemoteAddr().(*net.TCPAddr)
		if from.IP.String() != want || (from.Zone != "") != from.IP.IsLinkLocalUnicast() || from.Zone != "" && from.Zone != sb.Port().Info().Name {
			t.Errorf("%s: from %v, want %s", dst, from, want)
		}
		go func() { _, _ = c.Write([]byte("hello")); c.Close() }()
		if b, err := io.ReadAll(s); string(b) != "hello" {
			t.Errorf("%s: %q, %v", dst, b, err)
		}
		s.Close()
	}
	d := sock.Dialer{Stack: sa}
	if _, err := d.Dial("tcp", "["+ll.String()+"%elsewhere]:80"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("over a link that is not there: %v", err)
	}
	for network, address := range map[string]string{"tcp4": "[2001:db8::2]:80", "tcp6": "10.0.0.2:80"} {
		if _, err := d.Dial(network, address); err == nil {
			t.Errorf("%s to %s", network, address)
		}
	}
}

// Who dials while the stack still verifies its addresses waits for them (RFC 4862, 5.4), at most as long as the context lasts.
func TestDialWhileTentative(t *testing.T) {
	sa, sb := pair6(t, stack.Config{})
	ln, err := sock.Listen(sb, "tcp6", "[2001:db8::2]:80")
	if err != nil {
		t.Fatalf("listening at a tentative address: %v", err)
	}
	defer ln.Close()
	d := sock.Dialer{Stack: sa}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := d.DialContext(ctx, "tcp", "[2001:db8::2]:80"); !errors.Is(err, context.DeadlineExceeded) {
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("for 10 ms: %v", err)
		}
	}
	c, err := d.Dial("tcp", "[2001:db8::2]:80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

package sock_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// pair makes two stacks joined by a clean link in memory; the test fails if a buffer leaks.
func pair(t testing.TB, cfg stack.Config) (a, b *stack.Stack) {
	t.Helper()
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	make := func(p *memlink.Port, addr string) *stack.Stack {
		c := cfg
		c.Port, c.Addrs = p, []netip.Prefix{netip.MustParsePrefix(addr)}
		s, err := stack.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b = make(pa, "10.0.0.1/24"), make(pb, "10.0.0.2/24")
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

func TestConn(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  stack.Config
	}{
		{"adaptive", stack.Config{}},
		{"two workers", stack.Config{Workers: make([]stack.WorkerConfig, 2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sa, sb := pair(t, c.cfg)
			ln, err := sock.Listen(sb, "tcp", "10.0.0.2:80")
			if err != nil {
				t.Fatal(err)
			}
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				d := sock.Dialer{Stack: sa}
				if c1, err = d.DialContext(context.Background(), "tcp", "10.0.0.2:80"); err != nil {
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

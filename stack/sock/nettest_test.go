package sock_test

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// pair makes two stacks joined by a clean link in memory; the test fails if a buffer leaks.
func pair(t testing.TB, cfg stack.Config) (a, b *stack.Stack) {
	t.Helper()
	return pairOn(t, memlink.Config{}, cfg, cfg)
}

// pairOn is pair over a link, with stacks of their own configurations.
func pairOn(t testing.TB, link memlink.Config, ca, cb stack.Config) (a, b *stack.Stack) {
	t.Helper()
	pa, pb, err := memlink.New(link)
	if err != nil {
		t.Fatal(err)
	}
	make := func(c stack.Config, p *memlink.Port, addr string) *stack.Stack {
		c.Port, c.Addrs = p, []netip.Prefix{netip.MustParsePrefix(addr)}
		s, err := stack.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b = make(ca, pa, "10.0.0.1/24"), make(cb, pb, "10.0.0.2/24")
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
	two := stack.Config{Workers: make([]stack.WorkerConfig, 2)}
	spin := stack.Config{Workers: []stack.WorkerConfig{{Poll: stack.Spin, Core: 0}}}
	bad := memlink.Path{Loss: memlink.Loss{Random: 5_000_000}, Duplicate: 20_000_000, Corrupt: 2_000_000, Reorder: 50_000_000, ReorderDelay: 300 * time.Microsecond, Delay: 200 * time.Microsecond}
	for _, c := range []struct {
		name   string
		link   memlink.Config
		ca, cb stack.Config
	}{
		{name: "adaptive"},
		{name: "two workers", ca: two, cb: two},
		{name: "spinning", ca: spin},
		{name: "lossy", link: memlink.Config{AtoB: bad, BtoA: bad, Seed: 1, Now: stack.Monotonic{}.Now}},
		{name: "tiny MTU", link: memlink.Config{MTU: 128}, cb: two},
		{name: "small buffers", ca: small, cb: small},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.ca.Workers) == 1 && runtime.NumCPU() < 2 {
				t.Skip("a spinning worker wants a core of its own, and there is one only")
			}
			sa, sb := pairOn(t, c.link, c.ca, c.cb)
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

var small = stack.Config{TCP: tcp.Config{RecvBuffer: 4096, SendBuffer: 4096}}

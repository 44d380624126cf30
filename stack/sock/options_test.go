package sock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Connections begin with net's defaults, and with what Control says.
func TestOptions(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	info := func(c net.Conn) tcp.Info {
		t.Helper()
		return must(c.(*sock.Conn).Info())
	}
	lc := sock.ListenConfig{Stack: sb, Control: func(network, address string, o *sock.Options) error {
		if network != "tcp" || address != ":80" || !o.NoDelay || !o.KeepAlive.Enable {
			t.Errorf("%s %s %+v", network, address, o)
		}
		o.Congestion, o.Pacing, o.Recovery, o.WriteBuffer = "bbr", "edt", "btree", 30_000
		return nil
	}}
	ln, err := lc.Listen(t.Context(), "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := sock.Dialer{Stack: sa, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Hour, Interval: -1, Count: 3}}
	d.Control = func(network, address string, o *sock.Options) error {
		if address != "10.0.0.2:80" || o.KeepAlive.Idle != time.Hour {
			t.Errorf("%s %s %+v", network, address, o)
		}
		o.Congestion, o.MaxPacingRate, o.ReadBuffer = "reno", 1<<20, 50_000
		return nil
	}
	c := must(d.Dial("tcp", "10.0.0.2:80"))
	s := must(ln.Accept())
	defer c.Close()
	defer s.Close()
	if i := info(c); i.Cong != "reno" || i.Options != tcp.OptNoDelay|tcp.OptKeepalive|tcp.OptAutoCork || i.SendRate == 0 || i.MaxRate != 1<<20 || i.RcvBuf != 50_000 || !strings.HasPrefix(i.Timer, "keepalive") || i.TimerIn < time.Minute {
		t.Errorf("client %+v", i)
	}
	if i := info(s); i.Cong != "bbr" || i.SndBuf != 30_000 || i.Timer != "keepalive" || i.TimerIn > 15*time.Second {
		t.Errorf("server %+v", i)
	}
	broken := errors.New("broken")
	d.Control = func(string, string, *sock.Options) error { return broken }
	if _, err := d.Dial("tcp", "10.0.0.2:80"); !errors.Is(err, broken) {
		t.Errorf("dial: %v", err)
	}
	lc.Control = func(string, string, *sock.Options) error { return broken }
	if _, err := lc.Listen(t.Context(), "tcp", ":81"); !errors.Is(err, broken) {
		t.Errorf("listen: %v", err)
	}
	d.Control = func(_, _ string, o *sock.Options) error { o.Congestion = "none such"; return nil }
	if _, err := d.Dial("tcp", "10.0.0.2:80"); err == nil || !strings.Contains(err.Error(), `"none such"`) {
		t.Errorf("dial: %v", err)
	}
	plain := sock.Dialer{Stack: sa, KeepAlive: -1}
	c2 := must(plain.Dial("tcp", "10.0.0.2:80"))
	defer c2.Close()
	if i := info(c2); i.Timer != "" {
		t.Errorf("timer %q without keepalive", i.Timer)
	}
}

// TTL and DiffServ field, from the beginning and later; what they do is tested in package tcp.
func TestDiffServ(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	ln := must(sock.Listen(sb, "tcp", ":80"))
	defer ln.Close()
	d := sock.Dialer{Stack: sa, Control: func(_, _ string, o *sock.Options) error {
		o.TTL, o.TOS = 9, 0xb8
		return nil
	}}
	c := must(d.Dial("tcp", "10.0.0.2:80")).(*sock.Conn)
	if s := c.TCP().Tuned(); s.TTL != 9 || s.TOS != 0xb8 {
		t.Errorf("begins with TTL %d, DiffServ field %#x", s.TTL, s.TOS)
	}
	if err := errors.Join(c.SetTTL(0), c.SetTOS(0x28)); err != nil {
		t.Error(err)
	}
	if s := c.TCP().Tuned(); s.TTL != 0 || s.TOS != 0x28 || s.KeepCount != 9 {
		t.Errorf("then %+v", s)
	}
	c.Close()
	if err := c.SetTTL(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if err := c.SetTOS(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// A transfer goes through every congestion control, and through other modules, without a scratch.
func TestSetCongestion(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	other, o2 := conns(t, sa, sb)
	const size = 24 << 20
	data := random(size, 7)
	r := async(func() (int, error) {
		n, err := c1.Write(data)
		c1.CloseWrite()
		return n, err
	})
	got := make([]byte, 0, size)
	buf := make([]byte, 1<<20)
	for i := 0; len(got) < size; i++ {
		n, err := io.ReadFull(c2, buf)
		if got = append(got, buf[:n]...); err != nil {
			t.Fatal(err)
		}
		name := []string{"reno", "bbr", "cdg", "cubic"}[i%4]
		if err := c1.SetCongestion(name); err != nil {
			t.Fatal(err)
		}
		if i := must(c1.Info()); i.Cong != name {
			t.Fatalf("served by %s, want %s", i.Cong, name)
		}
	}
	if !bytes.Equal(got, data) || wait(t, r).err != nil {
		t.Error("other bytes came")
	}
	if err := errors.Join(c1.SetPacing("edt"), c1.SetRecovery("btree")); err != nil {
		t.Error(err)
	}
	if i := must(other.Info()); i.Cong != "cubic" {
		t.Errorf("the other connection is at %s", i.Cong)
	}
	if err := c1.SetCongestion("none such"); err == nil || !strings.Contains(err.Error(), "none such") {
		t.Errorf("an unknown module: %v", err)
	}
	for _, c := range []*sock.Conn{c1, c2, other, o2} {
		c.Close()
	}
	if err := c1.SetCongestion("reno"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if _, err := c1.Info(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// After the peer's reset there are the last figures, and nothing can be given to a module.
func TestInfoAfterEnd(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	c1.Write(make([]byte, 1000))
	io.CopyN(io.Discard, c2, 1000)
	c2.Abort()
	if _, err := c1.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if i := must(c1.Info()); i.State != "CLOSED" || i.BytesAcked > 1000 || i.Counts.SegsOut == 0 {
		t.Errorf("%+v", i)
	}
	if err := c1.SetCongestion("reno"); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("congestion control of an ended connection: %v", err)
	}
	c1.Close()
}

// Automatic corking is the stack's setting, unless a connection says otherwise.
func TestAutoCorkDefault(t *testing.T) {
	for _, off := range []bool{false, true} {
		var cfg stack.Config
		cfg.TCP.NoAutoCork = off
		sa, sb := pair(t, cfg)
		ln, err := (&sock.ListenConfig{Stack: sb}).Listen(t.Context(), "tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		d := sock.Dialer{Stack: sa}
		for _, own := range []bool{false, true} {
			if own {
				d.Control = func(_, _ string, o *sock.Options) error {
					o.AutoCork = !o.AutoCork
					return nil
				}
			}
			c := must(d.Dial("tcp", "10.0.0.2:80"))
			s := must(ln.Accept())
			if got := must(c.(*sock.Conn).Info()).Options&tcp.OptAutoCork != 0; got == (off != own) {
				t.Errorf("off in the stack: %v, the other way for the connection: %v: corks %v", off, own, got)
			}
			if got := must(s.(*sock.Conn).Info()).Options&tcp.OptAutoCork != 0; got == off {
				t.Errorf("off in the stack: %v: an accepted connection corks: %v", off, got)
			}
			c.Close()
			s.Close()
		}
		ln.Close()
	}
}

// A rate limit holds from when it is set until it is lifted, and corks and marks of a connection do not hurt a transfer.
func TestMaxPacingRate(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	defer c1.Close()
	defer c2.Close()
	const rate, size = 4 << 20, 2 << 20
	c1.SetMaxPacingRate(rate)
	c1.SetCork(true)
	c1.SetNotSentLowat(16 << 10)
	start := time.Now()
	go func() { c1.Write(make([]byte, size)); c1.Flush() }()
	if n, err := io.CopyN(io.Discard, c2, size); err != nil {
		t.Fatal(n, err)
	}
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("%d bytes took %v at %d B/s", size, took, rate)
	}
	if i := must(c1.Info()); i.MaxRate != rate {
		t.Errorf("rate %d", i.MaxRate)
	}
	c1.SetMaxPacingRate(0)
	c1.SetNotSentLowat(0)
	go c1.Write(make([]byte, size))
	if n, err := io.CopyN(io.Discard, c2, size-1000); err != nil {
		t.Fatal(n, err)
	}
}

type names map[string][]netip.Addr

func (n names) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if a, ok := n[host]; ok && strings.HasPrefix(network, "ip") {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// Names need a resolver; their addresses are tried in turn, and the first one's error is told.
func TestDialerResolver(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	a := netip.MustParseAddr
	d := sock.Dialer{Stack: sa, Timeout: 20 * time.Second, Resolver: names{
		"two": {a("192.0.2.1"), a("10.0.0.2")}, "bad": {a("192.0.2.1"), a("192.0.2.2")}, "six": {a("2001:db8::1")},
	}}
	ln := must(sock.Listen(sb, "tcp", ":http"))
	defer ln.Close()
	c, err := d.Dial("tcp", "two:http")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.RemoteAddr().String(); got != "10.0.0.2:80" {
		t.Errorf("connected to %s", got)
	}
	c.Close()
	if _, err := d.Dial("tcp", "bad:80"); !errors.Is(err, syscall.ENETUNREACH) || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("bad: %v", err)
	}
	var ae *net.AddrError
	if _, err := d.Dial("tcp4", "six:80"); !errors.As(err, &ae) {
		t.Errorf("six: %v", err)
	}
	var de *net.DNSError
	if _, err := d.Dial("tcp", "none:80"); !errors.As(err, &de) || !de.IsNotFound {
		t.Errorf("none: %v", err)
	}
	d.Resolver = nil
	if _, err := d.Dial("tcp", "two:80"); !errors.As(err, &de) || !de.IsNotFound {
		t.Errorf("without a resolver: %v", err)
	}
}

// A peer that has gone is given up after the user timeout.
func TestUserTimeout(t *testing.T) {
	var lost []uint64
	for i := range uint64(5000) { // all but the handshake and a little data
		lost = append(lost, 10+i)
	}
	sa, sb := pairOn(t, memlink.Config{AtoB: memlink.Path{Loss: memlink.Loss{Frames: lost}}}, stack.Config{}, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	defer c2.Close()
	defer c1.Close()
	const limit = 300 * time.Millisecond
	c1.SetUserTimeout(limit)
	start := time.Now()
	c1.Write(make([]byte, 100_000))
	r := wait(t, async(func() (int, error) { return c1.Read(make([]byte, 1)) }))
	var ne net.Error
	if !errors.Is(r.err, syscall.ETIMEDOUT) || !errors.As(r.err, &ne) || !ne.Timeout() || time.Since(start) < limit {
		t.Errorf("%v after %v", r.err, time.Since(start))
	}
	if _, err := c1.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v", err)
	}
}

package sock_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// soon bounds waits that end at once if all is well.
const soon = 10 * time.Second

// result is what a call returned, and when.
type result struct {
	n   int
	err error
	at  time.Time
}

func async(f func() (int, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		n, err := f()
		c <- result{n, err, time.Now()}
	}()
	return c
}

func wait(t *testing.T, c <-chan result) result {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(soon):
		t.Fatal("the call does not return")
		return result{}
	}
}

// waiting waits until a goroutine waits in a call.
func waiting(t *testing.T, w *tcp.Waiter) {
	t.Helper()
	for end := time.Now().Add(soon); !w.Armed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
}

// Deadlines that move while a call waits: sooner, later, and away.
func TestDeadlineMoves(t *testing.T) {
	for _, write := range []bool{false, true} {
		sa, sb := pair(t, stack.Config{})
		c1, c2 := connect(t, sa, sb)
		defer c2.Close()
		defer c1.Close()
		w, set, call := &c1.(*sock.Conn).TCP().Rd, c1.SetReadDeadline, func() (int, error) { return c1.Read(make([]byte, 10)) }
		if write {
			w, set = &c1.(*sock.Conn).TCP().Wr, c1.SetWriteDeadline
			big := make([]byte, 64<<20) // more than both buffers hold
			call = func() (int, error) { return c1.Write(big) }
		}
		check := func(r result, from time.Time, want time.Duration) {
			t.Helper()
			var ne net.Error
			if !errors.Is(r.err, os.ErrDeadlineExceeded) || !errors.As(r.err, &ne) || !ne.Timeout() {
				t.Errorf("error %v", r.err)
			}
			if d := r.at.Sub(from); d < want || d > want+soon/2 {
				t.Errorf("returned after %v, want %v", d, want)
			}
		}
		start := time.Now()
		set(start.Add(time.Hour))
		r := async(call)
		waiting(t, w)
		set(start.Add(50 * time.Millisecond)) // sooner
		check(wait(t, r), start, 50*time.Millisecond)

		for early := 50 * time.Millisecond; ; early *= 2 { // later
			start = time.Now()
			set(start.Add(early))
			r = async(call)
			for time.Since(start) < early && !w.Armed() {
				time.Sleep(time.Millisecond)
			}
			set(start.Add(4 * early))
			if time.Since(start) < early { // else a busy machine was late
				check(wait(t, r), start, 4*early)
				break
			}
			wait(t, r)
		}

		set(time.Time{})
		r = async(call)
		waiting(t, w)
		set(time.Now().Add(-time.Second)) // past
		check(wait(t, r), time.Now(), -time.Second)

		r = async(call) // and with a past one from the start
		check(wait(t, r), time.Now(), -time.Second)
	}
}

// A deadline holds although other timers of the connection expire before it, between calls.
func TestDeadlineBetweenCalls(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := connect(t, sa, sb)
	defer c1.Close()
	defer c2.Close()
	start := time.Now()
	c1.SetReadDeadline(start.Add(time.Second))
	r := async(func() (int, error) {
		buf := make([]byte, 100)
		n := 0
		for {
			k, err := c1.Read(buf)
			n += k
			if err != nil {
				return n, err
			}
			time.Sleep(100 * time.Millisecond) // a delayed acknowledgement's timer expires, and nobody waits
		}
	})
	for range 2 {
		if _, err := c2.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	res := wait(t, r)
	if !errors.Is(res.err, os.ErrDeadlineExceeded) || res.n == 0 {
		t.Errorf("%d bytes, %v", res.n, res.err)
	}
}

// Close makes calls that wait return net.ErrClosed, on either side of a connection and of a listener.
func TestCloseWakes(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := connect(t, sa, sb)
	rd := async(func() (int, error) { return c1.Read(make([]byte, 1)) })
	wr := async(func() (int, error) { return c1.Write(make([]byte, 64<<20)) })
	waiting(t, &c1.(*sock.Conn).TCP().Rd)
	waiting(t, &c1.(*sock.Conn).TCP().Wr)
	c1.Close()
	for _, r := range []<-chan result{rd, wr} {
		if got := wait(t, r); !errors.Is(got.err, net.ErrClosed) {
			t.Errorf("error %v", got.err)
		}
	}
	if err := c1.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if _, err := c1.Read(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := c1.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("deadline after close: %v", err)
	}
	c2.Close()
	ln, err := sock.Listen(sb, "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	acc := async(func() (int, error) { _, err := ln.Accept(); return 0, err })
	time.Sleep(10 * time.Millisecond)
	ln.Close()
	if got := wait(t, acc); !errors.Is(got.err, net.ErrClosed) {
		t.Errorf("accept: %v", got.err)
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close of a listener: %v", err)
	}
}

// The peer's reset ends calls that wait with ECONNRESET; writing after that is EPIPE.
func TestResetWakes(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := connect(t, sa, sb)
	rd := async(func() (int, error) { return c1.Read(make([]byte, 1)) })
	waiting(t, &c1.(*sock.Conn).TCP().Rd)
	c2.(*sock.Conn).SetLinger(0)
	c2.Close()
	if got := wait(t, rd); !errors.Is(got.err, syscall.ECONNRESET) {
		t.Errorf("read: %v", got.err)
	}
	if _, err := c1.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) { // the read had the error itself
		t.Errorf("write: %v", err)
	}
	c1.Close()
}

// Writing after CloseWrite is EPIPE.
func TestWriteAfterCloseWrite(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := connect(t, sa, sb)
	defer c2.Close()
	defer c1.Close()
	c1.(*sock.Conn).CloseWrite()
	if _, err := c1.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v", err)
	}
}

// The ends of a stack end calls that wait.
func TestStackCloseWakes(t *testing.T) {
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	open := func(p *memlink.Port, addr string) *stack.Stack {
		s, err := stack.New(stack.Config{Port: p, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sa, sb := open(pa, "10.0.0.1/24"), open(pb, "10.0.0.2/24")
	c1, c2 := connect(t, sa, sb)
	rd := async(func() (int, error) { return c1.Read(make([]byte, 1)) })
	waiting(t, &c1.(*sock.Conn).TCP().Rd)
	if err := sa.Close(); err != nil {
		t.Error(err)
	}
	if got := wait(t, rd); got.err == nil {
		t.Error("a read of a closed stack succeeds")
	}
	c1.Close()
	if _, err := (&sock.Dialer{Stack: sa}).Dial("tcp", "10.0.0.2:80"); !errors.Is(err, stack.ErrClosed) {
		t.Errorf("dial over a closed stack: %v", err)
	}
	if _, err := sock.Listen(sa, "tcp", ":80"); !errors.Is(err, stack.ErrClosed) {
		t.Errorf("listen on a closed stack: %v", err)
	}
	if n, err := c2.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other end reads %d, %v", n, err)
	}
	c2.Close()
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialErrors(t *testing.T) {
	sa, _ := pair(t, stack.Config{})
	d := sock.Dialer{Stack: sa}
	// Nobody listens.
	if _, err := d.Dial("tcp", "10.0.0.2:81"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	// Nobody is there: the context ends first.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := d.DialContext(ctx, "tcp", "10.0.0.77:80")
	var ne net.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("timeout: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	r := async(func() (int, error) { _, err := d.DialContext(ctx, "tcp", "10.0.0.77:80"); return 0, err })
	time.Sleep(10 * time.Millisecond)
	cancel()
	if got := wait(t, r); !errors.Is(got.err, context.Canceled) {
		t.Errorf("cancelled: %v", got.err)
	}
	if _, err := d.DialContext(ctx, "tcp", "10.0.0.2:81"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	// RFC 9293, MUST-46: not to broadcast and multicast addresses.
	for _, bad := range []string{"10.0.0.2", "host:80", "10.0.0.2:http", "[::1]:80", "10.0.0.2:0", "10.0.0.255:80", "224.0.0.1:80", "192.0.2.1:80"} {
		if c, err := d.Dial("tcp", bad); err == nil {
			t.Errorf("dialled %s", bad)
			c.Close()
		}
	}
	if _, err := d.Dial("sctp", "10.0.0.2:80"); err == nil {
		t.Error("dialled sctp")
	}
	if _, err := d.Dial("tcp", "192.0.2.1:80"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("no route: %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	_, sb := pair(t, stack.Config{})
	ln, err := sock.Listen(sb, "tcp", "10.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sock.Listen(sb, "tcp", "10.0.0.2:80"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("port in use: %v", err)
	}
	if _, err := sock.Listen(sb, "tcp", ":80"); !errors.Is(err, syscall.EADDRINUSE) { // as in Linux
		t.Errorf("any address beside one: %v", err)
	}
	ln.Close()
	again, err := sock.Listen(sb, "tcp", "10.0.0.2:80")
	if err != nil {
		t.Fatalf("a port that is free again: %v", err)
	}
	again.Close()
	seen := map[string]bool{}
	for range 5 {
		ln, err := sock.Listen(sb, "tcp", "10.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a := ln.Addr().(*net.TCPAddr)
		if a.Port == 0 || seen[a.String()] {
			t.Errorf("port 0 became %v, after %v", a, seen)
		}
		seen[a.String()] = true
	}
	for _, bad := range []string{"10.0.0.9:80", "x:80", "10.0.0.2", "10.0.0.2:99999"} {
		if ln, err := sock.Listen(sb, "tcp", bad); err == nil {
			t.Errorf("listens on %s", bad)
			ln.Close()
		}
	}
}

func TestAddrs(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := connect(t, sa, sb)
	defer c1.Close()
	defer c2.Close()
	if c1.LocalAddr().String() != c2.RemoteAddr().String() || c2.LocalAddr().String() != c1.RemoteAddr().String() {
		t.Errorf("%v > %v and %v > %v", c1.LocalAddr(), c1.RemoteAddr(), c2.LocalAddr(), c2.RemoteAddr())
	}
}

// A dialer with a local address and port.
// RFC 9293, MUST-43: an application may name the local address.
func TestDialLocalAddr(t *testing.T) {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	ln, err := sock.Listen(sb, "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for port := uint16(1000); port < 1010; port++ {
		d := sock.Dialer{Stack: sa, LocalAddr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}
		c, err := d.Dial("tcp", "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.LocalAddr().(*net.TCPAddr).Port; got != int(port) {
			t.Errorf("local port %d, want %d", got, port)
		}
		if _, err := d.Dial("tcp", "10.0.0.2:80"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("the same port again: %v", err)
		}
		c.Close()
	}
	bad := sock.Dialer{Stack: sa, LocalAddr: netip.MustParseAddrPort("10.0.0.5:0")}
	if _, err := bad.Dial("tcp", "10.0.0.2:80"); err == nil {
		t.Error("dialled from an address that is not ours")
	}
}

package sock_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// udpSocket is what *net.UDPConn and *sock.UDPConn have in common.
type udpSocket interface {
	net.Conn
	net.PacketConn
	ReadFromUDP([]byte) (int, *net.UDPAddr, error)
	ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error)
	WriteToUDP([]byte, *net.UDPAddr) (int, error)
	WriteToUDPAddrPort([]byte, netip.AddrPort) (int, error)
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

var (
	_ udpSocket = (*net.UDPConn)(nil)
	_ udpSocket = (*sock.UDPConn)(nil)
)

// udpWorld makes sockets: a socket listens at one end, and others connect to it from the other end.
type udpWorld struct {
	name   string
	listen func(network, addr string) (udpSocket, error) // addr is ":port" or so; the host is added
	dial   func(network, to string) (udpSocket, error)
}

// udpWorlds are the kernel and the stack: package net is the measure.
func udpWorlds(t *testing.T) []udpWorld {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	warm(t, sa, sb)
	return []udpWorld{
		{"kernel", func(network, addr string) (udpSocket, error) {
			c, err := net.ListenPacket(network, "127.0.0.1"+addr)
			if err != nil {
				return nil, err
			}
			return c.(*net.UDPConn), nil
		}, func(network, to string) (udpSocket, error) {
			c, err := net.Dial(network, to)
			if err != nil {
				return nil, err
			}
			return c.(*net.UDPConn), nil
		}},
		{"stack", func(network, addr string) (udpSocket, error) {
			c, err := sock.ListenPacket(sb, network, "10.0.0.2"+addr)
			if err != nil {
				return nil, err
			}
			return c, nil
		}, func(network, to string) (udpSocket, error) {
			d := sock.Dialer{Stack: sa}
			c, err := d.Dial(network, to)
			if err != nil {
				return nil, err
			}
			return c.(*sock.UDPConn), nil
		}},
	}
}

// warm has the stacks learn each other's link addresses.
func warm(t *testing.T, sa, sb *stack.Stack) {
	t.Helper()
	c1, c2 := connect(t, sa, sb)
	c1.Close()
	c2.Close()
}

// errText is an error without the addresses, which differ between the worlds.
func errText(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%s %s source=%v addr=%v timeout=%v: %v", op.Op, op.Net, op.Source != nil, op.Addr != nil, op.Timeout(), op.Err)
}

// Every operation gives what package net gives over the kernel: results, errors, and the fields of errors.
func TestUDPLikeNet(t *testing.T) {
	var logs []string
	for _, w := range udpWorlds(t) {
		var b strings.Builder
		say := func(what string, args ...any) {
			fmt.Fprintf(&b, "%s: %s\n", what, strings.TrimSpace(fmt.Sprintln(args...)))
		}
		compareUDP(t, w, say)
		logs = append(logs, b.String())
	}
	a, b := strings.Split(logs[0], "\n"), strings.Split(logs[1], "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("line %d differs\nkernel %s\nstack  %s", i, logs[0], logs[1])
		}
	}
	t.Logf("both:\n%s", logs[0])
}

func compareUDP(t *testing.T, w udpWorld, say func(string, ...any)) {
	l, err := w.listen("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.dial("udp", l.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(soon)
	l.SetDeadline(limit)
	c.SetDeadline(limit)
	say("addresses", l.RemoteAddr() == nil, c.RemoteAddr().String() == l.LocalAddr().String(), c.LocalAddr().Network(), l.LocalAddr().(*net.UDPAddr).Port != 0)
	buf := make([]byte, 100)
	from := func(a *net.UDPAddr) bool { return a != nil && a.String() == c.LocalAddr().String() }

	n, err := c.Write([]byte("hello"))
	say("write", n, err)
	n, ua, err := l.ReadFromUDP(buf)
	say("read", n, from(ua), err, string(buf[:n]))
	n, err = c.Write(nil)
	say("write of nothing", n, err)
	n, err = l.Read(nil)
	say("read into nothing takes nothing", n, err)
	n, ap, err := l.ReadFromUDPAddrPort(buf)
	say("read of nothing", n, ap == c.LocalAddr().(*net.UDPAddr).AddrPort(), err)
	_, _ = c.Write([]byte("0123456789"))
	n, a, err := l.ReadFrom(buf[:4])
	say("cut", n, from(a.(*net.UDPAddr)), err, string(buf[:n]))
	_, _ = c.Write([]byte("x"))
	n, _, err = l.ReadFrom(nil)
	say("read from into nothing takes it", n, err)

	peer := c.LocalAddr().(*net.UDPAddr)
	for _, write := range []func() (int, error){
		func() (int, error) { return l.WriteTo([]byte("1"), peer) },
		func() (int, error) { return l.WriteToUDP([]byte("2"), peer) },
		func() (int, error) { return l.WriteToUDPAddrPort([]byte("3"), peer.AddrPort()) },
	} {
		n, err := write()
		say("write to", n, err)
		n, err = c.Read(buf)
		say("and read", n, err, string(buf[:n]))
	}
	n, err = l.Write([]byte("x"))
	say("write without a peer", n, errText(err), errors.Is(err, syscall.EDESTADDRREQ))
	n, err = l.WriteTo([]byte("x"), &net.TCPAddr{})
	say("write to a TCP address", n, errText(err))
	n, err = l.WriteToUDP([]byte("x"), nil)
	say("write to no address", n, errText(err))
	n, err = l.WriteToUDPAddrPort([]byte("x"), netip.AddrPort{})
	say("write to the zero address", n, strings.HasPrefix(errText(err), "write udp source=true"), err != nil)
	n, err = c.WriteTo([]byte("x"), peer)
	say("write to, connected", n, errText(err), errors.Is(err, net.ErrWriteToConnected))
	n, err = c.WriteToUDPAddrPort([]byte("x"), peer.AddrPort())
	say("write to, connected", n, errText(err))
	n, err = c.Write(make([]byte, 65508))
	say("too long", n, errText(err), errors.Is(err, syscall.EMSGSIZE))

	l.SetReadDeadline(time.Now().Add(-time.Second))
	n, _, err = l.ReadFrom(buf)
	say("deadline", n, errText(err), errors.Is(err, os.ErrDeadlineExceeded))
	n, err = l.Read(nil)
	say("deadline and no buffer", n, err)
	l.SetWriteDeadline(time.Now().Add(-time.Second))
	n, err = l.WriteTo([]byte("x"), peer)
	say("write after the deadline", n, errText(err))
	l.SetDeadline(limit)

	_, err = w.listen("udp", fmt.Sprintf(":%d", l.LocalAddr().(*net.UDPAddr).Port))
	say("the same port", errText(err), errors.Is(err, syscall.EADDRINUSE))
	for _, network := range []string{"tcp9", "udp6", "udp4"} {
		x, err := w.listen(network, ":0")
		say(network, err != nil)
		if err == nil {
			x.Close()
		}
	}
	say("buffers", l.SetReadBuffer(1<<16), l.SetWriteBuffer(1<<16))

	closed := l.LocalAddr().String()
	say("close", l.Close())
	err = l.Close()
	say("close again", errText(err), errors.Is(err, net.ErrClosed))
	_, err = l.Read(nil)
	say("read after close", errText(err))
	_, _, err = l.ReadFrom(buf)
	say("read from after close", errText(err))
	_, err = l.WriteTo(nil, peer)
	say("write after close", errText(err))
	say("deadline after close", errText(l.SetDeadline(limit)))

	d, err := w.dial("udp", closed)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.SetDeadline(limit)
	n, err = d.Write([]byte("x"))
	say("write to a closed port", n, err)
	_, err = d.Read(buf)
	say("refused", errText(err), errors.Is(err, syscall.ECONNREFUSED))
	n, err = d.Write([]byte("x"))
	say("the error comes once", n, err)
	say("close connected", c.Close())
	err = c.Close()
	say("again", errText(err))
	_, err = c.Write([]byte("x"))
	say("write", errText(err))
}

// Close and deadlines that move end calls that wait.
func TestUDPWaits(t *testing.T) {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	l, err := sock.ListenPacket(sb, "udp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	read := func() <-chan result {
		r := async(func() (int, error) { n, _, err := l.ReadFrom(make([]byte, 10)); return n, err })
		waiting(t, &l.Endpoint().Rd)
		return r
	}
	start := time.Now()
	l.SetReadDeadline(start.Add(time.Hour))
	r := read()
	l.SetReadDeadline(start.Add(50 * time.Millisecond)) // sooner
	if got := wait(t, r); !errors.Is(got.err, os.ErrDeadlineExceeded) || got.at.Sub(start) < 50*time.Millisecond {
		t.Errorf("after %v: %v", got.at.Sub(start), got.err)
	}
	start = time.Now()
	l.SetReadDeadline(start.Add(50 * time.Millisecond))
	r = read()
	l.SetReadDeadline(start.Add(200 * time.Millisecond)) // later
	if got := wait(t, r); !errors.Is(got.err, os.ErrDeadlineExceeded) || got.at.Sub(start) < 200*time.Millisecond {
		t.Errorf("after %v: %v", got.at.Sub(start), got.err)
	}
	l.SetReadDeadline(time.Time{})
	r = read()
	l.SetReadDeadline(time.Now().Add(-1)) // past
	if got := wait(t, r); !errors.Is(got.err, os.ErrDeadlineExceeded) {
		t.Error(got.err)
	}
	l.SetReadDeadline(time.Time{})
	r = read()
	c, err := sock.DialUDP(sa, "udp", netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:53"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("wake")); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, r); got.n != 4 || got.err != nil {
		t.Errorf("%d, %v", got.n, got.err)
	}
	r = read()
	l.Close()
	if got := wait(t, r); !errors.Is(got.err, net.ErrClosed) {
		t.Error(got.err)
	}
	rd := async(func() (int, error) { return c.Read(make([]byte, 10)) })
	waiting(t, &c.Endpoint().Rd)
	c.Close()
	if got := wait(t, rd); !errors.Is(got.err, net.ErrClosed) {
		t.Error(got.err)
	}
}

// Datagrams of all sizes, also those that need fragments, arrive whole; many of them in both directions at once.
func TestUDPSizes(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	warm(t, sa, sb)
	l, err := sock.ListenPacket(sb, "udp4", "10.0.0.2:53")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := sock.DialUDP(sa, "udp4", netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	limit := time.Now().Add(soon)
	c.SetDeadline(limit)
	l.SetDeadline(limit)
	buf := make([]byte, 70000)
	for _, n := range []int{0, 1, 547, 548, 549, 1471, 1472, 1473, 2048, 4000, 16384, 65507} {
		out := bytes.Repeat([]byte{byte(n), 1, 2, 3, 5, 7, 11}, n/7+1)[:n]
		if k, err := c.Write(out); k != n || err != nil {
			t.Fatalf("write of %d: %d, %v", n, k, err)
		}
		k, from, err := l.ReadFromUDPAddrPort(buf)
		if err != nil || !bytes.Equal(buf[:k], out) {
			t.Fatalf("%d bytes came as %d, %v", n, k, err)
		}
		if _, err := l.WriteToUDPAddrPort(buf[:k], from); err != nil {
			t.Fatal(err)
		}
		if k, err := c.Read(buf); err != nil || !bytes.Equal(buf[:k], out) {
			t.Fatalf("%d bytes came back as %d, %v", n, k, err)
		}
	}
}

package sock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// tcpConn and tcpListener are what *net.TCPConn and *sock.Conn, *net.TCPListener and *sock.Listener have in common.
type tcpConn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(int) error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

type tcpListener interface {
	net.Listener
	SetDeadline(time.Time) error
}

// dialing are the fields of a dialer.
type dialing struct {
	local    string
	timeout  time.Duration
	deadline time.Time
}

// world is a network to run operations on, and what they returned.
type world struct {
	t        *testing.T
	server   string // host address of the server
	nobody   string // an address of the network where nobody is
	listenOn func(network, addr string) (net.Listener, error)
	dialFrom func(ctx context.Context, d dialing, network, addr string) (net.Conn, error)
	names    []string // pairs of address and name
	log      []string
}

func kernelWorld(t *testing.T) *world {
	return &world{
		t: t, server: "127.0.0.1", nobody: "127.0.0.9",
		listenOn: func(network, addr string) (net.Listener, error) {
			lc := net.ListenConfig{}
			lc.SetMultipathTCP(false)
			return lc.Listen(context.Background(), network, addr)
		},
		dialFrom: func(ctx context.Context, d dialing, network, addr string) (net.Conn, error) {
			nd := net.Dialer{Timeout: d.timeout, Deadline: d.deadline}
			if d.local != "" {
				nd.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(d.local))
			}
			return nd.DialContext(ctx, network, addr)
		},
	}
}

func ourWorld(t *testing.T) *world {
	sa, sb := pair(t, stack.Config{})
	return &world{
		t: t, server: "10.0.0.2", nobody: "10.0.0.9",
		listenOn: func(network, addr string) (net.Listener, error) { return sock.Listen(sb, network, addr) },
		dialFrom: func(ctx context.Context, d dialing, network, addr string) (net.Conn, error) {
			sd := sock.Dialer{Stack: sa, Timeout: d.timeout, Deadline: d.deadline}
			if d.local != "" {
				sd.LocalAddr = netip.MustParseAddrPort(d.local)
			}
			return sd.DialContext(ctx, network, addr)
		},
	}
}

// name makes an address appear under a name in the log.
func (w *world) name(a net.Addr, name string) { w.names = append(w.names, a.String(), name) }

func (w *world) text(s string) string {
	for i := len(w.names) - 2; i >= 0; i -= 2 { // the latest first: a port's number may be the beginning of another
		s = strings.ReplaceAll(s, w.names[i], w.names[i+1])
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, w.server, "SERVER"), w.nobody, "NOBODY")
}

// note logs what an operation returned: of an error the text, the fields and what it is.
func (w *world) note(what string, n any, err error) {
	w.log = append(w.log, w.text(fmt.Sprintf("%s: %v, %s", what, n, describe(err))))
}

func (w *world) noteErr(what string, err error) { w.note(what, "", err) }

var identities = []struct {
	err  error
	name string
}{
	{io.EOF, "EOF"}, {net.ErrClosed, "ErrClosed"}, {os.ErrDeadlineExceeded, "ErrDeadlineExceeded"}, {context.Canceled, "Canceled"},
	{syscall.ECONNREFUSED, "ECONNREFUSED"}, {syscall.ECONNRESET, "ECONNRESET"}, {syscall.EPIPE, "EPIPE"}, {syscall.ENOTCONN, "ENOTCONN"},
	{syscall.ETIMEDOUT, "ETIMEDOUT"}, {syscall.EHOSTUNREACH, "EHOSTUNREACH"}, {syscall.ENETUNREACH, "ENETUNREACH"},
	{syscall.EADDRINUSE, "EADDRINUSE"}, {syscall.EADDRNOTAVAIL, "EADDRNOTAVAIL"},
}

func describe(err error) string {
	if err == nil {
		return "ok"
	}
	s := "«" + err.Error() + "»"
	if err == io.EOF {
		return s + " is io.EOF itself"
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e := e.(type) {
		case *net.OpError:
			s += fmt.Sprintf(" OpError{%s %s %v %v}", e.Op, e.Net, addr(e.Source), addr(e.Addr))
		case *os.SyscallError:
			s += " SyscallError{" + e.Syscall + "}"
		}
	}
	for _, i := range identities {
		if errors.Is(err, i.err) {
			s += " " + i.name
		}
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		s += " timeout"
	}
	return s
}

func addr(a net.Addr) string {
	if a == nil {
		return "-"
	}
	return a.Network() + "/" + a.String()
}

func (w *world) listen() tcpListener {
	w.t.Helper()
	l, err := w.listenOn("tcp", w.server+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	w.name(l.Addr(), "LISTENER")
	return l.(tcpListener)
}

// pair opens a connection: c at the client, s at the server.
func (w *world) pair(network string) (c, s tcpConn) {
	w.t.Helper()
	l, err := w.listenOn(network, w.server+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	nc, err := w.dialFrom(context.Background(), dialing{}, network, l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	ns, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { nc.Close(); ns.Close() })
	w.name(nc.LocalAddr(), "C")
	w.name(ns.LocalAddr(), "S")
	return nc.(tcpConn), ns.(tcpConn)
}

var past = time.Unix(1, 0)

// ops are what is compared. Each runs on the kernel and on us, with connections of its own.
var ops = map[string]func(w *world){
	"addresses": func(w *world) {
		for _, network := range []string{"tcp", "tcp4"} {
			c, s := w.pair(network)
			w.note("client", addr(c.LocalAddr())+" > "+addr(c.RemoteAddr()), nil)
			w.note("server", addr(s.LocalAddr())+" > "+addr(s.RemoteAddr()), nil)
			_, err := c.Read(nil)
			w.noteErr("read", err)
			c.Close()
			_, err = c.Read(nil)
			w.noteErr("net of an error", err)
			s.SetDeadline(past)
			_, err = s.Read(make([]byte, 1))
			w.noteErr("net of the server's error", err)
		}
	},
	"no bytes": func(w *world) {
		c, s := w.pair("tcp")
		n, err := c.Read(nil)
		w.note("read", n, err)
		n, err = c.Write(nil)
		w.note("write", n, err)
		c.SetDeadline(past)
		n, err = c.Read(nil)
		w.note("read past the deadline", n, err)
		n, err = c.Write(nil)
		w.note("write past the deadline", n, err)
		c.SetDeadline(time.Time{})
		s.Close()
		n, err = c.Read(make([]byte, 1))
		w.note("read the end", n, err)
		n, err = c.Read(nil)
		w.note("read nothing at the end", n, err)
		c.CloseWrite()
		n, err = c.Write(nil)
		w.note("write nothing after CloseWrite", n, err)
		c.Close()
		n, err = c.Read(nil)
		w.note("read after close", n, err)
		n, err = c.Write(nil)
		w.note("write after close", n, err)
	},
	"end": func(w *world) {
		c, s := w.pair("tcp")
		s.Write([]byte("abc"))
		s.CloseWrite()
		got, err := io.ReadAll(c)
		w.note("read all", string(got), err)
		for range 2 {
			n, err := c.Read(make([]byte, 1))
			w.note("read", n, err)
		}
		n, err := c.Write([]byte("x"))
		w.note("the other half", n, err)
		b := make([]byte, 1)
		n, err = s.Read(b)
		w.note("arrives", n, err)
		n, err = s.Write([]byte("x"))
		w.note("write after CloseWrite", n, err)
		w.noteErr("CloseWrite again", s.CloseWrite())
		w.noteErr("close", c.Close())
		w.noteErr("close", s.Close())
	},
	"closed": func(w *world) {
		c, _ := w.pair("tcp")
		w.noteErr("close", c.Close())
		w.noteErr("close", c.Close())
		_, err := c.Read(make([]byte, 1))
		w.noteErr("read", err)
		_, err = c.Write([]byte("x"))
		w.noteErr("write", err)
		_, err = c.ReadFrom(strings.NewReader("x"))
		w.noteErr("readfrom", err)
		_, err = c.WriteTo(io.Discard)
		w.noteErr("writeto", err)
		w.noteErr("CloseRead", c.CloseRead())
		w.noteErr("CloseWrite", c.CloseWrite())
		w.noteErr("SetDeadline", c.SetDeadline(time.Time{}))
		w.noteErr("SetReadDeadline", c.SetReadDeadline(past))
		w.noteErr("SetWriteDeadline", c.SetWriteDeadline(past))
		w.noteErr("SetLinger", c.SetLinger(0))
		w.noteErr("SetNoDelay", c.SetNoDelay(true))
		w.noteErr("SetKeepAlive", c.SetKeepAlive(true))
		w.noteErr("SetKeepAlivePeriod", c.SetKeepAlivePeriod(time.Second))
		w.noteErr("SetKeepAliveConfig", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}))
		w.noteErr("SetReadBuffer", c.SetReadBuffer(10000))
		w.noteErr("SetWriteBuffer", c.SetWriteBuffer(10000))
		w.note("addresses", addr(c.LocalAddr())+" > "+addr(c.RemoteAddr()), nil)
	},
	"settings": func(w *world) {
		c, s := w.pair("tcp")
		w.noteErr("SetLinger", c.SetLinger(5))
		w.noteErr("SetLinger", c.SetLinger(-1))
		w.noteErr("SetNoDelay", c.SetNoDelay(false))
		w.noteErr("SetKeepAlive", c.SetKeepAlive(false))
		w.noteErr("SetKeepAlivePeriod", c.SetKeepAlivePeriod(-1))
		w.noteErr("SetKeepAlivePeriod", c.SetKeepAlivePeriod(time.Minute))
		w.noteErr("SetKeepAliveConfig", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 100 * time.Millisecond, Count: -1}))
		w.noteErr("SetReadBuffer", c.SetReadBuffer(10000))
		w.noteErr("SetWriteBuffer", c.SetWriteBuffer(10000))
		go func() { c.Write(make([]byte, 100_000)); c.CloseWrite() }()
		n, err := io.Copy(io.Discard, s)
		w.note("works", n, err)
		s.SetLinger(0)
		s.Close()
		_, err = c.Read(make([]byte, 1))
		w.noteErr("read", err)
		w.noteErr("SetNoDelay after a reset", c.SetNoDelay(true))
		w.noteErr("SetReadDeadline after a reset", c.SetReadDeadline(time.Time{}))
	},
	"reset, read first": func(w *world) {
		c, s := w.pair("tcp")
		s.SetLinger(0)
		s.Close()
		b := make([]byte, 1)
		for range 3 {
			n, err := c.Read(b)
			w.note("read", n, err)
		}
		for range 2 {
			n, err := c.Write(b)
			w.note("write", n, err)
		}
		w.noteErr("CloseWrite", c.CloseWrite())
		w.noteErr("CloseRead", c.CloseRead())
		w.noteErr("close", c.Close())
	},
	"reset, write first": func(w *world) {
		c, s := w.pair("tcp")
		s.SetLinger(0)
		s.Close()
		var err error
		for err == nil { // until the reset is here
			_, err = c.Write([]byte("x"))
		}
		w.noteErr("write", err)
		_, err = c.Write([]byte("x"))
		w.noteErr("write", err)
		_, err = c.Read(make([]byte, 1))
		w.noteErr("read", err)
	},
	"reset behind data": func(w *world) {
		c, s := w.pair("tcp")
		c.Write([]byte("unread"))
		s.Write([]byte("abc"))
		b := make([]byte, 2)
		n, err := c.Read(b)
		w.note("read", n, err)
		s.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err = s.Read(b) // so that what is left unread has arrived
		w.note("read at the server", n, err)
		s.Close() // with unread data: a reset
		n, err = c.Read(b)
		w.note("read", n, err)
		n, err = c.Read(b)
		w.note("read", n, err)
		n, err = c.Read(b)
		w.note("read", n, err)
	},
	"reset behind the end": func(w *world) {
		c, s := w.pair("tcp")
		s.Close()
		b := make([]byte, 1)
		n, err := c.Read(b)
		w.note("read", n, err)
		for err = nil; err == nil; { // the first is answered with a reset
			_, err = c.Write(b)
		}
		w.noteErr("write", err)
		_, err = c.Write(b)
		w.noteErr("write", err)
		n, err = c.Read(b)
		w.note("read", n, err)
	},
	"CloseRead": func(w *world) {
		c, s := w.pair("tcp")
		s.Write([]byte("abc"))
		b := make([]byte, 2)
		n, err := c.Read(b) // so that it has come
		w.note("read", n, err)
		w.noteErr("CloseRead", c.CloseRead())
		n, err = c.Read(b)
		w.note("the rest", n, err)
		n, err = c.Read(b)
		w.note("the end", n, err)
		n, err = c.Write([]byte("x"))
		w.note("write", n, err)
		w.noteErr("CloseRead again", c.CloseRead())
		n, err = s.Read(b)
		w.note("read at the server", n, err)
	},
	"CloseRead wakes": func(w *world) {
		c, _ := w.pair("tcp")
		r := async(func() (int, error) { return c.Read(make([]byte, 1)) })
		time.Sleep(10 * time.Millisecond)
		w.noteErr("CloseRead", c.CloseRead())
		got := wait(w.t, r)
		w.note("read", got.n, got.err)
	},
	"Close wakes": func(w *world) {
		c, _ := w.pair("tcp")
		rd := async(func() (int, error) { return c.Read(make([]byte, 1)) })
		wr := async(func() (int, error) { _, err := c.Write(make([]byte, 64<<20)); return 0, err })
		rf := async(func() (int, error) { _, err := c.ReadFrom(endless{}); return 0, err })
		wt := async(func() (int, error) { _, err := c.WriteTo(io.Discard); return 0, err })
		time.Sleep(10 * time.Millisecond)
		w.noteErr("close", c.Close())
		for i, r := range []<-chan result{rd, wr, rf, wt} {
			got := wait(w.t, r)
			w.note([]string{"read", "write", "readfrom", "writeto"}[i], got.n, got.err)
		}
	},
	"deadlines": func(w *world) {
		c, s := w.pair("tcp")
		b := make([]byte, 1)
		s.Write([]byte("abc"))
		c.Read(b)
		c.SetReadDeadline(past)
		n, err := c.Read(b)
		w.note("read with data there", n, err)
		c.SetReadDeadline(time.Time{})
		n, err = c.Read(b)
		w.note("read without", n, err)
		c.SetWriteDeadline(past)
		n, err = c.Write(b)
		w.note("write", n, err)
		_, err = c.ReadFrom(strings.NewReader("x"))
		w.noteErr("readfrom", err)
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = c.WriteTo(io.Discard)
		w.noteErr("writeto", err)
		c.SetDeadline(time.Now().Add(time.Hour))
		n, err = c.Write(b)
		w.note("write before it", n, err)
		big := make([]byte, 64<<20)
		c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err = c.Write(big)
		w.note("write too much", n > 0 && n < len(big), err)
	},
	"deadline and close": func(w *world) {
		c, _ := w.pair("tcp")
		c.SetDeadline(past)
		c.Close()
		_, err := c.Read(make([]byte, 1))
		w.noteErr("read", err)
		_, err = c.Write(make([]byte, 1))
		w.noteErr("write", err)
	},
	"copy": func(w *world) {
		c, s := w.pair("tcp")
		data := random(300_000, 3)
		go func() {
			c.ReadFrom(bytes.NewReader(data[:100_000]))
			c.ReadFrom(io.LimitReader(bytes.NewReader(data[100_000:]), 100_000))
			c.ReadFrom(struct{ io.Reader }{bytes.NewReader(data[200_000:])})
			c.CloseWrite()
		}()
		var got bytes.Buffer
		n, err := s.WriteTo(&got)
		w.note("writeto", n, err)
		w.note("the same", bytes.Equal(got.Bytes(), data), nil)
		n, err = s.WriteTo(&got)
		w.note("writeto at the end", n, err)
		n, err = s.ReadFrom(&broken{})
		w.note("readfrom what breaks", n, err)
		n, err = s.ReadFrom(strings.NewReader(""))
		w.note("readfrom nothing", n, err)
		s.Write([]byte("abcdef"))
		n, err = c.WriteTo(&broken{})
		w.note("writeto what breaks", n, err)
	},
	"listener": func(w *world) {
		l := w.listen()
		w.note("address", addr(l.Addr()), nil)
		w.noteErr("SetDeadline", l.SetDeadline(past))
		_, err := l.Accept()
		w.noteErr("accept", err)
		l.SetDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = l.Accept()
		w.noteErr("accept", err)
		l.SetDeadline(time.Now().Add(time.Hour))
		r := async(func() (int, error) { _, err := l.Accept(); return 0, err })
		time.Sleep(10 * time.Millisecond)
		l.SetDeadline(time.Now().Add(10 * time.Millisecond)) // sooner, while it waits
		w.noteErr("accept", wait(w.t, r).err)
		l.SetDeadline(time.Time{})
		r = async(func() (int, error) { _, err := l.Accept(); return 0, err })
		time.Sleep(10 * time.Millisecond)
		w.noteErr("close", l.Close())
		w.noteErr("accept", wait(w.t, r).err)
		w.noteErr("close", l.Close())
		_, err = l.Accept()
		w.noteErr("accept", err)
		w.note("address", addr(l.Addr()), nil)
	},
	"listener's deadline after close": func(w *world) {
		l := w.listen()
		l.Close()
		err := l.SetDeadline(time.Time{})
		w.note("SetDeadline", errors.Is(err, net.ErrClosed), nil)
	},
	"listen again": func(w *world) {
		l := w.listen()
		_, err := w.listenOn("tcp", l.Addr().String())
		w.noteErr("listen", err)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		_, err = w.listenOn("tcp4", "0.0.0.0:"+port)
		w.note("listen on any", strings.ReplaceAll(describe(err), port, "PORT"), nil)
		l.Close()
		l2, err := w.listenOn("tcp", l.Addr().String())
		w.noteErr("listen", err)
		l2.Close()
		any, err := w.listenOn("tcp4", "0.0.0.0:"+port)
		w.noteErr("listen on any", err)
		_, err = w.listenOn("tcp4", w.server+":"+port)
		w.noteErr("listen on one", err)
		c, err := w.dialFrom(context.Background(), dialing{}, "tcp", w.server+":"+port)
		w.noteErr("dial", err)
		if err == nil {
			s, err := any.Accept()
			w.noteErr("accept", err)
			w.note("address", addr(s.LocalAddr()), nil)
			c.Close()
			s.Close()
		}
		any.Close()
	},
	"bad addresses": func(w *world) {
		for _, a := range []string{"", "x", "1.2.3.4", "1.2.3.4:99999", "1.2.3.4:-1", "1.2.3.4:nosuchservice", "[1.2.3.4", "1:2:3", "[::1]x:1"} {
			_, err := w.listenOn("tcp4", a)
			if a != "" { // net listens anywhere then
				w.noteErr("listen on "+a, err)
			}
			_, err = w.dialFrom(context.Background(), dialing{}, "tcp4", a)
			if a != "" {
				w.noteErr("dial "+a, err)
			}
		}
		_, err := w.listenOn("tcp9", w.server+":0")
		w.noteErr("listen on tcp9", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp9", w.server+":1")
		w.noteErr("dial tcp9", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp6", w.server+":1")
		w.noteErr("dial IPv4 over tcp6", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp4", "[fe80::1]:1")
		w.noteErr("dial IPv6 over tcp4", err)
		_, err = w.listenOn("tcp", "192.0.2.1:1")
		w.noteErr("listen on another's address", err)
	},
	"refused": func(w *world) {
		l := w.listen()
		l.Close()
		_, err := w.dialFrom(context.Background(), dialing{}, "tcp", l.Addr().String())
		w.noteErr("dial", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp4", l.Addr().String())
		w.noteErr("dial tcp4", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp", w.server+":0")
		w.noteErr("dial port 0", err)
		_, err = w.dialFrom(context.Background(), dialing{local: "192.0.2.1:0"}, "tcp", l.Addr().String())
		w.noteErr("dial from another's address", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp", "255.255.255.255:1")
		w.noteErr("dial everybody", err)
		_, err = w.dialFrom(context.Background(), dialing{}, "tcp", "224.0.0.1:1")
		w.noteErr("dial a group", err)
	},
	"contexts": func(w *world) {
		l := w.listen()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := w.dialFrom(ctx, dialing{}, "tcp", l.Addr().String())
		w.noteErr("cancelled before", err)
		_, err = w.dialFrom(context.Background(), dialing{timeout: -1}, "tcp", l.Addr().String())
		w.note("timeout before", timeoutOf(err), nil)
		_, err = w.dialFrom(context.Background(), dialing{deadline: past}, "tcp", l.Addr().String())
		w.note("deadline before", timeoutOf(err), nil)
		c, err := w.dialFrom(context.Background(), dialing{timeout: time.Minute, deadline: time.Now().Add(time.Hour)}, "tcp", l.Addr().String())
		w.note("in time", "", err)
		if err == nil {
			c.Close()
		}
	},
}

// timeoutOf describes an error of a dial that took too long. Which of two errors package net returns is decided by a race there.
func timeoutOf(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || !op.Timeout() || op.Err.Error() != "i/o timeout" {
		return describe(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return "is no timeout"
	}
	return op.Op + " " + op.Net + " timeout"
}

// endless is a reader that gives zeros for ever, and a little time to others.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// broken reads and writes three bytes and fails then.
type broken struct{ n int }

var errBroken = errors.New("broken")

func (b *broken) Read(p []byte) (int, error) {
	if b.n++; b.n > 1 {
		return 0, errBroken
	}
	return copy(p, "abc"), nil
}

func (b *broken) Write(p []byte) (int, error) { return 3, errBroken }

// The kernel over loopback and we return the same, to the letter.
func TestLikeNet(t *testing.T) {
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			k, o := kernelWorld(t), ourWorld(t)
			op(k)
			op(o)
			if diff := cmp.Diff(k.log, o.log); diff != "" {
				t.Errorf("the kernel (-) and we (+) differ:\n%s", diff)
			}
			if testing.Verbose() {
				for _, l := range o.log {
					t.Log(l)
				}
			}
			if len(k.log) == 0 {
				t.Error("nothing was compared")
			}
		})
	}
}

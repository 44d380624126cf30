// Package sock is the stack's programming interface: net.Conn, net.Listener and a dialer, with the semantics of package net.
//
//	ln, err := sock.Listen(st, "tcp", ":80") // for http.Serve
//	d := sock.Dialer{Stack: st}              // d.DialContext is for http.Transport
//
// Errors are those of package net: *net.OpError with a system call's error number inside (errors.Is finds syscall.ECONNRESET),
// net.ErrClosed, os.ErrDeadlineExceeded. Addresses are numbers: there is no name resolution.
package sock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Conn is a TCP connection. It implements net.Conn; as with net.TCPConn several goroutines may use it at once.
type Conn struct {
	c     *tcp.Conn
	clock stack.Clock

	rmu, wmu           sync.Mutex // one reader, one writer at a time
	postedRd, postedWr int64      // deadlines that the worker knows
	closed             atomic.Bool
	abortive           atomic.Bool // Close resets
}

var _ net.Conn = (*Conn)(nil)

func newConn(st *stack.Stack, c *tcp.Conn) *Conn {
	return &Conn{c: c, clock: st.Clock()}
}

// LocalAddr is the address of this end, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.c.Tuple.LocalAddr()) }

// RemoteAddr is the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.c.Tuple.RemoteAddr()) }

// TCP is the engine's half of the connection, for options and figures that net.Conn does not have.
func (c *Conn) TCP() *tcp.Conn { return c.c }

// Read reads up to len(p) bytes. It returns io.EOF after the peer's orderly end.
func (c *Conn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	for armed := false; ; {
		err := c.usable(&c.c.RdDeadline)
		n := 0
		if err == nil {
			n, err = c.c.TryRead(p)
		}
		switch {
		case err != tcp.ErrWouldBlock:
			if armed {
				c.c.Rd.Disarm()
			}
			if err != nil && err != io.EOF {
				err = c.opError("read", err)
			}
			return n, err
		case !armed:
			c.c.Rd.Arm() // then look once more
			armed = true
		default:
			c.postDeadline(&c.c.RdDeadline, &c.postedRd)
			c.c.Rd.Wait()
			armed = false
		}
	}
}

// Write writes all of p, unless it fails or the deadline passes; it then returns how much was taken.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	done := 0
	for armed := false; ; {
		err := c.usable(&c.c.WrDeadline)
		if err == nil {
			var n int
			n, err = c.c.TryWrite(p[done:])
			done += n
		}
		switch {
		case done == len(p) && err != tcp.ErrWouldBlock, err != nil && err != tcp.ErrWouldBlock:
			if armed {
				c.c.Wr.Disarm()
			}
			if err != nil {
				err = c.opError("write", err)
			}
			return done, err
		case !armed:
			c.c.Wr.Arm() // then look once more
			armed = true
		case err == tcp.ErrWouldBlock:
			c.postDeadline(&c.c.WrDeadline, &c.postedWr)
			c.c.Wr.Wait()
			armed = false
		}
	}
}

// usable returns the error of a call that may not wait: closed, or past its deadline.
func (c *Conn) usable(deadline *atomic.Int64) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	if d := tcp.Deadline(deadline); d != plugins.Never && d <= c.clock.Now() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// postDeadline tells the worker about a deadline before a wait, if it does not know it yet.
func (c *Conn) postDeadline(deadline *atomic.Int64, posted *int64) {
	if d := deadline.Load(); d != *posted {
		*posted = d
		c.c.DeadlineChanged()
	}
}

// SetDeadline sets both deadlines. The zero time means none; calls that wait take it up.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of Read.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(&c.c.RdDeadline, &c.c.Rd, t)
}

// SetWriteDeadline sets the deadline of Write.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(&c.c.WrDeadline, &c.c.Wr, t)
}

func (c *Conn) setDeadline(d *atomic.Int64, w *tcp.Waiter, t time.Time) error {
	if c.closed.Load() {
		return c.opError("set", net.ErrClosed)
	}
	at := int64(0)
	if !t.IsZero() {
		at = int64(stack.At(c.clock, t))
	}
	d.Store(at)
	w.Wake()
	return nil
}

// CloseWrite ends this end's stream; the peer reads io.EOF after all data. Reading goes on.
func (c *Conn) CloseWrite() error {
	if c.closed.Load() {
		return c.opError("close", net.ErrClosed)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.c.CloseWrite()
	return nil
}

// Close closes the connection: what was written is still delivered, unless received data was not read, for which the peer gets a
// reset. Calls that wait return net.ErrClosed.
func (c *Conn) Close() error {
	if c.abortive.Load() {
		return c.Abort()
	}
	return c.end((*tcp.Conn).Close)
}

// SetLinger says what Close does with data that is not delivered yet, as net.TCPConn's does: with 0 the connection is reset and the
// data lost; otherwise Close returns at once and the data is still delivered, however long that takes.
func (c *Conn) SetLinger(sec int) error {
	c.abortive.Store(sec == 0)
	return nil
}

// Abort resets the connection; what was written and not delivered is lost.
func (c *Conn) Abort() error { return c.end((*tcp.Conn).Abort) }

func (c *Conn) end(how func(*tcp.Conn)) error {
	if c.closed.Swap(true) {
		return c.opError("close", net.ErrClosed)
	}
	c.c.Rd.Wake()
	c.c.Wr.Wake()
	c.rmu.Lock() // the calls that waited have left
	c.wmu.Lock()
	defer c.rmu.Unlock()
	defer c.wmu.Unlock()
	how(c.c)
	return nil
}

// SetNoDelay turns Nagle's algorithm off (true) or on.
func (c *Conn) SetNoDelay(on bool) error {
	c.c.SetOption(tcp.OptNoDelay, on)
	return nil
}

// SetKeepAlive turns keepalive probes on or off.
func (c *Conn) SetKeepAlive(on bool) error {
	c.c.SetOption(tcp.OptKeepalive, on)
	return nil
}

// SetWriteBuffer limits the bytes written and not acknowledged yet, at least 4096; by default the limit follows the congestion window.
func (c *Conn) SetWriteBuffer(bytes int) error {
	c.c.SetSendBuffer(bytes)
	return nil
}

// SetMaxPacingRate limits the connection to rate payload bytes per second; 0 lifts the limit.
func (c *Conn) SetMaxPacingRate(rate uint64) error {
	c.c.SetMaxRate(rate)
	return nil
}

var errnos = map[tcp.Errno]syscall.Errno{
	tcp.Reset: syscall.ECONNRESET, tcp.Refused: syscall.ECONNREFUSED, tcp.TimedOut: syscall.ETIMEDOUT,
	tcp.Aborted: syscall.ECONNABORTED, tcp.Unreachable: syscall.EHOSTUNREACH, tcp.PortInUse: syscall.EADDRINUSE,
	tcp.NoMemory: syscall.ENOBUFS, tcp.Shutdown: syscall.EPIPE,
}

// sysError turns an engine's error into what package net would return.
func sysError(call string, err error) error {
	var e tcp.Errno
	if errors.As(err, &e) {
		return os.NewSyscallError(call, errnos[e])
	}
	return err
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: sysError(op, err)}
}

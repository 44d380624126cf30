package sock

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Conn is a TCP connection. It implements net.Conn and has the methods of *net.TCPConn but those that need a file descriptor: SyscallConn,
// File and MultipathTCP. Several goroutines may use it at once.
type Conn struct {
	c  *tcp.Conn
	st *stack.Stack

	rmu, wmu           sync.Mutex    // one reader, one writer at a time
	postedRd, postedWr int64         // deadlines that the worker knows
	room               *room         // the writer's, which holds wmu; nil until the first Reserve
	reserved           atomic.Uint32 // state of the reservation
	flags              flags
}

// flags are bits of a Conn, and behind them the index into networks.
type flags struct{ v atomic.Uint32 }

const (
	closed       uint32 = 1 << iota
	abortive            // Close resets
	rdShut              // CloseRead
	told                // a call has returned the error that the connection ended with
	networkShift = 8
)

func (f *flags) has(bit uint32) bool { return f.v.Load()&bit != 0 }

// set sets a bit and reports whether it was set before.
func (f *flags) set(bit uint32) bool { return f.v.Or(bit)&bit != 0 }

func (f *flags) clear(bit uint32) { f.v.And(^bit) }

var _ net.Conn = (*Conn)(nil)

func newConn(st *stack.Stack, c *tcp.Conn, network uint8) *Conn {
	s := &Conn{c: c, st: st}
	s.flags.v.Store(uint32(network) << networkShift)
	return s
}

// network is the name that the connection was made with.
func (c *Conn) network() string { return networks[c.flags.v.Load()>>networkShift] }

// LocalAddr is the address of this end, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.addr(c.c.Tuple.LocalAddr()) }

// RemoteAddr is the address of the peer, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.addr(c.c.Tuple.RemoteAddr()) }

// TCP is the engine's half of the connection.
func (c *Conn) TCP() *tcp.Conn { return c.c }

// Read reads up to len(p) bytes. It returns io.EOF after the peer's orderly end, and when everything is read after CloseRead. A read of
// no bytes returns at once.
func (c *Conn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if len(p) == 0 {
		return 0, c.open("read")
	}
	for armed := false; ; {
		n, err := c.tryRead(p)
		if err != tcp.ErrWouldBlock {
			looked(armed, &c.c.Rd)
			return n, c.readError(err)
		}
		armed = await(c.c, armed, &c.c.Rd, &c.c.RdDeadline, &c.postedRd)
	}
}

func (c *Conn) tryRead(p []byte) (n int, err error) {
	if err = c.usable(&c.c.RdDeadline); err != nil {
		return 0, err
	}
	shut := c.flags.has(rdShut) // before the stream: what came until then is read
	if n, err = c.c.TryRead(p); err == tcp.ErrWouldBlock && shut {
		err = io.EOF
	}
	return n, err
}

// open returns an error if the connection was closed.
func (c *Conn) open(op string) error {
	if c.flags.has(closed) {
		return c.opError(op, net.ErrClosed)
	}
	return nil
}

// readError makes the engine's error of a read one of package net's.
func (c *Conn) readError(err error) error {
	if err = c.taken(err, io.EOF); err == nil || err == io.EOF {
		return err
	}
	return c.opError("read", sysError("read", err))
}

// Write writes all of p, unless it fails or the deadline passes; it then returns how much was taken.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.write(p)
}

func (c *Conn) write(p []byte) (int, error) {
	done := 0
	for armed := false; ; {
		err := c.usable(&c.c.WrDeadline)
		if err == nil {
			var n int
			n, err = c.c.TryWrite(p[done:])
			done += n
		}
		switch {
		case err == tcp.ErrWouldBlock:
			armed = await(c.c, armed, &c.c.Wr, &c.c.WrDeadline, &c.postedWr)
		case err != nil || done == len(p):
			looked(armed, &c.c.Wr)
			return done, c.writeError(err)
		}
	}
}

// writeError makes the engine's error of a write one of package net's.
func (c *Conn) writeError(err error) error {
	if err == nil {
		return nil
	}
	return c.opError("write", sysError("write", c.taken(err, tcp.Shutdown)))
}

// usable returns the error of a call that may not wait: closed, or past its deadline.
func (c *Conn) usable(deadline *atomic.Int64) error {
	if c.flags.has(closed) {
		return net.ErrClosed
	}
	return overdue(c.st.Clock(), deadline)
}

// SetDeadline sets both deadlines. The zero time means none; calls that wait take it up.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of Read, ReadBuffers and WriteTo.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(&c.c.RdDeadline, &c.c.Rd, t)
}

// SetWriteDeadline sets the deadline of Write, Reserve and ReadFrom.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(&c.c.WrDeadline, &c.c.Wr, t)
}

func (c *Conn) setDeadline(d *atomic.Int64, w *tcp.Waiter, t time.Time) error {
	if c.flags.has(closed) {
		return c.setError(net.ErrClosed)
	}
	moveDeadline(c.st.Clock(), d, w, t)
	return nil
}

// CloseRead makes reads return io.EOF as soon as what was received is read. The peer is told nothing, and its data is still taken, as in
// Linux.
func (c *Conn) CloseRead() error {
	if err := c.shutdown(); err != nil {
		return err
	}
	c.flags.set(rdShut)
	c.c.Rd.Wake()
	return nil
}

// CloseWrite ends this end's stream; the peer reads io.EOF after all data. Reading goes on.
func (c *Conn) CloseWrite() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.shutdown(); err != nil {
		return err
	}
	c.c.CloseWrite()
	return nil
}

// shutdown returns the error of shutdown(2).
func (c *Conn) shutdown() error {
	if c.flags.has(closed) {
		return c.opError("close", net.ErrClosed)
	}
	if c.c.Done() {
		return c.opError("close", os.NewSyscallError("shutdown", syscall.ENOTCONN))
	}
	return nil
}

// Close closes the connection: what was written is still delivered, unless received data was not read, for which the peer gets a
// reset. Calls that wait return net.ErrClosed.
func (c *Conn) Close() error {
	if c.flags.has(abortive) {
		return c.Abort()
	}
	return c.end((*tcp.Conn).Close)
}

// Abort resets the connection; what was written and not delivered is lost.
func (c *Conn) Abort() error { return c.end((*tcp.Conn).Abort) }

func (c *Conn) end(how func(*tcp.Conn)) error {
	if c.flags.set(closed) {
		return c.opError("close", net.ErrClosed)
	}
	c.c.Rd.Wake()
	c.c.Wr.Wake()
	c.rmu.Lock() // the calls that waited have left
	defer c.rmu.Unlock()
	if !c.reserved.CompareAndSwap(holdsRoom, closedOver) { // else wmu is locked, and Commit leaves it to us
		c.wmu.Lock()
	}
	defer c.wmu.Unlock()
	how(c.c)
	return nil
}

package posix

import (
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"golang.org/x/sys/unix"
)

// desc is what a descriptor stands for: a TCP socket, or an epoll instance.
type desc struct {
	w        *World
	family   int
	nonblock bool
	bound    netip.AddrPort
	reuse    bool
	listener *tcp.Listener
	conn     *tcp.Conn
	dialing  bool  // connect was called and has not reported its outcome
	errTaken bool  // the connection's error was reported
	rdShut   bool  // SHUT_RD
	opts     []opt // for the connection, once it is there
	linger   unix.Linger
	rcvTime  time.Duration
	sndTime  time.Duration
	ep       *epoll

	wrote, read uint64 // bytes of the streams
}

func (w *World) newFD(d *desc) int {
	fd := 3
	for w.fds[fd] != nil {
		fd++
	}
	w.fds[fd] = d
	return fd
}

// Socket is socket(2): TCP over IPv4 or IPv6.
func (w *World) Socket(domain, typ, proto int) Call {
	return func() (Result, bool) {
		switch {
		case domain != unix.AF_INET && domain != unix.AF_INET6:
			return fail(unix.EAFNOSUPPORT)
		case typ&0xf != unix.SOCK_STREAM || proto != 0 && proto != unix.IPPROTO_TCP:
			return fail(unix.EPROTONOSUPPORT)
		}
		return ok(w.newFD(&desc{w: w, family: domain, nonblock: typ&unix.SOCK_NONBLOCK != 0}))
	}
}

// with makes a call on a descriptor.
func (w *World) with(fd int, f func(*desc) (Result, bool)) Call {
	d := w.fds[fd]
	if d == nil {
		return failing(unix.EBADF)
	}
	return func() (Result, bool) { return f(d) }
}

// withSocket makes a call on a socket.
func (w *World) withSocket(fd int, f func(*desc) (Result, bool)) Call {
	return w.with(fd, func(d *desc) (Result, bool) {
		if d.ep != nil {
			return fail(unix.ENOTSOCK)
		}
		return f(d)
	})
}

// Bind is bind(2).
func (w *World) Bind(fd int, addr netip.AddrPort) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if d.bound.IsValid() || d.conn != nil || d.listener != nil {
			return fail(unix.EINVAL)
		}
		if a := addr.Addr(); !a.IsUnspecified() && !w.local(a) {
			return fail(unix.EADDRNOTAVAIL)
		}
		for _, o := range w.fds {
			if o != d && addr.Port() != 0 && o.bound.Port() == addr.Port() && (o.listener != nil || !o.reuse || !d.reuse) && overlap(o.bound.Addr(), addr.Addr()) {
				return fail(unix.EADDRINUSE)
			}
		}
		d.bound = addr
		return ok(0)
	})
}

func overlap(a, b netip.Addr) bool { return a == b || a.IsUnspecified() || b.IsUnspecified() }

func (w *World) local(a netip.Addr) bool {
	for _, p := range w.Stack.Addrs() {
		if p.Addr() == a.Unmap() {
			return true
		}
	}
	return false
}

// Listen is listen(2).
func (w *World) Listen(fd, backlog int) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if d.conn != nil {
			return fail(unix.EINVAL)
		}
		if d.listener != nil {
			return ok(0)
		}
		if backlog < 0 {
			backlog = unix.SOMAXCONN
		}
		// The accept queue holds one more than the backlog (a full one is one that has more than the backlog).
		var setup *tcp.Setup
		for _, o := range d.opts {
			if o.level == unix.IPPROTO_TCP && o.name == unix.TCP_FASTOPEN {
				setup = &tcp.Setup{FastOpenQueue: o.val}
			}
		}
		l, err := w.Stack.ListenAs(d.bound, backlog+1, false, setup)
		if err != nil {
			return fail(errno(err))
		}
		d.listener, d.bound = l, l.Addr()
		return ok(0)
	})
}

// Accept is accept4(2). peer, if it is not nil, is set to the other end's address.
func (w *World) Accept(fd, flags int, peer *netip.AddrPort) Call {
	var end plugins.Time
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if d.listener == nil {
			return fail(unix.EINVAL)
		}
		c, err := d.listener.TryAccept()
		if err == tcp.ErrWouldBlock {
			return d.block(&end, d.rcvTime, flags&unix.SOCK_NONBLOCK != 0 && d.nonblock)
		}
		if err != nil {
			return fail(errno(err))
		}
		n := &desc{w: w, family: d.family, nonblock: flags&unix.SOCK_NONBLOCK != 0, conn: c, bound: c.Tuple.LocalAddr(), opts: d.opts, linger: d.linger, reuse: d.reuse}
		n.applyAll()
		if peer != nil {
			*peer = c.Tuple.RemoteAddr()
		}
		return ok(w.newFD(n))
	})
}

// block is the end of a try that cannot go on: EAGAIN if the descriptor or the call does not block, or when its time is over.
func (d *desc) block(end *plugins.Time, timeout time.Duration, dontWait bool) (Result, bool) {
	if d.nonblock || dontWait {
		return fail(unix.EAGAIN)
	}
	if timeout > 0 {
		if *end == 0 {
			*end = d.w.after(timeout)
		} else if d.w.now >= *end {
			return fail(unix.EAGAIN)
		}
	}
	return wait()
}

// Connect is connect(2).
func (w *World) Connect(fd int, addr netip.AddrPort) Call {
	first, began := true, false
	var end plugins.Time
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		switch {
		case d.listener != nil, first && d.conn != nil && !d.dialing:
			return fail(unix.EISCONN)
		case d.conn == nil || first && d.conn.Up() && d.conn.Err() != tcp.OK && d.errTaken: // SO_ERROR told of the last one's failure
			if r, done := d.dial(addr); done {
				return r, true
			}
			began = true
		}
		first = false
		switch {
		case d.conn.Up():
			return d.dialed()
		case d.nonblock && began:
			return fail(unix.EINPROGRESS)
		case d.nonblock:
			return fail(unix.EALREADY)
		}
		r, done := d.block(&end, d.sndTime, false)
		if done {
			r.Err = unix.EINPROGRESS
		}
		return r, done
	})
}

// dialed reports the outcome of an attempt. After an error the socket may connect again.
func (d *desc) dialed() (Result, bool) {
	d.dialing = false
	if n := d.takeError(); n != 0 {
		d.conn.Close()
		d.conn, d.errTaken = nil, false
		return fail(n)
	}
	return ok(0)
}

// dial begins an active open; done means that it failed.
func (d *desc) dial(addr netip.AddrPort) (Result, bool) {
	c, err := d.w.Stack.Connect(d.bound, addr)
	if err != nil {
		return fail(errno(err))
	}
	d.conn, d.dialing, d.errTaken = c, true, false
	d.applyAll()
	return Result{}, false
}

// takeError returns the connection's error, once; 0 if there is none.
func (d *desc) takeError() syscall.Errno {
	if d.conn == nil || d.errTaken || d.conn.Err() == tcp.OK {
		return 0
	}
	d.errTaken = true
	return errno(d.conn.Err())
}

// Read is recvmsg(2) into the given buffers; read, readv, recv and recvfrom are made of it. flags are MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL.
func (w *World) Read(fd int, bufs [][]byte, flags int) Call {
	done := 0
	var end plugins.Time
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if d.conn == nil || d.dialing && !d.conn.Up() && !d.nonblock {
			return fail(unix.ENOTCONN)
		}
		if flags&^(unix.MSG_DONTWAIT|unix.MSG_PEEK|unix.MSG_WAITALL|unix.MSG_NOSIGNAL) != 0 {
			return fail(unix.EOPNOTSUPP)
		}
		if flags&unix.MSG_PEEK != 0 {
			return d.peek(bufs, flags, &end)
		}
		n, err := d.readSome(bufs, done)
		done += n
		full := done == total(bufs)
		switch {
		case full, done > 0 && (err == io.EOF || flags&unix.MSG_WAITALL == 0):
			return ok(done)
		case err == io.EOF || d.rdShut:
			return ok(0)
		case err != nil && err != tcp.ErrWouldBlock:
			if n := d.takeError(); n != 0 && done == 0 {
				return fail(n)
			}
			return ok(done)
		}
		r, isDone := d.block(&end, d.rcvTime, flags&unix.MSG_DONTWAIT != 0)
		if isDone && done > 0 {
			return ok(done)
		}
		return r, isDone
	})
}

func total(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

// from is what of the buffers is behind the first n bytes.
func from(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if len(bufs) == 0 {
		return nil
	}
	return append([][]byte{bufs[0][n:]}, bufs[1:]...)
}

// readSome reads until the buffers are full or nothing is there.
func (d *desc) readSome(bufs [][]byte, done int) (n int, err error) {
	for _, b := range from(bufs, done) {
		for len(b) > 0 {
			k, err := d.conn.TryRead(b)
			n += k
			d.read += uint64(k)
			b = b[k:]
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (d *desc) peek(bufs [][]byte, flags int, end *plugins.Time) (Result, bool) {
	p := d.conn.Peek()
	if len(p) == 0 {
		if _, err := d.conn.TryRead(nil); err == io.EOF || d.rdShut {
			return ok(0)
		} else if err != nil {
			return fail(errno(err))
		}
		return d.block(end, d.rcvTime, flags&unix.MSG_DONTWAIT != 0)
	}
	n := 0
	for _, b := range bufs {
		k := copy(b, p)
		n += k
		p = p[k:]
	}
	return ok(n)
}

// Write is sendmsg(2) of the given buffers; write, writev, send and sendto are made of it. flags are MSG_DONTWAIT, MSG_MORE,
// MSG_NOSIGNAL.
func (w *World) Write(fd int, bufs [][]byte, flags int) Call {
	done := 0
	var end plugins.Time
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if d.conn == nil {
			return fail(unix.EPIPE)
		}
		if flags&^(unix.MSG_DONTWAIT|unix.MSG_MORE|unix.MSG_NOSIGNAL) != 0 {
			return fail(unix.EOPNOTSUPP)
		}
		if flags&unix.MSG_MORE != 0 {
			d.conn.SetOption(tcp.OptCork, true)
		} else if d.cork() {
			defer d.conn.SetOption(tcp.OptCork, false)
		}
		n, err := d.writeSome(bufs, done)
		done += n
		switch {
		case err == nil:
			return ok(done)
		case err != tcp.ErrWouldBlock:
			if done > 0 {
				return ok(done)
			}
			if n := d.takeError(); n != 0 {
				return fail(n)
			}
			return fail(unix.EPIPE)
		case done > 0 && (d.nonblock || flags&unix.MSG_DONTWAIT != 0):
			return ok(done)
		}
		r, isDone := d.block(&end, d.sndTime, flags&unix.MSG_DONTWAIT != 0)
		if isDone && done > 0 {
			return ok(done)
		}
		return r, isDone
	})
}

// cork reports whether a segment may be held back by MSG_MORE alone.
func (d *desc) cork() bool {
	for _, o := range d.opts {
		if o.level == unix.IPPROTO_TCP && o.name == unix.TCP_CORK {
			return o.val == 0
		}
	}
	return true
}

func (d *desc) writeSome(bufs [][]byte, done int) (n int, err error) {
	if total(bufs) == 0 {
		return d.conn.TryWrite(nil)
	}
	for _, b := range from(bufs, done) {
		for len(b) > 0 {
			k, err := d.conn.TryWrite(b)
			n += k
			d.wrote += uint64(k)
			b = b[k:]
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Wrote and HasRead are how many bytes were written to and read from a descriptor.
func (w *World) Wrote(fd int) uint64 {
	if d := w.fds[fd]; d != nil {
		return d.wrote
	}
	return 0
}

// HasRead is how many bytes were read from a descriptor.
func (w *World) HasRead(fd int) uint64 {
	if d := w.fds[fd]; d != nil {
		return d.read
	}
	return 0
}

// Shutdown is shutdown(2).
func (w *World) Shutdown(fd, how int) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if d.conn == nil || d.conn.Done() || !d.conn.Up() {
			return fail(unix.ENOTCONN)
		}
		if how < unix.SHUT_RD || how > unix.SHUT_RDWR {
			return fail(unix.EINVAL)
		}
		if how != unix.SHUT_WR {
			d.rdShut = true
		}
		if how != unix.SHUT_RD {
			d.conn.CloseWrite()
		}
		return ok(0)
	})
}

// CloseFD is close(2) with the semantics of SO_LINGER: with a time of 0 the connection is reset, with another one the call waits until
// the peer has acknowledged everything, or until the time is over.
func (w *World) CloseFD(fd int) Call {
	var end plugins.Time
	var c *tcp.Conn
	closed := false
	return func() (Result, bool) {
		d := w.fds[fd]
		if !closed && d == nil {
			return fail(unix.EBADF)
		}
		if !closed {
			closed = true
			delete(w.fds, fd)
			w.closeDesc(d)
			if d.conn == nil || d.linger.Onoff == 0 || d.linger.Linger == 0 || d.nonblock {
				return ok(0)
			}
			end = w.after(time.Duration(d.linger.Linger) * time.Second)
			c = d.conn
		}
		if c.Unsent() > 0 && !c.Done() && w.now < end {
			return wait()
		}
		return ok(0)
	}
}

func (w *World) closeDesc(d *desc) {
	for _, o := range w.fds {
		if o.ep != nil {
			o.ep.forget(d)
		}
	}
	switch {
	case d.listener != nil:
		w.Stack.CloseListener(d.listener)
	case d.conn != nil && d.linger.Onoff != 0 && d.linger.Linger == 0:
		d.conn.Abort()
	case d.conn != nil:
		d.conn.Close()
	}
}

// Conn is the connection behind a descriptor, or nil.
func (w *World) Conn(fd int) *tcp.Conn {
	if d := w.fds[fd]; d != nil {
		return d.conn
	}
	return nil
}

// Info returns the figures of the connection behind a descriptor.
func (w *World) Info(fd int) (tcp.Info, bool) {
	c := w.Conn(fd)
	if c == nil {
		return tcp.Info{}, false
	}
	for _, list := range [][]tcp.Info{w.Stack.Conns(), w.Stack.TimeWaits()} {
		for _, i := range list {
			if i.Local == c.Tuple.LocalAddr() && i.Remote == c.Tuple.RemoteAddr() {
				return i, true
			}
		}
	}
	return tcp.Info{State: tcp.Closed.String()}, true
}

// Bound is the address that a descriptor is bound to.
func (w *World) Bound(fd int) netip.AddrPort {
	if d := w.fds[fd]; d != nil {
		return d.bound
	}
	return netip.AddrPort{}
}

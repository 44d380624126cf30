package posix

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"golang.org/x/sys/unix"
)

// ready is what poll(2) would say of a descriptor now.
func (d *desc) ready() (ev uint32) {
	switch {
	case d.ep != nil:
		if len(d.ep.collect(1, false)) > 0 {
			ev = unix.POLLIN
		}
		return ev
	case d.listener != nil:
		if d.listener.Pending() > 0 {
			ev = unix.POLLIN | unix.EPOLLRDNORM
		}
		return ev
	case d.conn == nil:
		return unix.POLLOUT | unix.POLLHUP | unix.EPOLLWRNORM
	}
	c := d.conn
	failed := c.Err() != tcp.OK && !d.errTaken
	_, rdErr := c.TryRead(nil) // the end of the stream, or its error
	if c.Readable() > 0 || rdErr != nil || d.rdShut || failed {
		ev |= unix.POLLIN | unix.EPOLLRDNORM
	}
	if rdErr != nil || d.rdShut {
		ev |= unix.POLLRDHUP
	}
	// As in Linux there must be room for half of what waits already.
	if _, err := c.TryWrite(nil); err == nil && c.WriteRoom() > c.Unsent()/2 || err != nil && err != tcp.ErrWouldBlock {
		ev |= unix.POLLOUT | unix.EPOLLWRNORM
	}
	if failed {
		ev |= unix.POLLERR
	}
	if c.Done() {
		ev |= unix.POLLHUP
	}
	return ev
}

// Poll is poll(2); the revents of fds are set. timeout is in milliseconds, negative for ever.
func (w *World) Poll(fds []unix.PollFd, timeout int) Call {
	var end plugins.Time
	return func() (Result, bool) {
		n := 0
		for i := range fds {
			f := &fds[i]
			f.Revents = 0
			if f.Fd < 0 {
				continue
			}
			d := w.fds[int(f.Fd)]
			if d == nil {
				f.Revents = unix.POLLNVAL
			} else {
				f.Revents = int16(d.ready()) & (f.Events | unix.POLLERR | unix.POLLHUP)
			}
			if f.Revents != 0 {
				n++
			}
		}
		if n > 0 || w.over(&end, timeout) {
			return ok(n)
		}
		return wait()
	}
}

// over reports whether a timeout in milliseconds has passed; the first call starts it.
func (w *World) over(end *plugins.Time, timeout int) bool {
	if timeout == 0 {
		return true
	}
	if timeout > 0 && *end == 0 {
		*end = w.after(time.Duration(timeout) * time.Millisecond)
	}
	return timeout > 0 && w.now >= *end
}

// epoll is an epoll instance.
type epoll struct{ list []*watch }

type watch struct {
	d    *desc
	fd   int
	ev   unix.EpollEvent
	seen uint32 // edge-triggered: what was reported
	off  bool   // one-shot: was reported
	mark mark
}

// mark is how much a connection has moved; an edge is reported again when it has.
type mark struct {
	readable, unsent int
	flags            uint32
}

func (d *desc) mark() (m mark) {
	if d.conn != nil {
		m.readable, m.unsent = d.conn.Readable(), d.conn.Unsent()
	}
	if d.listener != nil {
		m.readable = d.listener.Pending()
	}
	m.flags = d.ready()
	return m
}

func (e *epoll) forget(d *desc) {
	for i, x := range e.list {
		if x.d == d {
			e.list = append(e.list[:i:i], e.list[i+1:]...)
			return
		}
	}
}

// EpollCreate is epoll_create(2).
func (w *World) EpollCreate() Call {
	return func() (Result, bool) { return ok(w.newFD(&desc{w: w, ep: new(epoll)})) }
}

// EpollCtl is epoll_ctl(2).
func (w *World) EpollCtl(epfd, op, fd int, ev unix.EpollEvent) Call {
	return w.with(epfd, func(d *desc) (Result, bool) {
		t := w.fds[fd]
		switch {
		case t == nil:
			return fail(unix.EBADF)
		case d.ep == nil || t == d:
			return fail(unix.EINVAL)
		}
		var old *watch
		for _, x := range d.ep.list {
			if x.d == t {
				old = x
			}
		}
		switch {
		case op == unix.EPOLL_CTL_ADD && old != nil:
			return fail(unix.EEXIST)
		case op == unix.EPOLL_CTL_ADD:
			d.ep.list = append(d.ep.list, &watch{d: t, fd: fd, ev: ev})
		case old == nil:
			return fail(unix.ENOENT)
		case op == unix.EPOLL_CTL_MOD:
			*old = watch{d: t, fd: fd, ev: ev}
		case op == unix.EPOLL_CTL_DEL:
			d.ep.forget(t)
		default:
			return fail(unix.EINVAL)
		}
		return ok(0)
	})
}

// collect returns at most n events; take makes edges and one-shots count as reported.
func (e *epoll) collect(n int, take bool) (out []unix.EpollEvent) {
	for _, x := range e.list {
		if len(out) == n || x.off {
			continue
		}
		m := x.d.mark()
		now := m.flags & (x.ev.Events | unix.EPOLLERR | unix.EPOLLHUP)
		fresh := now
		if x.ev.Events&unix.EPOLLET != 0 {
			fresh = now &^ x.seen
			if m.readable > x.mark.readable {
				fresh |= now & unix.EPOLLIN
			}
			if fresh != 0 {
				fresh = now // an edge reports all that holds
			}
		}
		if take || now == 0 {
			x.seen, x.mark = now, m
		}
		if fresh == 0 {
			continue
		}
		if take && x.ev.Events&unix.EPOLLONESHOT != 0 {
			x.off = true
		}
		ev := x.ev
		ev.Events = fresh
		out = append(out, ev)
	}
	return out
}

// EpollWait is epoll_wait(2); events are put into out. timeout is in milliseconds, negative for ever.
func (w *World) EpollWait(epfd int, out []unix.EpollEvent, timeout int) Call {
	var end plugins.Time
	return w.with(epfd, func(d *desc) (Result, bool) {
		if d.ep == nil || len(out) == 0 {
			return fail(unix.EINVAL)
		}
		if n := copy(out, d.ep.collect(len(out), true)); n > 0 || w.over(&end, timeout) {
			return ok(n)
		}
		return wait()
	})
}

package main

import (
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
	"github.com/fastpath-tcp/fastpath/test/script/posix"
	"golang.org/x/sys/unix"
)

// callers prepare the calls that scripts may make.
var callers map[string]func(*runner, args) (prepared, error)

func init() {
	callers = map[string]func(*runner, args) (prepared, error){
		"socket": (*runner).socket, "bind": onFD((*runner).bind), "listen": onFD((*runner).listen), "accept": onFD((*runner).accept),
		"accept4": onFD((*runner).accept), "connect": onFD((*runner).connect), "read": onFD((*runner).read), "recv": onFD((*runner).read), "recvfrom": onFD((*runner).read),
		"write": onFD((*runner).write), "send": onFD((*runner).write), "sendto": onFD((*runner).write), "readv": onFD((*runner).vector), "writev": onFD((*runner).vector),
		"recvmsg": onFD((*runner).vector), "sendmsg": onFD((*runner).vector), "shutdown": onFD((*runner).shutdown), "close": onFD((*runner).close),
		"setsockopt": onFD((*runner).setsockopt), "getsockopt": onFD((*runner).getsockopt), "fcntl": onFD((*runner).fcntl), "ioctl": onFD((*runner).ioctl),
		"poll": (*runner).poll, "epoll_create": (*runner).epollCreate, "epoll_create1": (*runner).epollCreate,
		"epoll_ctl": onFD((*runner).epollCtl), "epoll_wait": onFD((*runner).epollWait),
	}
}

// onFD makes a caller of one for calls whose first argument is a descriptor.
func onFD(f func(r *runner, fd int, a args) (prepared, error)) func(*runner, args) (prepared, error) {
	return func(r *runner, a args) (prepared, error) {
		fd, err := a.fd(0)
		if err != nil {
			return prepared{}, err
		}
		return f(r, fd, a)
	}
}

func (r *runner) family() int {
	if r.set.v6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (r *runner) socket(a args) (p prepared, err error) {
	domain := r.family()
	if !a.is(0, lang.Ellipsis) {
		if domain, err = a.num(0); err != nil {
			return p, err
		}
	}
	v, err := a.nums(1, 2)
	if err != nil {
		return p, err
	}
	return prepared{call: r.w.Socket(domain, v[0], v[1])}, nil
}

func (r *runner) bind(fd int, a args) (p prepared, err error) {
	addr, err := a.addr(1, netip.AddrPortFrom(r.set.local, r.set.bindPort))
	return prepared{call: r.w.Bind(fd, addr)}, err
}

func (r *runner) listen(fd int, a args) (p prepared, err error) {
	n, err := a.num(1)
	return prepared{call: r.w.Listen(fd, n), then: func(int) error {
		r.listening = r.w.Bound(fd).Port()
		return nil
	}}, err
}

func (r *runner) accept(fd int, a args) (p prepared, err error) {
	flags, err := a.optional(3)
	if err != nil {
		return p, err
	}
	return prepared{call: r.w.Accept(fd, flags, nil), then: func(fd int) error {
		r.flowOf[fd] = r.flowOfConn(r.w.Conn(fd))
		return nil
	}}, nil
}

func (r *runner) flowOfConn(c *tcp.Conn) *flow {
	l, p := c.Tuple.LocalAddr(), c.Tuple.RemoteAddr()
	for i := len(r.flows) - 1; i >= 0; i-- {
		if f := r.flows[i]; f.localPort == l.Port() && f.remotePort == p.Port() {
			return f
		}
	}
	return nil
}

func (r *runner) connect(fd int, a args) (p prepared, err error) {
	addr, err := a.addr(1, netip.AddrPortFrom(r.set.remote, r.set.connectPort))
	if err != nil {
		return p, err
	}
	inner := r.w.Connect(fd, addr)
	started := false
	return prepared{call: func() (posix.Result, bool) {
		before := r.w.Conn(fd)
		res, done := inner()
		if c := r.w.Conn(fd); !started && c != nil && c != before {
			started = true
			f := r.newFlow(c.Tuple.LocalPort, addr.Port())
			f.remote = addr.Addr()
			r.flowOf[fd] = f
			r.listening = 0
		}
		return res, done
	}}, nil
}

// read is read, recv or recvfrom.
func (r *runner) read(fd int, a args) (p prepared, err error) {
	n, err := a.num(2)
	if err != nil {
		return p, err
	}
	flags, err := a.optional(3)
	if err != nil {
		return p, err
	}
	if n < 0 || n > maxBytes {
		return p, &lang.Error{Line: a.line, Text: "bad length"}
	}
	b := make([]byte, n)
	off := r.w.HasRead(fd)
	return prepared{call: r.w.Read(fd, [][]byte{b}, flags), then: func(k int) error { return a.checkRead(1, b[:k], off) }}, nil
}

// write is write, send or sendto.
func (r *runner) write(fd int, a args) (p prepared, err error) {
	n, err := a.num(2)
	if err != nil {
		return p, err
	}
	flags, err := a.optional(3)
	if err != nil {
		return p, err
	}
	b, err := a.out(1, n, fd, r.w.Wrote(fd))
	if err != nil {
		return p, err
	}
	return prepared{call: r.w.Write(fd, [][]byte{b}, flags)}, nil
}

// vector is readv, writev, recvmsg or sendmsg.
func (r *runner) vector(fd int, a args) (p prepared, err error) {
	list, flags := a.at(1), 0
	name := r.event.Call.Name
	out := name == "writev" || name == "sendmsg"
	if name == "sendmsg" || name == "recvmsg" {
		if flags, err = a.num(2); err != nil {
			return p, err
		}
		if c := list.Field("msg_control"); c != nil && len(c.List) > 0 {
			return p, unsupported("control messages")
		}
		if list = list.Field("msg_iov"); list == nil {
			return p, unsupported("the message %v", a.at(1))
		}
	}
	sizes, err := a.iovecs(list)
	if err != nil {
		return p, err
	}
	off := r.w.HasRead(fd)
	if out {
		off = r.w.Wrote(fd)
	}
	all := 0
	for _, n := range sizes {
		all += n
	}
	b := make([]byte, all)
	if out {
		fill(b, uint32(off))
	}
	var bufs [][]byte
	for rest := b; len(sizes) > 0; sizes = sizes[1:] {
		bufs, rest = append(bufs, rest[:sizes[0]]), rest[sizes[0]:]
	}
	if out {
		return prepared{call: r.w.Write(fd, bufs, flags)}, nil
	}
	return prepared{call: r.w.Read(fd, bufs, flags), then: func(k int) error { return a.checkRead(-1, b[:k], off) }}, nil
}

func (r *runner) shutdown(fd int, a args) (p prepared, err error) {
	how, err := a.num(1)
	return prepared{call: r.w.Shutdown(fd, how)}, err
}

func (r *runner) close(fd int, _ args) (prepared, error) {
	return prepared{call: r.w.CloseFD(fd)}, nil
}

func (r *runner) setsockopt(fd int, a args) (p prepared, err error) {
	v, err := a.nums(1, 2)
	if err != nil {
		return p, err
	}
	level, name := v[0], v[1]
	val := a.at(3)
	if level == unix.SOL_SOCKET {
		switch name {
		case unix.SO_LINGER:
			l, ok := a.linger(val)
			if !ok {
				return p, unsupported("the linger %v", val)
			}
			return prepared{call: r.w.SetLinger(fd, l)}, nil
		case unix.SO_RCVTIMEO, unix.SO_SNDTIMEO:
			t, ok := timeval(val)
			if !ok {
				return p, unsupported("the time %v", val)
			}
			return prepared{call: r.w.SetTimeout(fd, name, t)}, nil
		}
	}
	n, err := number(val)
	if err != nil {
		return p, err
	}
	return prepared{call: r.w.SetOption(fd, level, name, n)}, nil
}

func (r *runner) getsockopt(fd int, a args) (p prepared, err error) {
	v, err := a.nums(1, 2)
	if err != nil {
		return p, err
	}
	level, name := v[0], v[1]
	want := a.at(3)
	if level == unix.SOL_SOCKET && name == unix.SO_LINGER {
		var l unix.Linger
		return prepared{call: r.w.GetLinger(fd, &l), then: func(int) error {
			if w, ok := a.linger(want); ok && w != l {
				return failf("getsockopt\n  expected: %v\n  got:      {onoff=%d, linger=%d}", want, l.Onoff, l.Linger)
			}
			return nil
		}}, nil
	}
	var n int
	return prepared{call: r.w.GetOption(fd, level, name, &n), then: func(int) error {
		if want.Kind == lang.Ellipsis || want.Kind == lang.Array && len(want.List) == 1 && want.List[0].Kind == lang.Ellipsis {
			return nil
		}
		w, err := r.optionValue(want)
		if err == nil && w != n {
			err = failf("getsockopt\n  expected: %v\n  got:      %d", want, n)
		}
		return err
	}}, nil
}

// optionValue is a number, or for SO_ERROR the name of one.
func (r *runner) optionValue(e *lang.Expr) (int, error) {
	if e.Kind == lang.Array && len(e.List) == 1 {
		e = &e.List[0]
	}
	if e.Kind == lang.Word {
		if n := errnoByName(e.Text); n != 0 {
			return int(n), nil
		}
	}
	return number(e)
}

func (r *runner) fcntl(fd int, a args) (p prepared, err error) {
	cmd, err := a.num(1)
	if err != nil {
		return p, err
	}
	arg, err := a.optional(2)
	if err != nil {
		return p, err
	}
	return prepared{call: r.w.Fcntl(fd, cmd, arg)}, nil
}

func (r *runner) ioctl(fd int, a args) (p prepared, err error) {
	req, err := a.num(1)
	if err != nil {
		return p, err
	}
	want, err := a.num(2)
	if err != nil {
		return p, err
	}
	n := want
	return prepared{call: r.w.Ioctl(fd, uint(req), &n), then: func(int) error {
		if n != want {
			return failf("ioctl\n  expected: %d\n  got:      %d", want, n)
		}
		return nil
	}}, nil
}

func (r *runner) poll(a args) (p prepared, err error) {
	v, err := a.nums(1, 2)
	if err != nil {
		return p, err
	}
	list := a.at(0)
	if list.Kind != lang.Array || len(list.List) != v[0] {
		return p, &lang.Error{Line: a.line, Text: "the list of descriptors is not as long as its number says"}
	}
	fds, want := make([]unix.PollFd, v[0]), make([]int, v[0])
	for i := range list.List {
		f := &list.List[i]
		fd, ev, rev := f.Field("fd"), f.Field("events"), f.Field("revents")
		if fd == nil || ev == nil {
			return p, unsupported("the descriptor %v", f)
		}
		one := args{r, []lang.Expr{*fd, *ev}, a.line}
		live, err := one.fd(0)
		if err != nil {
			return p, err
		}
		events, err := one.num(1)
		if err != nil {
			return p, err
		}
		if rev != nil {
			if want[i], err = number(rev); err != nil {
				return p, err
			}
		}
		fds[i] = unix.PollFd{Fd: int32(live), Events: int16(events)}
	}
	return prepared{call: r.w.Poll(fds, v[1]), then: func(int) error {
		for i := range fds {
			if int(uint16(fds[i].Revents)) != want[i] {
				return failf("poll\n  expected: revents %#x\n  got:      revents %#x", want[i], uint16(fds[i].Revents))
			}
		}
		return nil
	}}, nil
}

func (r *runner) epollCreate(args) (prepared, error) {
	return prepared{call: r.w.EpollCreate()}, nil
}

func (r *runner) epollCtl(ep int, a args) (p prepared, err error) {
	op, err := a.num(1)
	if err != nil {
		return p, err
	}
	fd, err := a.fd(2)
	if err != nil {
		return p, err
	}
	ev := unix.EpollEvent{Fd: int32(fd)}
	if e := a.at(3).Field("events"); e != nil {
		n, err := number(e)
		if err != nil {
			return p, err
		}
		ev.Events = uint32(n)
	}
	return prepared{call: r.w.EpollCtl(ep, op, fd, ev)}, nil
}

func (r *runner) epollWait(ep int, a args) (p prepared, err error) {
	v, err := a.nums(2, 3)
	if err != nil {
		return p, err
	}
	if v[0] < 1 || v[0] > 1024 {
		return p, &lang.Error{Line: a.line, Text: "bad number of events"}
	}
	want := []lang.Expr{*a.at(1)}
	if want[0].Kind == lang.Array || want[0].Kind == lang.Group && len(want[0].Fields) == 0 {
		want = want[0].List
	}
	out := make([]unix.EpollEvent, v[0])
	return prepared{call: r.w.EpollWait(ep, out, v[1]), then: func(n int) error {
		for i := range want {
			e := want[i].Field("events")
			if e == nil || i >= n {
				continue
			}
			ev, err := number(e)
			if err != nil {
				return err
			}
			if uint32(ev) != out[i].Events {
				return failf("epoll_wait\n  expected: events %#x\n  got:      events %#x", ev, out[i].Events)
			}
		}
		return nil
	}}, nil
}

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/test/script/lang"
	"github.com/fastpath-tcp/fastpath/test/script/posix"
	"golang.org/x/sys/unix"
)

// blockedCall is a call that was begun with "...".
type blockedCall struct {
	event *lang.Event
	call  *posix.Pending
	end   int64 // when it is to return, µs
	check func(posix.Result) error
}

// prepared is a call that is ready to begin, and what is done with its result if that is not an error.
type prepared struct {
	call posix.Call
	then func(ret int) error
}

// call makes a system call and compares its result.
func (r *runner) call(e *lang.Event, when int64) error {
	if err := r.waitBlocked(); err != nil { // one at a time
		return err
	}
	c := e.Call
	make, ok := callers[c.Name]
	if !ok {
		return unsupported("the call %s", c.Name)
	}
	p, err := make(r, args{r, c.Args, e.Line})
	if err != nil {
		return err
	}
	check := func(got posix.Result) error { return r.result(c, p, got) }
	pend := r.w.Do(p.call)
	r.collect()
	if c.Blocking {
		end := c.End
		if e.Kind == lang.Relative {
			end += when - e.At
		}
		r.blocked = &blockedCall{event: e, call: pend, end: end, check: check}
		if c.End == 0 && pend.Done || end <= when {
			return r.waitBlocked()
		}
		return nil
	}
	if !pend.Done {
		r.w.Cancel(pend)
		return failf("the call blocks\n  expected: %s = %v", c.Name, c.Result)
	}
	return check(pend.Result)
}

// checkBlocked looks at the call that blocks: has it ended, and when it had to?
func (r *runner) checkBlocked() error {
	b := r.blocked
	if b == nil {
		return nil
	}
	tol := max(r.set.tolUsecs, int64(r.set.tolPercent/100*float64(b.end)))
	if !b.call.Done {
		if r.now() > b.end+tol {
			r.blocked = nil
			return failf("line %d: %s\n  expected: returns at %s\n  got:      waits still at %s", b.event.Line, b.event.Text, seconds(b.end), seconds(r.now()))
		}
		return nil
	}
	r.blocked = nil
	if got := micros(b.call.At); got < b.end-tol || got > b.end+tol {
		return failf("line %d: %s\n  expected: returns at %s\n  got:      returned %s at %s", b.event.Line, b.event.Text, seconds(b.end), show(b.call.Result), seconds(got))
	}
	if err := b.check(b.call.Result); err != nil {
		return fmt.Errorf("line %d: %s: %w", b.event.Line, b.event.Text, err)
	}
	return nil
}

// waitBlocked lets time pass until the call that blocks has ended.
func (r *runner) waitBlocked() error {
	for r.blocked != nil {
		b := r.blocked
		if !b.call.Done {
			r.w.Step(at(b.end + r.set.tolUsecs + 1))
			r.collect()
		}
		if err := r.checkBlocked(); err != nil {
			return err
		}
		if r.blocked == b && r.now() > b.end+r.set.tolUsecs {
			return failf("line %d: %s\n  expected: returns at %s\n  got:      waits still", b.event.Line, b.event.Text, seconds(b.end))
		}
	}
	return nil
}

func show(x posix.Result) string {
	if x.Err != nil {
		return fmt.Sprintf("-1 %v (%v)", unix.ErrnoName(x.Err.(unix.Errno)), x.Err)
	}
	return fmt.Sprint(x.Ret)
}

// result compares what a call has returned with what the script says.
func (r *runner) result(c *lang.Call, p prepared, got posix.Result) error {
	want := -2
	if c.Result.Kind != lang.Ellipsis {
		var err error
		if want, err = number(&c.Result); err != nil {
			return err
		}
	}
	bad := func() error {
		return failf("%s\n  expected: %v %s\n  got:      %s", c.Name, c.Result, c.Errno, show(got))
	}
	if got.Err != nil {
		switch got.Err.(unix.Errno) {
		case unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ENOTTY:
			if c.Errno != unix.ErrnoName(got.Err.(unix.Errno)) {
				return unsupported("%s: %v", c.Name, got.Err)
			}
		}
		if want != -1 || c.Errno != "" && errnoByName(c.Errno) != got.Err {
			return bad()
		}
		return nil
	}
	if c.Errno != "" || newFD[c.Name] && want < 0 && want != -2 {
		return bad()
	}
	if newFD[c.Name] {
		r.fds[want] = got.Ret
	} else if want != -2 && got.Ret != want {
		return bad()
	}
	if p.then != nil {
		return p.then(got.Ret)
	}
	return nil
}

// newFD are calls whose result is a descriptor: a script's own number.
var newFD = map[string]bool{"socket": true, "accept": true, "accept4": true, "epoll_create": true, "epoll_create1": true}

// args are the arguments of a call.
type args struct {
	r    *runner
	list []lang.Expr
	line int
}

func (a args) at(i int) *lang.Expr {
	if i < len(a.list) {
		return &a.list[i]
	}
	return &lang.Expr{}
}

func (a args) is(i int, k lang.ExprKind) bool {
	return i >= 0 && i < len(a.list) && a.list[i].Kind == k
}

// num is the number at i; one that is not there is an error.
func (a args) num(i int) (int, error) {
	if i >= len(a.list) {
		return 0, &lang.Error{Line: a.line, Text: fmt.Sprintf("argument %d is missing", i+1)}
	}
	return number(&a.list[i])
}

// optional is the number at i, 0 if there is none.
func (a args) optional(i int) (int, error) {
	if i >= len(a.list) {
		return 0, nil
	}
	return a.num(i)
}

// nums are the numbers at several places.
func (a args) nums(at ...int) ([]int, error) {
	out := make([]int, len(at))
	for i, k := range at {
		v, err := a.num(k)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// fd is the live descriptor at i.
func (a args) fd(i int) (int, error) {
	v, err := a.num(i)
	if err != nil {
		return 0, err
	}
	if live, ok := a.r.fds[v]; ok {
		return live, nil
	}
	return -1, nil // EBADF
}

// addr is the address at i; "..." is def.
func (a args) addr(i int, def netip.AddrPort) (netip.AddrPort, error) {
	e := a.at(i)
	if e.Kind == lang.Ellipsis {
		return def, nil
	}
	port, ip := e.Field("sin_port"), e.Field("sin_addr")
	if ip == nil {
		port, ip = e.Field("sin6_port"), e.Field("sin6_addr")
	}
	if e.Kind != lang.Group || port == nil || ip == nil || len(port.List) != 1 || len(ip.List) != 1 {
		return def, unsupported("the address %v", e)
	}
	n, err := number(&port.List[0])
	if err != nil {
		return def, err
	}
	text := ip.List[0]
	if text.Text == "INADDR_ANY" {
		text.Text = "0.0.0.0"
	}
	addr, err := netip.ParseAddr(text.Text)
	if err != nil || n < 0 || n > 65535 {
		return def, &lang.Error{Line: a.line, Text: fmt.Sprintf("bad address %v", e)}
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

const maxBytes = 1 << 28

// out is the content of a call that writes: the text of argument i, or n bytes of the stream of fd.
func (a args) out(i, n, fd int, off uint64) ([]byte, error) {
	if n < 0 || n > maxBytes {
		return nil, &lang.Error{Line: a.line, Text: fmt.Sprintf("%d bytes", n)}
	}
	b := make([]byte, n)
	if a.is(i, lang.String) {
		copy(b, a.at(i).Text)
		if f := a.r.flowOf[fd]; f != nil {
			f.plain = true
		} else if a.r.cur != nil {
			a.r.cur.plain = true
		}
		return b, nil
	}
	fill(b, uint32(off))
	return b, nil
}

// checkRead compares what was read from fd, whose stream was at offset off, with what the script or the pattern says.
func (a args) checkRead(i int, b []byte, off uint64) error {
	if a.is(i, lang.String) {
		if want := a.at(i).Text; !strings.HasPrefix(want, string(b)) && !strings.HasPrefix(string(b), want) {
			return failf("read other content\n  expected: %q\n  got:      %q", want, b)
		}
		return nil
	}
	for k := range b {
		if b[k] != pattern(uint32(off)+uint32(k)) {
			return failf("byte %d of what was read is wrong", off+uint64(k))
		}
	}
	return nil
}

// iovecs are the lengths in a list of {..., n}.
func (a args) iovecs(e *lang.Expr) (all []int, err error) {
	for i := range e.List {
		v := &e.List[i]
		if v.Kind != lang.Group || len(v.List) != 2 {
			return nil, unsupported("the iovec %v", v)
		}
		n, err := number(&v.List[1])
		if err != nil {
			return nil, err
		}
		if n < 0 || n > maxBytes {
			return nil, &lang.Error{Line: a.line, Text: fmt.Sprintf("%d bytes", n)}
		}
		all = append(all, n)
	}
	return all, nil
}

// linger reads {onoff=1, linger=0}.
func (a args) linger(e *lang.Expr) (l unix.Linger, ok bool) {
	on, t := e.Field("onoff"), e.Field("linger")
	if on == nil || t == nil {
		return l, false
	}
	return unix.Linger{Onoff: int32(on.Int), Linger: int32(t.Int)}, true
}

// timeval reads [sec, usec].
func timeval(e *lang.Expr) (time.Duration, bool) {
	if (e.Kind == lang.Group || e.Kind == lang.Array) && len(e.List) == 2 {
		return time.Duration(e.List[0].Int)*time.Second + time.Duration(e.List[1].Int)*time.Microsecond, true
	}
	return 0, false
}

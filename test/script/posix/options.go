package posix

import (
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"golang.org/x/sys/unix"
)

// opt is an option that was set with a whole number.
type opt struct{ level, name, val int }

// appliers are the options that act on a connection.
var appliers = map[[2]int]func(c *tcp.Conn, v int){
	{unix.IPPROTO_TCP, unix.TCP_NODELAY}:       func(c *tcp.Conn, v int) { c.SetOption(tcp.OptNoDelay, v != 0) },
	{unix.IPPROTO_TCP, unix.TCP_CORK}:          func(c *tcp.Conn, v int) { c.SetOption(tcp.OptCork, v != 0) },
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE}:       func(c *tcp.Conn, v int) { c.SetOption(tcp.OptKeepalive, v != 0) },
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}:      tune(func(t *tcp.Tuning, v int) { t.KeepIdle = time.Duration(v) * time.Second }),
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}:     tune(func(t *tcp.Tuning, v int) { t.KeepEvery = time.Duration(v) * time.Second }),
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}:       tune(func(t *tcp.Tuning, v int) { t.KeepCount = v }),
	{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT}: tune(func(t *tcp.Tuning, v int) { t.NotSentLowat = v }),
	{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}:  tune(func(t *tcp.Tuning, v int) { t.UserTimeout = time.Duration(v) * time.Millisecond }),
	{unix.IPPROTO_TCP, unix.TCP_LINGER2}:       tune(func(t *tcp.Tuning, v int) { t.FinWait2 = time.Duration(v) * time.Second }),
	{unix.IPPROTO_IP, unix.IP_TOS}:             tune(func(t *tcp.Tuning, v int) { t.TOS = uint8(v) }),
	{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}:      tune(func(t *tcp.Tuning, v int) { t.TOS = uint8(v) }),
	{unix.IPPROTO_IP, unix.IP_TTL}:             tune(func(t *tcp.Tuning, v int) { t.TTL = uint8(v) }),
	{unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE}: tune(func(t *tcp.Tuning, v int) { t.MaxRate = uint64(uint32(v)) }),
	{unix.SOL_SOCKET, unix.SO_SNDBUF}:          tune(func(t *tcp.Tuning, v int) { t.SendBuffer = 2 * v }), // as Linux, which doubles it
	{unix.SOL_SOCKET, unix.SO_RCVBUF}:          tune(func(t *tcp.Tuning, v int) { t.RecvBuffer = v }),     // Linux doubles it, for its overhead
}

func tune(f func(*tcp.Tuning, int)) func(*tcp.Conn, int) {
	return func(c *tcp.Conn, v int) { c.Tune(func(t *tcp.Tuning) { f(t, v) }) }
}

// accepted are options that change nothing here.
var accepted = map[[2]int]bool{
	{unix.SOL_SOCKET, unix.SO_REUSEPORT}: true,
}

// applyAll gives the connection the options that were set before it was there.
func (d *desc) applyAll() {
	for _, o := range d.opts {
		if f := appliers[[2]int{o.level, o.name}]; f != nil {
			f(d.conn, o.val)
		}
	}
}

func (d *desc) set(level, name, val int) {
	for i := range d.opts {
		if o := &d.opts[i]; o.level == level && o.name == name {
			d.opts = append(d.opts[:i:i], d.opts[i+1:]...) // an accepted socket may share the list
			break
		}
	}
	d.opts = append(d.opts[:len(d.opts):len(d.opts)], opt{level, name, val})
	if f := appliers[[2]int{level, name}]; f != nil && d.conn != nil {
		f(d.conn, val)
	}
}

// SetOption is setsockopt(2) of an option that is a whole number. ENOPROTOOPT says that it is not known here.
func (w *World) SetOption(fd, level, name, val int) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		key := [2]int{level, name}
		switch {
		case level == unix.SOL_SOCKET && name == unix.SO_REUSEADDR:
			d.reuse = val != 0
		case appliers[key] != nil || accepted[key]:
		case level == unix.IPPROTO_TCP && name == unix.TCP_FASTOPEN && d.listener == nil && d.conn == nil: // listen takes it up
		default:
			return fail(unix.ENOPROTOOPT)
		}
		d.set(level, name, val)
		return ok(0)
	})
}

// SetLinger is setsockopt(2) of SO_LINGER.
func (w *World) SetLinger(fd int, l unix.Linger) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		d.linger = l
		return ok(0)
	})
}

// SetTimeout is setsockopt(2) of SO_RCVTIMEO or SO_SNDTIMEO.
func (w *World) SetTimeout(fd, name int, t time.Duration) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		if name == unix.SO_RCVTIMEO {
			d.rcvTime = t
		} else {
			d.sndTime = t
		}
		return ok(0)
	})
}

// GetOption is getsockopt(2) of an option that is a whole number; val is set.
func (w *World) GetOption(fd, level, name int, val *int) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		v, known := d.option(level, name)
		if !known {
			return fail(unix.ENOPROTOOPT)
		}
		*val = v
		return ok(0)
	})
}

func (d *desc) option(level, name int) (int, bool) {
	switch [2]int{level, name} {
	case [2]int{unix.SOL_SOCKET, unix.SO_ERROR}:
		return int(d.takeError()), true
	case [2]int{unix.SOL_SOCKET, unix.SO_TYPE}:
		return unix.SOCK_STREAM, true
	case [2]int{unix.SOL_SOCKET, unix.SO_PROTOCOL}:
		return unix.IPPROTO_TCP, true
	case [2]int{unix.SOL_SOCKET, unix.SO_DOMAIN}:
		return d.family, true
	case [2]int{unix.SOL_SOCKET, unix.SO_ACCEPTCONN}:
		return truth(d.listener != nil), true
	case [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR}:
		return truth(d.reuse), true
	case [2]int{unix.IPPROTO_TCP, unix.TCP_MAXSEG}:
		if i, ok := d.info(); ok && i.MSS != 0 {
			return int(i.MSS), true
		}
		return 536, true
	}
	for _, o := range d.opts {
		if o.level == level && o.name == name {
			if level == unix.SOL_SOCKET && (name == unix.SO_SNDBUF || name == unix.SO_RCVBUF) {
				return 2 * o.val, true
			}
			return o.val, true
		}
	}
	key := [2]int{level, name}
	switch key { // what is not set shows as 0, but for sizes and times, whose defaults are the stack's
	case [2]int{unix.IPPROTO_TCP, unix.TCP_NODELAY}, [2]int{unix.IPPROTO_TCP, unix.TCP_CORK}, [2]int{unix.SOL_SOCKET, unix.SO_KEEPALIVE}:
		return 0, true
	}
	return 0, accepted[key]
}

func (d *desc) info() (tcp.Info, bool) {
	for fd, x := range d.w.fds {
		if x == d {
			return d.w.Info(fd)
		}
	}
	return tcp.Info{}, false
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// GetLinger is getsockopt(2) of SO_LINGER.
func (w *World) GetLinger(fd int, l *unix.Linger) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		*l = d.linger
		return ok(0)
	})
}

// Fcntl is fcntl(2) with F_GETFL or F_SETFL.
func (w *World) Fcntl(fd, cmd, arg int) Call {
	return w.with(fd, func(d *desc) (Result, bool) {
		switch cmd {
		case unix.F_GETFL:
			v := unix.O_RDWR
			if d.nonblock {
				v |= unix.O_NONBLOCK
			}
			return ok(v)
		case unix.F_SETFL:
			d.nonblock = arg&unix.O_NONBLOCK != 0
			return ok(0)
		case unix.F_GETFD, unix.F_SETFD:
			return ok(0)
		}
		return fail(unix.EINVAL)
	})
}

// FIONBIO is the request that makes a descriptor not block.
const FIONBIO = 0x5421

// Ioctl is ioctl(2) with SIOCINQ (FIONREAD), SIOCOUTQ (TIOCOUTQ) or FIONBIO; val goes in or comes out.
func (w *World) Ioctl(fd int, req uint, val *int) Call {
	return w.withSocket(fd, func(d *desc) (Result, bool) {
		switch req {
		case unix.TIOCINQ:
			if d.listener != nil {
				return fail(unix.EINVAL)
			}
			*val = 0
			if d.conn != nil {
				*val = d.conn.Readable()
			}
		case unix.TIOCOUTQ:
			*val = 0
			if d.conn != nil {
				*val = d.conn.Unsent()
			}
		case FIONBIO:
			d.nonblock = *val != 0
		default:
			return fail(unix.ENOTTY)
		}
		return ok(0)
	})
}

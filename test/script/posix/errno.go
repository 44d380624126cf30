package posix

import (
	"errors"
	"syscall"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"golang.org/x/sys/unix"
)

var errnos = map[tcp.Errno]syscall.Errno{
	tcp.Reset: unix.ECONNRESET, tcp.Refused: unix.ECONNREFUSED, tcp.TimedOut: unix.ETIMEDOUT, tcp.Aborted: unix.ECONNABORTED,
	tcp.Unreachable: unix.EHOSTUNREACH, tcp.PortInUse: unix.EADDRINUSE, tcp.NoMemory: unix.ENOBUFS, tcp.Shutdown: unix.EPIPE,
	tcp.NoRoute: unix.ENETUNREACH, tcp.NotLocal: unix.EADDRNOTAVAIL, tcp.NoProtocol: unix.ENOPROTOOPT, tcp.Prohibited: unix.EACCES, tcp.BadPacket: unix.EPROTO,
}

// errno turns an error of the stack into a number.
func errno(err error) syscall.Errno {
	var e tcp.Errno
	if errors.As(err, &e) {
		if n, ok := errnos[e]; ok {
			return n
		}
	}
	var n syscall.Errno
	if errors.As(err, &n) {
		return n
	}
	return unix.EIO
}

func fail(n syscall.Errno) (Result, bool) { return Result{Ret: -1, Err: n}, true }

func ok(n int) (Result, bool) { return Result{Ret: n}, true }

func wait() (Result, bool) { return Result{}, false }

// failing is a call that fails.
func failing(n syscall.Errno) Call { return func() (Result, bool) { return fail(n) } }

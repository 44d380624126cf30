package sock

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

var errnos = map[tcp.Errno]syscall.Errno{
	tcp.Reset: syscall.ECONNRESET, tcp.Refused: syscall.ECONNREFUSED, tcp.TimedOut: syscall.ETIMEDOUT,
	tcp.Aborted: syscall.ECONNABORTED, tcp.Unreachable: syscall.EHOSTUNREACH, tcp.PortInUse: syscall.EADDRINUSE,
	tcp.NoMemory: syscall.ENOBUFS, tcp.Shutdown: syscall.EPIPE, tcp.NoRoute: syscall.ENETUNREACH, tcp.NotLocal: syscall.EADDRNOTAVAIL,
	tcp.NoProtocol: syscall.ENOPROTOOPT, tcp.Prohibited: syscall.EACCES, tcp.BadPacket: syscall.EPROTO,
}

// sysError turns an engine's error into what package net would return for the system call of that name.
func sysError(call string, err error) error {
	var e tcp.Errno
	if errors.As(err, &e) {
		return os.NewSyscallError(call, errnos[e])
	}
	return err
}

// opError is a failed operation of the connection, as package net tells it.
func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// setError is a failed setting. Package net names the local address only.
func (c *Conn) setError(err error) error {
	return &net.OpError{Op: "set", Net: c.network(), Addr: c.LocalAddr(), Err: err}
}

// taken returns what a call gets for the connection's error: as in Linux (sock_error), the first call gets the error itself, and calls
// after it what an ended connection gives them. For a writer after the peer's FIN a reset is EPIPE.
func (c *Conn) taken(err error, after error) error {
	e, ok := err.(tcp.Errno)
	if !ok || e == tcp.Shutdown {
		return err
	}
	if c.flags.set(told) {
		return after
	}
	if e == tcp.Reset && c.c.PeerFinished() {
		return tcp.Shutdown
	}
	return err
}

// contextError is what package net makes of a context's error.
func contextError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return canceledError{}
	case errors.Is(err, context.DeadlineExceeded):
		return timeoutError{}
	}
	return err
}

// timeoutError is net's error of a dial that took too long.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
func (timeoutError) Is(err error) bool {
	return err == context.DeadlineExceeded || err == os.ErrDeadlineExceeded
}

// canceledError is net's error of a dial that was called off.
type canceledError struct{}

func (canceledError) Error() string     { return "operation was canceled" }
func (canceledError) Is(err error) bool { return err == context.Canceled }

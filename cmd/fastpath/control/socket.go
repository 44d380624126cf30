package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another daemon listens on the socket.
var ErrRunning = errors.New("another daemon is running on this control socket")

// LockSuffix is what the name of a socket's lock has more than the socket's.
const LockSuffix = ".lock"

// socket is a listener on a unix socket, and the lock that keeps other daemons from it.
type socket struct {
	*net.UnixListener
	path string
	lock *os.File
}

// listenUnix takes the socket at path: a stale one is replaced, one in use gives ErrRunning. Its directory is made if need be.
//
// Who may replace the socket is decided by a lock on the file path.lock, which the kernel releases when its holder dies: so two
// daemons that start at once cannot both find the socket stale.
func listenUnix(path string) (*socket, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := takeLock(path + LockSuffix)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l, err := bind(path)
	if err != nil {
		dropLock(lock)
		return nil, err
	}
	return &socket{l, path, lock}, nil
}

// checkDir makes the socket's directory, or refuses one in which others could put a socket of their own in the place of ours.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if m := st.Mode(); m.Perm()&0o022 != 0 && m&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: others can replace files here (mode %v): chmod go-w it, or choose another directory for the control socket", dir, m.Perm())
	}
	return nil
}

// takeLock makes and locks the file at path.
func takeLock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, ErrRunning
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		// The last holder removes the file. If that happened after we opened it, we hold a lock that nobody else will see.
		mine, err1 := f.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
}

func dropLock(f *os.File) {
	os.Remove(f.Name()) // before the lock is released, so that nobody else's file is removed
	f.Close()
}

// bind listens on path with the lock held.
func bind(path string) (*net.UnixListener, error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there already and is not a socket", path)
	default:
		// A daemon whose lock file somebody removed still answers.
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: %w", path, ErrRunning)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// The kernel gives the socket's file the mode of the descriptor at bind, less the umask: there is no moment at which others
	// could connect.
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmod)
	}}
	l, err := cfg.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// Close removes the socket and gives up the lock.
func (s *socket) Close() error {
	err := s.UnixListener.Close() // removes the socket's file
	dropLock(s.lock)
	return err
}

// peer returns the credentials of the process at the other end.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, credErr
}

// sameUser allows root and the daemon's own user.
func sameUser(c *unix.Ucred) bool { return c.Uid == 0 || int(c.Uid) == os.Geteuid() }

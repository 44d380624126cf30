package dpdk

import (
	"context"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Awaits is the vhost-user socket at which Open would wait for the other end, for as long as it takes; "" if it would not.
func (c *Config) Awaits() string {
	d, err := c.parse()
	if err != nil {
		return ""
	}
	return d.listens()
}

// interruptible makes the end of ctx end a wait of the PMD for the other end of a vhost-user socket, in accept or in recv, which have no
// time-out: what this process has of the socket is shut down, again until stop is called, for the PMD may be just about to make it.
func interruptible(ctx context.Context, path string) (stop func()) {
	if path == "" {
		return func() {}
	}
	done := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		for {
			shutdownSockets(path)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return func() {
		unregister()
		close(done)
	}
}

// shutdownSockets ends all transfers over the process's sockets that are bound or connected to path, and waits for connections to it.
func shutdownSockets(path string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	at := func(sa unix.Sockaddr, err error) bool {
		u, ok := sa.(*unix.SockaddrUnix)
		return err == nil && ok && u.Name == path
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && (at(unix.Getsockname(fd)) || at(unix.Getpeername(fd))) {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
	}
}

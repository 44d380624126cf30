package apps

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bufSize is the size of the buffers that data is copied through.
const bufSize = 64 << 10

var bufs = sync.Pool{New: func() any { b := make([]byte, bufSize); return &b }}

// idleConn is a connection that is reset when nothing moves for a time, in either direction.
type idleConn struct {
	net.Conn
	limit time.Duration
	moved atomic.Int64 // bytes, both ways
	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

func newIdleConn(c net.Conn, limit time.Duration) *idleConn {
	i := &idleConn{Conn: c, limit: limit}
	if limit > 0 {
		i.watch(i.moved.Load())
	}
	return i
}

// watch looks again after the limit; so a connection is reset between one and two limits after its last byte.
func (i *idleConn) watch(before int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return
	}
	i.timer = time.AfterFunc(i.limit, func() {
		if now := i.moved.Load(); now != before {
			i.watch(now)
		} else {
			abort(i.Conn)
		}
	})
}

func (i *idleConn) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	if i.timer != nil {
		i.timer.Stop()
	}
}

// Read implements net.Conn.
func (i *idleConn) Read(b []byte) (int, error) {
	n, err := i.Conn.Read(b)
	i.moved.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (i *idleConn) Write(b []byte) (int, error) {
	n, err := i.Conn.Write(b)
	i.moved.Add(int64(n))
	return n, err
}

// CloseWrite ends the sending side.
func (i *idleConn) CloseWrite() error { return closeWrite(i.Conn) }

// temporary reports whether an error of Accept will pass: out of descriptors or memory, or the connection is gone again.
func temporary(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

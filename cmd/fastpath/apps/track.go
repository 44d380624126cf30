package apps

import (
	"net"
	"sync"
)

// tracker is a listener that knows its open connections, so that they can be reset.
type tracker struct {
	net.Listener
	mu    sync.Mutex
	conns map[*tracked]struct{}
	idle  chan struct{} // closed when draining and no connection is left
	drain bool
}

func track(l net.Listener) *tracker {
	return &tracker{Listener: l, conns: map[*tracked]struct{}{}, idle: make(chan struct{})}
}

// Accept implements net.Listener.
func (t *tracker) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k := &tracked{Conn: c, t: t}
	t.mu.Lock()
	t.conns[k] = struct{}{}
	drain := t.drain
	t.mu.Unlock()
	if drain { // accepted while the listener was being closed
		abort(k)
		return nil, net.ErrClosed
	}
	return k, nil
}

// end closes the listener; the returned channel is closed when the last connection is.
func (t *tracker) end() <-chan struct{} {
	t.Listener.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.drain {
		t.drain = true
		if len(t.conns) == 0 {
			close(t.idle)
		}
	}
	return t.idle
}

// reset aborts all connections.
func (t *tracker) reset() int {
	t.mu.Lock()
	left := make([]*tracked, 0, len(t.conns))
	for c := range t.conns {
		left = append(left, c)
	}
	t.mu.Unlock()
	for _, c := range left {
		abort(c)
	}
	return len(left)
}

// tracked is a connection of a tracker.
type tracked struct {
	net.Conn
	t    *tracker
	once sync.Once
}

// Close implements net.Conn.
func (c *tracked) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.t.mu.Lock()
		defer c.t.mu.Unlock()
		delete(c.t.conns, c)
		if c.t.drain && len(c.t.conns) == 0 {
			close(c.t.idle)
		}
	})
	return err
}

// CloseWrite ends the sending side, if the network can do that; else the whole connection.
func (c *tracked) CloseWrite() error { return closeWrite(c.Conn) }

// SetLinger passes on what makes Close send a reset.
func (c *tracked) SetLinger(sec int) error {
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(sec)
	}
	return nil
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// abort closes c with a reset: SetLinger(0) means that for the kernel's connections and for fastpath's.
func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	c.Close()
}

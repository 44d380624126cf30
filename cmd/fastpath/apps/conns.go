package apps

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

// session serves one connection until it ends. An error means that the connection is to be reset.
type session func(ctx context.Context, c *idleConn) error

// conns is an App with one goroutine per connection.
type conns struct {
	log     *slog.Logger
	idle    time.Duration
	session session
	ctx     context.Context // ends when the connections that are left are reset
	cancel  context.CancelFunc

	mu     sync.Mutex
	l      *tracker
	closed bool
	wg     sync.WaitGroup
}

func newConns(c conf.App, log *slog.Logger, s session) *conns {
	a := &conns{log: log, idle: c.IdleTimeout.D(), session: s}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Serve implements App.
func (a *conns) Serve(l net.Listener) error {
	t := track(l)
	a.mu.Lock()
	a.l = t
	closed := a.closed
	a.mu.Unlock()
	if closed {
		return l.Close()
	}
	for {
		c, err := t.Accept()
		if err != nil {
			if wait := a.retry(err); wait > 0 {
				time.Sleep(wait)
				continue
			}
			return a.served(err)
		}
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			abort(c)
			continue
		}
		a.wg.Add(1)
		a.mu.Unlock()
		go a.serve(c)
	}
}

// retry says how long to wait after an error of Accept that will pass; 0 if it will not.
func (a *conns) retry(err error) time.Duration {
	if !temporary(err) {
		return 0
	}
	a.log.Warn("accept", "err", err)
	return 10 * time.Millisecond
}

// served is the result of Serve after an error of Accept.
func (a *conns) served(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	return err
}

func (a *conns) serve(c net.Conn) {
	defer a.wg.Done()
	i := newIdleConn(c, a.idle)
	defer i.stop()
	if err := a.session(a.ctx, i); err != nil {
		a.log.Debug("connection reset", "peer", c.RemoteAddr(), "err", err)
		abort(c)
		return
	}
	c.Close()
}

// Shutdown implements App.
func (a *conns) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	t := a.l
	a.mu.Unlock()
	if t == nil {
		return nil
	}
	defer a.cancel()
	var err error
	select {
	case <-t.end():
	case <-ctx.Done():
		err = ctx.Err()
		a.cancel()
		if n := t.reset(); n > 0 {
			a.log.Info("connections reset at shutdown", "count", n)
		}
	}
	a.wg.Wait()
	return err
}

package apps

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

// dialTimeout bounds how long a client waits for the backend.
const dialTimeout = 10 * time.Second

// warnEvery is how often a proxy warns at most of a backend that it cannot reach.
const warnEvery = 10 * time.Second

// seldom limits how often something is told.
type seldom struct {
	every time.Duration
	mu    sync.Mutex
	next  time.Time
	n     int
}

// due counts one more case. It returns how many there were since it last said so, or 0 if it is too soon to tell.
func (s *seldom) due(now time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if now.Before(s.next) {
		return 0
	}
	n, s.n, s.next = s.n, 0, now.Add(s.every)
	return n
}

// proxy connects each client with the backend. The end of one direction is passed on as a half close, and a reset, or any other
// failure, of one connection resets the other.
func proxy(a conf.App, via Network, counts *Counts, log *slog.Logger) session {
	warn := seldom{every: warnEvery}
	return func(ctx context.Context, client *idleConn) error {
		dctx, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := via.Dial(dctx, a.Backend)
		cancel()
		if err != nil {
			if ctx.Err() == nil { // else it is the end of the daemon
				counts.BackendFailures.Add(1)
				if n := warn.due(time.Now()); n > 0 {
					log.Warn("the backend cannot be reached", "backend", a.Backend, "via", a.Via, "failures", n, "err", err)
				}
			}
			return fmt.Errorf("backend %v: %w", a.Backend, err)
		}
		backend := newIdleConn(conn, 0) // the client's watch sees both directions
		// At shutdown the tracker resets the client only.
		stop := context.AfterFunc(ctx, func() { abort(backend.Conn) })
		defer stop()

		up := make(chan error, 1)
		go func() { up <- forward(backend, client) }()
		err = forward(client, backend)
		if uerr := <-up; err == nil {
			err = uerr
		}
		if err != nil {
			abort(backend.Conn)
		} else {
			backend.Close()
		}
		return err
	}
}

// forward copies one direction. On failure it resets both connections at once, which ends the other direction too.
func forward(dst, src *idleConn) error {
	_, err := pump(dst, src)
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		abort(dst.Conn)
		abort(src.Conn)
	}
	return err
}

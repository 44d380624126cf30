package apps

import (
	"context"
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

// dialTimeout bounds how long a client waits for the backend.
const dialTimeout = 10 * time.Second

// proxy connects each client with the backend. The end of one direction is passed on as a half close, and a reset, or any other
// failure, of one connection resets the other.
func proxy(a conf.App, via Network) session {
	return func(ctx context.Context, client *idleConn) error {
		dctx, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := via.Dial(dctx, a.Backend)
		cancel()
		if err != nil {
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

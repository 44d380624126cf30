package apps

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"github.com/fastpath-tcp/fastpath/conf"
)

// pump copies src to dst until src ends, through a pooled buffer.
func pump(dst io.Writer, src io.Reader) (int64, error) {
	b := bufs.Get().(*[]byte)
	defer bufs.Put(b)
	// Without the wrappers io.CopyBuffer would leave the copying to the connections, past the idle watch.
	return io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, *b)
}

// echo sends back what it receives (RFC 862), and its end.
func echo(_ context.Context, c *idleConn) error {
	if _, err := pump(c, c); err != nil {
		return err
	}
	return c.CloseWrite()
}

// discard receives and forgets (RFC 863).
func discard(_ context.Context, c *idleConn) error {
	_, err := pump(io.Discard, c)
	return err
}

// source sends generated content as fast as it may, whatever it receives (in the manner of RFC 864).
func source(a conf.App) session {
	return func(ctx context.Context, c *idleConn) error {
		size := int64(a.Size)
		if size == 0 {
			size = MaxContent
		}
		var r io.Reader = ContentReader(a.Seed, size)
		if a.Rate > 0 {
			r = limited(ctx, r, a.Rate)
		}
		drained := make(chan error, 1)
		go func() {
			_, err := pump(io.Discard, c)
			drained <- err
		}()
		_, err := pump(c, r)
		if err == nil {
			err = c.CloseWrite()
		}
		if err != nil {
			abort(c.Conn)
			<-drained
			return err
		}
		return <-drained // the client has read all when it ends
	}
}

// limited is r at no more than the given rate.
func limited(ctx context.Context, r io.Reader, limit conf.Rate) io.Reader {
	// The bucket holds 50 ms, so that a late wake-up costs no throughput, and a segment at least.
	burst := max(int(limit/20), 1460)
	return &limitedReader{ctx, r, rate.NewLimiter(rate.Limit(limit), burst)}
}

type limitedReader struct {
	ctx context.Context
	r   io.Reader
	lim *rate.Limiter
}

// Read implements io.Reader.
func (l *limitedReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b[:min(len(b), l.lim.Burst())])
	if n > 0 {
		if werr := l.lim.WaitN(l.ctx, n); werr != nil {
			return 0, werr
		}
	}
	return n, err
}

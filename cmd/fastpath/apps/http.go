package apps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

// headerTimeout is how long a client may take for a request's header.
const headerTimeout = 10 * time.Second

// httpApp serves files or generated content, and takes uploads.
type httpApp struct {
	conf conf.App
	log  *slog.Logger
	srv  *http.Server

	mu     sync.Mutex
	l      *tracker
	closed bool
}

func newHTTP(c conf.App, log *slog.Logger) *httpApp {
	a := &httpApp{conf: c, log: log}
	mux := http.NewServeMux()
	if c.Root != "" {
		files := http.FileServer(http.Dir(c.Root))
		mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { files.ServeHTTP(a.response(w, r), r) })
	} else {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { a.content(w, r, c.Seed, int64(c.Size)) })
		mux.HandleFunc("GET /blob", a.blob)
	}
	if c.Upload {
		mux.HandleFunc("PUT /upload", a.upload)
		mux.HandleFunc("POST /upload", a.upload)
		mux.HandleFunc("PUT /upload/{name...}", a.upload) // curl -T FILE URL/ appends the file's name
	}
	a.srv = &http.Server{
		Handler: a.deadline(mux), ReadHeaderTimeout: headerTimeout, IdleTimeout: c.IdleTimeout.D(),
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return a
}

// Serve implements App.
func (a *httpApp) Serve(l net.Listener) error {
	t := track(l)
	a.mu.Lock()
	a.l = t
	closed := a.closed
	a.mu.Unlock()
	if closed {
		return l.Close()
	}
	if err := a.srv.Serve(t); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown implements App.
func (a *httpApp) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	t := a.l
	a.mu.Unlock()
	err := a.srv.Shutdown(ctx)
	if err == nil || t == nil {
		return err
	}
	if n := t.reset(); n > 0 {
		a.log.Info("connections reset at shutdown", "count", n)
	}
	return errors.Join(err, a.srv.Close())
}

// deadline gives each request's answer a deadline of its own: that of the previous request may have passed.
func (a *httpApp) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := a.guard(w)
		g.moved(g.ctl.SetWriteDeadline)
		next.ServeHTTP(w, r)
	})
}

// blob serves /blob?size=64MiB&seed=7; what is left out is as configured.
func (a *httpApp) blob(w http.ResponseWriter, r *http.Request) {
	size, seed := int64(a.conf.Size), a.conf.Seed
	if s := r.FormValue("size"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64) // curl users write plain numbers
		if v, uerr := conf.ParseSize(s); uerr == nil {
			n, err = int64(v), nil
		}
		if err != nil || n < 0 {
			http.Error(w, fmt.Sprintf("size %q is not a size; write it as 64MiB", s), http.StatusBadRequest)
			return
		}
		size = n
	}
	if s := r.FormValue("seed"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			http.Error(w, fmt.Sprintf("seed %q is not a number", s), http.StatusBadRequest)
			return
		}
		seed = n
	}
	a.content(w, r, seed, size)
}

// content serves generated content, with Range and HEAD as http.ServeContent does them.
func (a *httpApp) content(w http.ResponseWriter, r *http.Request, seed uint64, size int64) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, seed, size))
	http.ServeContent(a.response(w, r), r, "", time.Time{}, ContentReader(seed, size))
}

// response is w with the rate cap and the idle timeout.
func (a *httpApp) response(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return &response{ResponseWriter: w, app: a, ctx: r.Context(), guard: a.guard(w)}
}

// guard keeps a deadline ahead of a transfer for as long as it moves. It sets it once a second at most.
type guard struct {
	ctl   *http.ResponseController
	limit time.Duration
	last  time.Time
}

func (a *httpApp) guard(w http.ResponseWriter) guard {
	return guard{ctl: http.NewResponseController(w), limit: a.conf.IdleTimeout.D()}
}

func (g *guard) moved(set func(time.Time) error) {
	if g.limit == 0 {
		return
	}
	if now := time.Now(); now.Sub(g.last) > min(time.Second, g.limit/4) {
		g.last = now
		_ = set(now.Add(g.limit)) // a connection without deadlines has no idle timeout
	}
}

// response applies the rate cap and the idle timeout to a body that http.ServeContent copies.
type response struct {
	http.ResponseWriter
	app   *httpApp
	ctx   context.Context
	guard guard
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *response) Write(b []byte) (int, error) {
	w.guard.moved(w.guard.ctl.SetWriteDeadline)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom: http.ServeContent's copy comes through here.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	if rate := w.app.conf.Rate; rate > 0 {
		r = limited(w.ctx, r, rate)
	}
	return pump(w, r)
}

// Uploaded is the JSON that answers an upload.
type Uploaded struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// upload reads the body, forgets it, and answers with its hash.
func (a *httpApp) upload(w http.ResponseWriter, r *http.Request) {
	body := &guardedReader{r.Body, a.guard(w)}
	h := sha256.New()
	n, err := pump(h, body)
	if err != nil {
		a.log.Debug("upload", "bytes", n, "err", err)
		panic(http.ErrAbortHandler) // the client is gone, or too slow
	}
	g := a.guard(w)
	g.moved(g.ctl.SetWriteDeadline)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Uploaded{n, hex.EncodeToString(h.Sum(nil))})
}

type guardedReader struct {
	r     io.Reader
	guard guard
}

// Read implements io.Reader.
func (g *guardedReader) Read(b []byte) (int, error) {
	g.guard.moved(g.guard.ctl.SetReadDeadline)
	return g.r.Read(b)
}

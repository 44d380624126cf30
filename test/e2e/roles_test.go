package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
)

// interactive does what a terminal session does: keystrokes that are echoed one by one, now and then a screenful, pauses, both ways at
// once, on several connections.
func (w *world) interactive(int64) {
	w.Helper()
	const sessions = 4
	errs := make([]error, sessions)
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() { errs[i] = w.session(uint64(i)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.Errorf("interactive: %v", err)
	}
}

// session is one of them.
func (w *world) session(id uint64) error {
	c, err := w.dial(portEcho)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(id, 1))
	var sizes []int
	total := 0
	for range 150 {
		n := 1 + rng.IntN(3)
		switch rng.IntN(20) {
		case 0:
			n = 4000 + rng.IntN(8000)
		case 1, 2:
			n = 80
		}
		sizes = append(sizes, n)
		total += n
	}
	typed := make(chan error, 1)
	go func() {
		content := apps.ContentReader(100+id, int64(total))
		for _, n := range sizes {
			b := make([]byte, n)
			if _, err := io.ReadFull(content, b); err != nil {
				typed <- err
				return
			}
			if _, err := c.Write(b); err != nil {
				typed <- err
				return
			}
			time.Sleep(time.Duration(n%4) * time.Millisecond)
		}
		typed <- c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-typed); err != nil {
		return fmt.Errorf("session %d: after %d of %d bytes: %w", id, len(got), total, err)
	}
	want, _ := io.ReadAll(apps.ContentReader(100+id, int64(total)))
	if string(got) != string(want) {
		return fmt.Errorf("session %d: %d bytes of %d came back, or others", id, len(got), total)
	}
	return nil
}

// asClient has the daemon be the client of the kernel's TCP: curl, and many short connections, reach servers in the client's namespace
// through the proxy, which opens a connection for each.
func (w *world) asClient(size int64) {
	w.Helper()
	l := w.listen(w.client, w.clientIP(), portFastpath)
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		io.Copy(rw, apps.ContentReader(31, size)) //nolint:errcheck // the client looks at what it gets
	})}
	go srv.Serve(l) //nolint:errcheck // ends by Close
	w.same("download through the proxy", w.curl("http://"+at(w.serverIP(), portFastpath)+"/"), 31, size)
	w.must(srv.Close())

	echo := w.listen(w.client, w.clientIP(), portFastpath)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.AcceptTCP()
			if err != nil {
				return
			}
			go func(c *net.TCPConn) {
				defer c.Close()
				if _, err := io.Copy(c, c); err == nil {
					c.CloseWrite() //nolint:errcheck // the client looks at what it gets
				}
			}(c)
		}
	}()
	w.shortTo(portFastpath)
}

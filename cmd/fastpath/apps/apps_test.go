package apps

import (
	"bytes"
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
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve runs an application on the kernel's loopback until the test ends.
func serve(t *testing.T, c conf.App) (App, string) {
	t.Helper()
	a, err := New(c, nil, new(Counts), discardLog())
	if err != nil {
		t.Fatal(err)
	}
	l, err := Kernel{}.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Serve(l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.Shutdown(ctx)
		wg.Wait()
	})
	return a, l.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// eventually waits for a condition that another goroutine makes true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestEcho(t *testing.T) {
	_, addr := serve(t, conf.App{Kind: conf.AppEcho})
	c := dial(t, addr)
	want, _ := io.ReadAll(ContentReader(3, 3<<20))
	go func() {
		_, _ = c.Write(want)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestDiscard(t *testing.T) {
	_, addr := serve(t, conf.App{Kind: conf.AppDiscard})
	c := dial(t, addr)
	if _, err := io.Copy(c, ContentReader(1, 10<<20)); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestSource(t *testing.T) {
	_, addr := serve(t, conf.App{Kind: conf.AppSource, Size: 5<<20 + 3, Seed: 9})
	h := sha256.New()
	if n, err := io.Copy(h, dial(t, addr)); err != nil || n != 5<<20+3 || hex.EncodeToString(h.Sum(nil)) != ContentSHA256(9, n) {
		t.Errorf("%d bytes, %v", n, err)
	}
	// Endless, while the client talks, until it resets.
	_, addr = serve(t, conf.App{Kind: conf.AppSource})
	c := dial(t, addr)
	if _, err := c.Write(make([]byte, 4<<20)); err != nil {
		t.Error(err)
	}
	if n, err := io.CopyN(io.Discard, c, 64<<20); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = c.SetLinger(0)
}

func TestSourceRate(t *testing.T) {
	const rate = 20 << 20
	_, addr := serve(t, conf.App{Kind: conf.AppSource, Size: 8 << 20, Rate: rate})
	start := time.Now()
	n, err := io.Copy(io.Discard, dial(t, addr))
	took := time.Since(start)
	// The bucket's 50 ms are free; the rest may not come faster than the rate.
	if least := time.Duration(float64(n)/rate*1e9) - 51*time.Millisecond; err != nil || took < least {
		t.Errorf("%d bytes in %v (at least %v), %v", n, took, least, err)
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func TestIdleTimeout(t *testing.T) {
	checkIdle(t, func(idle time.Duration) (func() error, []net.Conn) {
		_, addr := serve(t, conf.App{Kind: conf.AppEcho, IdleTimeout: conf.Duration(idle)})
		c := dial(t, addr)
		return func() error { return through(c, c) }, []net.Conn{c}
	})
}

// through sends a byte in at one place, and waits for it at another.
func through(in, out net.Conn) error {
	_, err := in.Write([]byte("x"))
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, 1))
	}
	return err
}

// checkIdle opens something with a timeout and keeps it alive with step for longer than that; left idle then, all its connections are
// reset, and not before the time is over. Where the machine let a step wait for too long it tries again with more time.
func checkIdle(t *testing.T, open func(idle time.Duration) (step func() error, conns []net.Conn)) {
	t.Helper()
	for idle := 200 * time.Millisecond; ; idle *= 2 {
		began := time.Now()
		last, longest := began, time.Duration(0)
		step, conns := open(idle)
		var err error
		for err == nil && last.Sub(began) < 2*idle {
			time.Sleep(idle / 4)
			now := time.Now()
			err = step()
			longest, last = max(longest, time.Since(last)), now
		}
		if longest > idle*3/4 && idle < 5*time.Second {
			t.Logf("a step took %v of %v", longest, idle)
			continue
		}
		if err != nil {
			t.Fatalf("never idle for longer than %v of %v: %v", longest, idle, err)
		}
		for _, c := range conns {
			if _, err := c.Read(make([]byte, 1)); !isReset(err) {
				t.Errorf("idle connection: %v", err)
			}
		}
		if d := time.Since(last); d < idle*3/4 {
			t.Errorf("reset after %v of %v already", d, idle)
		}
		return
	}
}

func TestShutdownDrains(t *testing.T) {
	for _, kind := range []string{conf.AppEcho, conf.AppHTTP} {
		a, addr := serve(t, conf.App{Kind: kind, Size: 32 << 20})
		c := dial(t, addr)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := io.Reader(c)
		if _, err := io.ReadFull(r, make([]byte, 20)); err != nil { // it is being served
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- a.Shutdown(context.Background()) }()
		eventually(t, "no new connections", func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		select {
		case err := <-done:
			t.Fatalf("%s: Shutdown did not wait: %v", kind, err)
		default:
		}
		_ = c.CloseWrite()
		if n, err := io.Copy(io.Discard, r); err != nil || kind == conf.AppHTTP && n < 32<<20 {
			t.Errorf("%s: %d bytes, %v", kind, n, err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: Shutdown: %v", kind, err)
		}
	}
}

func TestShutdownResets(t *testing.T) {
	for _, kind := range []string{conf.AppEcho, conf.AppHTTP} {
		a, addr := serve(t, conf.App{Kind: kind, Size: 1 << 40})
		c := dial(t, addr)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 20)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := a.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Shutdown: %v", kind, err)
		}
		cancel()
		if _, err := io.Copy(io.Discard, c); !isReset(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestShutdownBeforeServe(t *testing.T) {
	for _, kind := range []string{conf.AppEcho, conf.AppHTTP} {
		a, err := New(conf.App{Kind: kind}, nil, new(Counts), discardLog())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Serve(l); err != nil {
			t.Errorf("%s: Serve: %v", kind, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener is open: %v", kind, err)
		}
	}
}

func TestNewErrors(t *testing.T) {
	if _, err := New(conf.App{Kind: "gopher"}, nil, new(Counts), discardLog()); err == nil {
		t.Error("unknown kind")
	}
	if _, err := New(conf.App{Kind: conf.AppProxy, Via: conf.ViaFastpath}, nil, new(Counts), discardLog()); err == nil {
		t.Error("proxy without a network")
	}
}

// backend is a listener whose one connection the test drives by hand.
func backend(t *testing.T) (netip.AddrPort, <-chan *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ch := make(chan *net.TCPConn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(ch)
			return
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		ch <- c.(*net.TCPConn)
	}()
	return netip.MustParseAddrPort(l.Addr().String()), ch
}

func proxied(t *testing.T, idle time.Duration) (App, *net.TCPConn, *net.TCPConn) {
	t.Helper()
	addr, ch := backend(t)
	a, front := serve(t, conf.App{Kind: conf.AppProxy, Backend: addr, Via: conf.ViaKernel, IdleTimeout: conf.Duration(idle)})
	c := dial(t, front)
	b := <-ch
	t.Cleanup(func() { b.Close() })
	// A byte goes through, so that the proxy is past its dialing.
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return a, c, b
}

func TestProxyBothWays(t *testing.T) {
	_, c, b := proxied(t, 0)
	var wg sync.WaitGroup
	for seed, pair := range [][2]*net.TCPConn{{c, b}, {b, c}} {
		wg.Go(func() {
			if _, err := io.Copy(pair[0], ContentReader(uint64(seed), 20<<20)); err != nil {
				t.Error(err)
			}
			_ = pair[0].CloseWrite()
		})
		wg.Go(func() {
			h := sha256.New()
			if n, err := io.Copy(h, pair[1]); err != nil || hex.EncodeToString(h.Sum(nil)) != ContentSHA256(uint64(seed), 20<<20) {
				t.Errorf("direction %d: %d bytes, %v", seed, n, err)
			}
		})
	}
	wg.Wait()
}

// TestProxyHalfClose: each side may end its direction and still receive.
func TestProxyHalfClose(t *testing.T) {
	for _, first := range []string{"client", "backend"} {
		_, x, y := proxied(t, 0)
		if first == "backend" {
			x, y = y, x
		}
		if _, err := io.WriteString(x, "question"); err != nil {
			t.Fatal(err)
		}
		_ = x.CloseWrite()
		if q, err := io.ReadAll(y); err != nil || string(q) != "question" {
			t.Errorf("%s ends first: %q, %v", first, q, err)
		}
		if _, err := io.WriteString(y, "answer"); err != nil {
			t.Fatal(err)
		}
		_ = y.CloseWrite()
		if a, err := io.ReadAll(x); err != nil || string(a) != "answer" {
			t.Errorf("%s ends first: %q, %v", first, a, err)
		}
	}
}

// TestProxyReset: a reset of one side resets the other, also after that side has ended its direction.
func TestProxyReset(t *testing.T) {
	for _, first := range []string{"client", "backend"} {
		for _, half := range []bool{false, true} {
			_, x, y := proxied(t, 0)
			if first == "backend" {
				x, y = y, x
			}
			if half {
				_ = y.CloseWrite()
				if _, err := io.ReadAll(x); err != nil {
					t.Fatal(err)
				}
			}
			_ = x.SetLinger(0)
			x.Close()
			if _, err := io.ReadAll(y); !isReset(err) {
				t.Errorf("%s resets, other side ended %v: %v", first, half, err)
			}
		}
	}
}

func TestProxyNoBackend(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	var counts Counts
	var log bytes.Buffer // written by one connection at a time, each of which has ended when it is read
	app, err := New(conf.App{Name: "p", Kind: conf.AppProxy, Backend: addr, Via: conf.ViaKernel}, nil, &counts, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- app.Serve(front) }()
	for range 3 {
		c, err := net.Dial("tcp", front.Addr().String())
		if err == nil { // else the reset came before we knew that we were connected
			_, err = io.ReadAll(c)
			c.Close()
		}
		if !isReset(err) {
			t.Errorf("no backend: %v", err)
		}
	}
	if err := errors.Join(app.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
	if n := counts.BackendFailures.Load(); n != 3 {
		t.Errorf("%d failures were counted", n)
	}
	if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "level=WARN") || !strings.Contains(s, addr.String()) || !strings.Contains(s, "refused") {
		t.Errorf("the log says %q", s)
	}
}

func TestSeldom(t *testing.T) {
	s, now := seldom{every: time.Second}, time.Unix(0, 0)
	for i, tc := range []struct {
		at   time.Duration
		want int
	}{{0, 1}, {1, 0}, {time.Second - 1, 0}, {time.Second, 3}, {3 * time.Second, 1}} {
		if n := s.due(now.Add(tc.at)); n != tc.want {
			t.Errorf("%d: %d, want %d", i, n, tc.want)
		}
	}
}

// One direction alone keeps the connection.
func TestProxyIdle(t *testing.T) {
	checkIdle(t, func(idle time.Duration) (func() error, []net.Conn) {
		_, c, b := proxied(t, idle)
		return func() error { return through(b, c) }, []net.Conn{c, b}
	})
}

func TestProxyShutdown(t *testing.T) {
	a, c, b := proxied(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	for _, x := range []net.Conn{c, b} {
		if _, err := x.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("after shutdown: %v", err)
		}
	}
}

// TestNothingLeft: connections leave no goroutine behind, however they end.
func TestNothingLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	addr, _ := backend(t) // accepts one, the others wait in its queue
	for _, c := range []conf.App{
		{Kind: conf.AppEcho, IdleTimeout: conf.Duration(time.Hour)}, {Kind: conf.AppSource}, {Kind: conf.AppDiscard}, {Kind: conf.AppHTTP, Size: 1 << 40},
		{Kind: conf.AppProxy, Backend: addr, Via: conf.ViaKernel, IdleTimeout: conf.Duration(time.Hour)},
	} {
		a, front := serve(t, c)
		for i := range 20 {
			x := dial(t, front)
			_, _ = io.WriteString(x, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if i%2 == 0 {
				_ = x.SetLinger(0)
			}
			if i%3 != 0 {
				x.Close()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_ = a.Shutdown(ctx)
		cancel()
	}
	eventually(t, fmt.Sprintf("%d goroutines again", before+1), func() bool { return runtime.NumGoroutine() <= before+1 })
}

func get(t *testing.T, method, url string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

func TestHTTPContent(t *testing.T) {
	_, addr := serve(t, conf.App{Kind: conf.AppHTTP, Size: 1 << 20, Seed: 5})
	url := "http://" + addr
	all, _ := io.ReadAll(ContentReader(5, 1<<20))
	seven, _ := io.ReadAll(ContentReader(7, 100_000))
	for _, tt := range []struct {
		method, path, rng string
		status            int
		length            int64
		body              []byte
	}{
		{"GET", "/", "", 200, 1 << 20, all},
		{"HEAD", "/", "", 200, 1 << 20, nil},
		{"GET", "/blob", "", 200, 1 << 20, all},
		{"GET", "/blob?size=100000&seed=7", "", 200, 100_000, seven},
		{"GET", "/blob?size=97.65625KiB&seed=7", "", 200, 100_000, seven},
		{"GET", "/", "bytes=65531-65541", 206, 11, all[65531:65542]},
		{"GET", "/", "bytes=-5", 206, 5, all[1<<20-5:]},
		{"GET", "/", "bytes=2000000-", 416, -1, nil},
		{"GET", "/blob?size=x", "", 400, -1, nil},
		{"GET", "/blob?size=-1", "", 400, -1, nil},
		{"GET", "/blob?seed=x", "", 400, -1, nil},
		{"GET", "/nothing", "", 404, -1, nil},
		{"PUT", "/upload", "", 404, -1, nil},
		{"DELETE", "/", "", 405, -1, nil},
	} {
		resp, body := get(t, tt.method, url+tt.path, "Range", tt.rng)
		if resp.StatusCode != tt.status || tt.length >= 0 && (resp.ContentLength != tt.length || !bytes.Equal(body, tt.body)) {
			t.Errorf("%s %s %s: %d, length %d, %d bytes", tt.method, tt.path, tt.rng, resp.StatusCode, resp.ContentLength, len(body))
		}
	}
}

func TestHTTPFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, conf.App{Kind: conf.AppHTTP, Root: dir, Rate: 1 << 20})
	if resp, b := get(t, "GET", "http://"+addr+"/a.txt"); resp.StatusCode != 200 || string(b) != "hello" {
		t.Errorf("%d %q", resp.StatusCode, b)
	}
	if resp, _ := get(t, "GET", "http://"+addr+"/../../etc/passwd"); resp.StatusCode != 404 {
		t.Errorf("outside the directory: %d", resp.StatusCode)
	}
}

func TestHTTPUpload(t *testing.T) {
	_, addr := serve(t, conf.App{Kind: conf.AppHTTP, Upload: true, IdleTimeout: conf.Duration(time.Minute)})
	for _, path := range []string{"/upload", "/upload/file.bin"} {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", "http://"+addr+path, ContentReader(2, 3_000_001))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var got Uploaded
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if want := (Uploaded{3_000_001, ContentSHA256(2, 3_000_001)}); err != nil || resp.StatusCode != 200 || got != want {
			t.Errorf("%s: %d %+v, %v", path, resp.StatusCode, got, err)
		}
	}
}

func TestHTTPRate(t *testing.T) {
	const rate = 20 << 20
	_, addr := serve(t, conf.App{Kind: conf.AppHTTP, Size: 8 << 20, Rate: rate})
	var took, ideal time.Duration
	for range 3 { // other work of the machine can only make it slower
		start := time.Now()
		_, b := get(t, "GET", "http://"+addr+"/")
		took, ideal = time.Since(start), time.Duration(float64(len(b))/rate*1e9)
		if took < 4*ideal {
			break
		}
	}
	if took < ideal-51*time.Millisecond || took > 4*ideal {
		t.Errorf("%d bytes in %v, want about %v", 8<<20, took, ideal)
	}
}

// TestHTTPSlowClients: a client that reads slowly is served, one that stops reading or sending is thrown out.
func TestHTTPSlowClients(t *testing.T) {
	a, addr := serve(t, conf.App{Kind: conf.AppHTTP, Size: 64 << 20, Upload: true, IdleTimeout: conf.Duration(time.Second)})
	request := func(s string) *net.TCPConn {
		c := dial(t, addr)
		_ = c.SetReadBuffer(64 << 10)
		if _, err := io.WriteString(c, s); err != nil {
			t.Fatal(err)
		}
		return c
	}
	slow := request("GET /blob?size=16MiB HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	n, b := 0, make([]byte, 1<<20)
	for start := time.Now(); ; time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / (16 << 20)))) { // 16 MiB in a second
		m, err := slow.Read(b)
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("slow client, after %d bytes: %v", n, err)
		}
	}
	if n < 16<<20 {
		t.Errorf("slow client: %d bytes", n)
	}
	stopped := request("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := io.ReadFull(stopped, make([]byte, 20)); err != nil { // it is being served
		t.Fatal(err)
	}
	eventually(t, "the client that stopped reading is thrown out", func() bool {
		l := a.(*httpApp).l
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns) == 0
	})
	if n, err := io.Copy(io.Discard, stopped); n >= 64<<20 {
		t.Errorf("client that stopped reading: %d bytes, %v", n, err)
	}
	sender := request("PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
	if answer, _ := io.ReadAll(sender); strings.Contains(string(answer), "200 OK") {
		t.Errorf("client that stopped sending: %q", answer)
	}
	// An upload that takes longer than the idle timeout is answered.
	patient := request("PUT /upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n")
	for range 10 {
		time.Sleep(150 * time.Millisecond)
		if _, err := io.WriteString(patient, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := io.ReadAll(patient); err != nil || !strings.Contains(string(answer), `"bytes":10`) {
		t.Errorf("slow upload: %q, %v", answer, err)
	}
}

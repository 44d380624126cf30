package sock_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// site is a web server on one stack and a client on another.
type site struct {
	*httptest.Server
	client *http.Client
	tr     *http.Transport
	url    string
	conns  atomic.Int32 // accepted
}

// newSite serves h at 10.0.0.2; proto is "http", "https" (HTTP/1.1) or "h2".
func newSite(t *testing.T, sa, sb *stack.Stack, proto string, h http.HandlerFunc) *site {
	t.Helper()
	ln, err := sock.Listen(sb, "tcp", "10.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Server: httptest.NewUnstartedServer(h)}
	s.Listener.Close()
	s.Listener = ln
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, cs http.ConnState) {
		if cs == http.StateNew {
			s.conns.Add(1)
		}
	}
	d := sock.Dialer{Stack: sa}
	switch proto {
	case "http":
		s.Start()
		s.url = "http://" + ln.Addr().String()
	default:
		s.EnableHTTP2 = proto == "h2"
		s.StartTLS()
		s.url = "https://example.com" // what the test certificate is for
	}
	s.client = s.Client()
	s.tr = s.client.Transport.(*http.Transport)
	s.tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, ln.Addr().String())
	}
	t.Cleanup(func() { s.tr.CloseIdleConnections(); s.Close() })
	return s
}

func (s *site) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	r, err := s.client.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// each runs f for HTTP/1.1, HTTP/1.1 over TLS and HTTP/2.
func each(t *testing.T, f func(t *testing.T, sa, sb *stack.Stack, proto string)) {
	for _, proto := range []string{"http", "https", "h2"} {
		t.Run(proto, func(t *testing.T) {
			sa, sb := pair(t, stack.Config{})
			f(t, sa, sb, proto)
		})
	}
}

// Connections are kept, unless one end says otherwise; what a server closed while idle is opened again.
func TestWebKeepAlive(t *testing.T) {
	each(t, func(t *testing.T, sa, sb *stack.Stack, proto string) {
		s := newSite(t, sa, sb, proto, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/close" {
				w.Header().Set("Connection", "close")
			}
			fmt.Fprint(w, r.Proto)
		})
		want := "HTTP/1.1"
		if proto == "h2" {
			want = "HTTP/2.0"
		}
		for range 5 {
			if _, b := s.get(t, "/"); b != want {
				t.Errorf("protocol %s", b)
			}
		}
		if n := s.conns.Load(); n != 1 {
			t.Errorf("%d connections for requests one after the other", n)
		}
		s.get(t, "/close")
		s.get(t, "/")
		if n := s.conns.Load(); n != 2 {
			t.Errorf("%d connections after one was closed", n)
		}
		if proto == "h2" { // a request may be on its way to what is closed, and is not sent again
			return
		}
		s.CloseClientConnections()
		s.get(t, "/")
		if n := s.conns.Load(); n != 3 {
			t.Errorf("%d connections after the server closed one", n)
		}
	})
}

// Many requests at once, with bodies both ways and trailers, over one connection of HTTP/2.
func TestWebHTTP2(t *testing.T) {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	s := newSite(t, sa, sb, "h2", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "N")
		n, err := io.Copy(w, r.Body)
		w.Header().Set("N", fmt.Sprint(n, err))
	})
	s.get(t, "/")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			body := random(100_000+i, byte(i))
			r, err := s.client.Post(s.url, "", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			got, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(got, body) || r.Trailer.Get("N") != fmt.Sprint(len(body), " <nil>") {
				t.Errorf("%d bytes, %v, trailer %q", len(got), err, r.Trailer.Get("N"))
			}
		})
	}
	wg.Wait()
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// upgrade takes a connection over and echoes what comes until the peer's end.
func upgrade(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		if _, err := io.Copy(c, rw); err != nil {
			t.Errorf("echo: %v", err)
		}
	}
}

// echoes speaks to upgrade over a client: several messages each way, then the end.
func echoes(t *testing.T, client *http.Client, url string) {
	t.Helper()
	req, _ := http.NewRequest("GET", url, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	rw, ok := r.Body.(io.ReadWriteCloser)
	if r.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("status %s, body %T", r.Status, r.Body)
	}
	data := random(1<<20, 4)
	go func() {
		for i := 0; i < len(data); i += 10_000 {
			if _, err := rw.Write(data[i:min(i+10_000, len(data))]); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(rw, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what came back: %v", err)
	}
	rw.Close()
}

// A hijacked connection is a stream both ways, like a websocket's, with TLS and without, directly and through a ReverseProxy.
func TestWebHijack(t *testing.T) {
	for _, proto := range []string{"http", "https"} {
		sa, sb := pair(t, stack.Config{})
		s := newSite(t, sa, sb, proto, upgrade(t))
		echoes(t, s.client, s.url)
	}
}

// A ReverseProxy on one stack in front of a server on the other: bodies, upgrades, and answers that are flushed as they come.
func TestWebReverseProxy(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	step := make(chan bool)
	mux := http.NewServeMux()
	mux.Handle("/echo", upgrade(t))
	mux.HandleFunc("/body", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintln(w, i)
			http.NewResponseController(w).Flush()
			<-step
		}
	})
	ln := must(sock.Listen(sa, "tcp", "10.0.0.1:81")) // the backend is at the client's stack
	backend := &http.Server{Handler: mux}
	go backend.Serve(ln)
	defer backend.Close()
	d := sock.Dialer{Stack: sb}
	tr := &http.Transport{DialContext: d.DialContext}
	defer tr.CloseIdleConnections()
	p := httputil.NewSingleHostReverseProxy(must(url.Parse("http://10.0.0.1:81")))
	p.Transport, p.FlushInterval, p.ErrorLog = tr, -1, log.New(io.Discard, "", 0)
	s := newSite(t, sa, sb, "http", p.ServeHTTP)

	body := random(3<<20, 6)
	r := must(s.client.Post(s.url+"/body", "", bytes.NewReader(body)))
	if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	r.Body.Close()
	echoes(t, s.client, s.url+"/echo")
	r = must(s.client.Get(s.url + "/stream"))
	defer r.Body.Close()
	in := bufio.NewScanner(r.Body)
	for i := range 3 {
		if !in.Scan() || in.Text() != fmt.Sprint(i) {
			t.Errorf("line %d: %q, %v", i, in.Text(), in.Err())
		}
		step <- true
	}
	// A backend that is not there is a bad gateway.
	backend.Close()
	if r, _ := s.get(t, "/body"); r.StatusCode != http.StatusBadGateway {
		t.Errorf("status %s without a backend", r.Status)
	}
}

// Expect: 100-continue: the body is sent when the handler reads it, and is not if it does not.
func TestWebContinue(t *testing.T) {
	each(t, func(t *testing.T, sa, sb *stack.Stack, proto string) {
		s := newSite(t, sa, sb, proto, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refuse" {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			io.Copy(w, r.Body)
		})
		s.tr.ExpectContinueTimeout = time.Minute
		for _, path := range []string{"/take", "/refuse"} {
			var read atomic.Bool
			body := readerFunc(func(p []byte) (int, error) {
				if read.Swap(true) {
					return 0, io.EOF
				}
				return copy(p, "the body"), nil
			})
			req, _ := http.NewRequest("POST", s.url+path, body)
			req.Header.Set("Expect", "100-continue")
			r, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r.Body)
			r.Body.Close()
			if want := map[string]string{"/take": "the body"}[path]; string(b) != want || err != nil || read.Load() != (path == "/take") {
				t.Errorf("%s: %s, %q, %v, body read: %v", path, r.Status, b, err, read.Load())
			}
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Shutdown lets requests end and then closes; Close ends them.
func TestWebShutdown(t *testing.T) {
	each(t, func(t *testing.T, sa, sb *stack.Stack, proto string) {
		for _, gently := range []bool{true, false} {
			started, goOn := make(chan bool, 1), make(chan bool)
			s := newSite(t, sa, sb, proto, func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).Flush()
				started <- true
				<-goOn
				fmt.Fprint(w, "done")
			})
			got := make(chan string, 1)
			go func() {
				r, err := s.client.Get(s.url)
				var b []byte
				if err == nil {
					defer r.Body.Close()
					b, err = io.ReadAll(r.Body)
				}
				if err != nil {
					b = []byte("cut off")
				}
				got <- string(b)
			}()
			<-started
			done := make(chan error, 1)
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			if gently {
				go func() { done <- s.Config.Shutdown(ctx) }()
				eventually(t, "the listener closes", func() bool {
					d := sock.Dialer{Stack: sa}
					c, err := d.Dial("tcp", s.Listener.Addr().String())
					if err == nil {
						c.Close()
					}
					return errors.Is(err, syscall.ECONNREFUSED)
				})
				goOn <- true
				if g := <-got; g != "done" {
					t.Errorf("the request got %q", g)
				}
			} else {
				go func() { done <- s.Config.Close() }()
				if g := <-got; g != "cut off" {
					t.Errorf("the request got %q", g)
				}
				close(goOn)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			cancel()
		}
	})
}

// A client that gives up, or goes away, cancels the handler's context; and a handler that panics cuts the answer off.
func TestWebCancel(t *testing.T) {
	each(t, func(t *testing.T, sa, sb *stack.Stack, proto string) {
		started, ended, read := make(chan bool, 1), make(chan error, 1), make(chan bool)
		s := newSite(t, sa, sb, proto, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			if r.URL.Path == "/abort" {
				panic(http.ErrAbortHandler)
			}
			started <- true
			select {
			case <-r.Context().Done():
				<-read // the orderly end of the answer could overtake the client's giving up
				ended <- nil
			case <-time.After(soon):
				ended <- errors.New("the handler's context does not end")
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", s.url, nil)
		r, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		<-started
		cancel()
		if _, err := io.ReadAll(r.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("reading goes on with %v", err)
		}
		close(read)
		if err := <-ended; err != nil {
			t.Errorf("cancelled: %v", err)
		}
		// Through a connection of the test's own, which is reset.
		var c net.Conn
		dial := s.tr.DialContext
		s.tr.CloseIdleConnections()
		s.tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var err error
			c, err = dial(ctx, network, addr)
			return c, err
		}
		s.tr.DisableKeepAlives = true
		if r, err = s.client.Get(s.url); err != nil {
			t.Fatal(err)
		}
		<-started
		if c != nil { // else HTTP/2 has kept the one that it had
			c.(*sock.Conn).Abort()
		} else {
			r.Body.Close()
		}
		if err := <-ended; err != nil {
			t.Errorf("reset: %v", err)
		}
		r.Body.Close()
		r, err = s.client.Get(s.url + "/abort")
		if err == nil {
			_, err = io.ReadAll(r.Body)
			r.Body.Close()
		}
		if err == nil {
			t.Error("an aborted answer looks whole")
		}
	})
}

// Bodies that come slowly arrive whole, and time-outs of the server end those that are too slow.
func TestWebSlowBodies(t *testing.T) {
	each(t, func(t *testing.T, sa, sb *stack.Stack, proto string) {
		s := newSite(t, sa, sb, proto, func(w http.ResponseWriter, r *http.Request) {
			first := make([]byte, len("start"))
			n, err := io.ReadFull(r.Body, first)
			if r.URL.Path == "/limited" {
				http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			}
			if err == nil {
				var rest []byte
				rest, err = io.ReadAll(r.Body)
				n += len(rest)
			}
			fmt.Fprintf(w, "%d %v", n, errors.Is(err, os.ErrDeadlineExceeded))
		})
		n := 0
		body := readerFunc(func(p []byte) (int, error) {
			if n++; n > 20 {
				return 0, io.EOF
			}
			time.Sleep(2 * time.Millisecond)
			return copy(p, "slow"), nil
		})
		r := must(s.client.Post(s.url, "", body))
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if string(b) != "80 false" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		stop := make(chan bool)
		r, err = s.client.Post(s.url+"/limited", "", io.MultiReader(strings.NewReader("start"), readerFunc(func([]byte) (int, error) {
			<-stop
			return 0, io.EOF
		})))
		if err != nil {
			t.Fatal(err)
		}
		b, _ = io.ReadAll(r.Body)
		close(stop)
		r.Body.Close()
		if string(b) != "5 true" {
			t.Errorf("a body that stops: %q", b)
		}
	})
}

// No more connections than MaxConnsPerHost, however many requests.
func TestWebMaxConns(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	var now, most atomic.Int32
	s := newSite(t, sa, sb, "http", func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
	})
	s.tr.MaxConnsPerHost = 3
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if r, err := s.client.Get(s.url); err != nil {
				t.Error(err)
			} else {
				r.Body.Close()
			}
		})
	}
	wg.Wait()
	if m := most.Load(); m > 3 || s.conns.Load() > 3 {
		t.Errorf("%d requests at once over %d connections", m, s.conns.Load())
	}
}

// TLS tells its end by close_notify; a connection that ends within a record is cut off.
func TestTLSEnd(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	roots := cert.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, notify := range []bool{true, false} {
		sa, sb := pair(t, stack.Config{})
		c1, c2 := conns(t, sa, sb)
		client := tls.Client(c1, &tls.Config{RootCAs: roots, ServerName: "example.com"})
		server := tls.Server(c2, cert.TLS.Clone())
		go func() {
			server.Write([]byte("hello"))
			if notify {
				server.CloseWrite() // close_notify; the other half stays
				b, err := io.ReadAll(server)
				if string(b) != "and you" || err != nil {
					t.Errorf("server: %q, %v", b, err)
				}
				server.Close()
			} else {
				c2.Write([]byte{23, 3, 3}) // of a record's header
				c2.Close()
			}
		}()
		b, err := io.ReadAll(client)
		if notify && err != nil || !notify && !errors.Is(err, io.ErrUnexpectedEOF) || string(b) != "hello" {
			t.Errorf("close_notify %v: %q, %v", notify, b, err)
		}
		if notify {
			client.Write([]byte("and you"))
			client.CloseWrite()
			if n, err := c1.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("behind close_notify: %d, %v", n, err)
			}
		}
		client.Close()
	}
}

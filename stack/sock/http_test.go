package sock_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// client is an HTTP client over a stack.
func client(st *stack.Stack) *http.Client {
	d := sock.Dialer{Stack: st}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 100}, Timeout: time.Minute}
}

// serve runs h on port 80 of a stack until the test ends.
func serve(t *testing.T, st *stack.Stack, h http.HandlerFunc) {
	t.Helper()
	ln, err := sock.Listen(st, "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan error)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
	})
}

func random(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// Bodies of both directions at once, over connections that are kept.
func TestHTTP(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, workers)})
			var mu sync.Mutex
			peers := map[string]bool{}
			serve(t, sb, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				peers[r.RemoteAddr] = true
				mu.Unlock()
				sum := sha256.New()
				n, err := io.Copy(sum, r.Body)
				if err != nil {
					t.Errorf("body: %v", err)
				}
				w.Header().Set("X-Sum", fmt.Sprintf("%d %x", n, sum.Sum(nil)))
				w.Write(random(int(n), 2))
			})
			c := client(sa)
			defer c.CloseIdleConnections()
			post := func(n int) {
				body := random(n, 1)
				resp, err := c.Post("http://10.0.0.2/", "application/octet-stream", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Equal(got, random(n, 2)) {
					t.Errorf("body of %d bytes, %v, want %d", len(got), err, n)
				}
				if want := fmt.Sprintf("%d %x", n, sha256.Sum256(body)); resp.Header.Get("X-Sum") != want {
					t.Errorf("the server got %s, want %s", resp.Header.Get("X-Sum"), want)
				}
			}
			for _, n := range []int{0, 1, 1000, 100_000, 8 << 20} {
				post(n)
			}
			if len(peers) != 1 {
				t.Errorf("%d connections for requests one after the other", len(peers))
			}
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for j := range 5 {
						post(1000 * (i + j))
					}
				}()
			}
			wg.Wait()
		})
	}
}

// io.Copy in both directions of one connection at once, each end closing its half when it is done.
func TestCopyBothWays(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := connect(t, sa, sb)
	const size = 16 << 20
	var wg sync.WaitGroup
	for i, c := range []net.Conn{c1, c2} {
		wg.Add(2)
		go func() {
			defer wg.Done()
			if n, err := io.Copy(c, bytes.NewReader(random(size, byte(i)))); n != size || err != nil {
				t.Errorf("sent %d, %v", n, err)
			}
			c.(*sock.Conn).CloseWrite()
		}()
		go func() {
			defer wg.Done()
			sum := sha256.New()
			if n, err := io.Copy(sum, c); n != size || err != nil {
				t.Errorf("received %d, %v", n, err)
			}
			if !bytes.Equal(sum.Sum(nil), sumOf(random(size, byte(1-i)))) {
				t.Error("received something else")
			}
		}()
	}
	wg.Wait()
	c1.Close()
	c2.Close()
}

func sumOf(b []byte) []byte { s := sha256.Sum256(b); return s[:] }

// connect opens a connection from a to b.
func connect(t testing.TB, a, b *stack.Stack) (c1, c2 net.Conn) {
	t.Helper()
	ln, err := sock.Listen(b, "tcp", "10.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := sock.Dialer{Stack: a}
	if c1, err = d.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if c2, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return c1, c2
}

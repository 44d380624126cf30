package sock_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// conns opens a connection with our types.
func conns(t testing.TB, a, b *stack.Stack) (c1, c2 *sock.Conn) {
	t.Helper()
	x, y := connect(t, a, b)
	return x.(*sock.Conn), y.(*sock.Conn)
}

// What is filled in place arrives, and what arrives is read in place, while Read and Write take their turns.
func TestZeroCopy(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	const size = 8 << 20
	want := random(size, 9)
	go func() {
		for sent := 0; sent < size; {
			if sent%3 == 0 {
				n, err := c1.Write(want[sent:min(size, sent+5000)])
				if sent += n; err != nil {
					t.Error(err)
					return
				}
				continue
			}
			p, err := c1.Reserve(min(50_000, size-sent))
			if err != nil {
				t.Error(err)
				return
			}
			n := copy(p, want[sent:])
			n -= n % 7
			if err := c1.Commit(n); err != nil {
				t.Error(err)
			}
			if sent += n; n == 0 {
				sent += must(c1.Write(want[sent : sent+1]))
			}
		}
		c1.CloseWrite()
	}()
	sum := sha256.New()
	var held []sock.Buffer
	total := 0
	for i := 0; ; i++ {
		if i%5 == 0 {
			b := make([]byte, 3000)
			n, err := c2.Read(b)
			for i := range held {
				sum.Write(held[i].Data) // what was read before
				held[i].Release()
			}
			held = held[:0]
			sum.Write(b[:n])
			total += n
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			continue
		}
		bufs := make([]sock.Buffer, 4)
		n, err := c2.ReadBuffers(bufs)
		for _, b := range bufs[:n] {
			total += len(b.Data)
		}
		held = append(held, bufs[:n]...)
		if err == io.EOF {
			for i := range held {
				sum.Write(held[i].Data)
				held[i].Release()
			}
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if total != size || !bytes.Equal(sum.Sum(nil), sumOf(want)) {
		t.Errorf("%d of %d bytes, or others", total, size)
	}
	c1.Close()
	c2.Close()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Buffers survive their connection and even its stack; Release may come twice.
func TestBufferOutlives(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	c1.Write([]byte("keep me"))
	var b [1]sock.Buffer
	if n, err := c2.ReadBuffers(b[:]); n != 1 || err != nil {
		t.Fatalf("%d buffers, %v", n, err)
	}
	if n, err := c2.ReadBuffers(nil); n != 0 || err != nil {
		t.Errorf("no buffers: %d, %v", n, err)
	}
	c1.Close()
	c2.Close()
	d1, d2 := conns(t, sa, sb) // would use the memory again
	d1.Write(bytes.Repeat([]byte("x"), 100_000))
	io.CopyN(io.Discard, d2, 100_000)
	d1.Close()
	d2.Close()
	if string(b[0].Data) != "keep me" {
		t.Errorf("the buffer holds %q", b[0].Data)
	}
	b[0].Release()
	b[0].Release()
	if _, err := c2.ReadBuffers(b[:]); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// Close does not wait for a reservation, which stays memory that can be written to; Commit tells. Other writers wait for Commit.
func TestReserveAndClose(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	p := must(c1.Reserve(100))
	w := async(func() (int, error) { return c1.Write([]byte("behind")) })
	copy(p, "before ")
	if err := c1.Commit(7); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, w); r.err != nil {
		t.Error(r.err)
	}
	got := make([]byte, 13)
	if _, err := io.ReadFull(c2, got); err != nil || string(got) != "before behind" {
		t.Errorf("%q, %v", got, err)
	}
	p = must(c1.Reserve(1 << 20))
	w = async(func() (int, error) { return c1.Write([]byte("x")) })
	if err := c1.Close(); err != nil {
		t.Error(err)
	}
	if r := wait(t, w); !errors.Is(r.err, net.ErrClosed) {
		t.Errorf("a writer behind the reservation: %v", r.err)
	}
	if n, err := c2.Read(got); n != 0 || err != io.EOF {
		t.Errorf("the peer reads %d, %v", n, err)
	}
	c2.Close()
	clear(p)
	if err := c1.Commit(len(p)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("commit after close: %v", err)
	}
	if _, err := c1.Reserve(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reserve after close: %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a commit without a reservation passes")
			}
		}()
		c1.Commit(0)
	}()
}

// Reservations and Close at any time: the connection ends, and no memory is lost (the pair's arena would say).
func TestReserveCloseRace(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	for range 200 {
		c1, c2 := conns(t, sa, sb)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				p, err := c1.Reserve(1000)
				if err != nil {
					return
				}
				clear(p)
				if c1.Commit(len(p)) != nil {
					return
				}
			}
		})
		wg.Go(func() { io.CopyN(io.Discard, c2, 5000); c2.Close() })
		wg.Go(func() { c1.SetNoDelay(true); c1.Close() })
		wg.Wait()
	}
}

// A reservation waits for room, until the deadline or the end.
func TestReserveWaits(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	fill := func() (n int, err error) {
		for {
			p, err := c1.Reserve(64 << 10)
			if err != nil {
				return n, err
			}
			c1.Commit(len(p))
			n += len(p)
		}
	}
	c1.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	n, err := fill()
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	c1.SetWriteDeadline(time.Time{})
	r := async(fill)
	waiting(t, &c1.TCP().Wr)
	c2.Close() // with unread data: a reset
	if got := wait(t, r); got.err == nil {
		t.Error("no error")
	}
	c1.Close()
}

// io.Copy from files, memory, other readers and other connections, whole and limited, and onwards to any writer.
func TestCopyPaths(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	data := random(1<<20, 5)
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, r := range map[string]io.Reader{
		"file": f, "bytes": bytes.NewReader(data), "buffer": bytes.NewBuffer(bytes.Clone(data)), "string": strings.NewReader(string(data)),
		"other": struct{ io.Reader }{bytes.NewReader(data)},
	} {
		// → c1 ⇒ c2 → d1 ⇒ d2 →, where half of it is limited
		c1, c2 := conns(t, sa, sb)
		d1, d2 := conns(t, sa, sb)
		var wg sync.WaitGroup
		wg.Go(func() {
			n, err := io.CopyN(c1, r, 1<<19)
			k, err2 := io.Copy(c1, r)
			if n != 1<<19 || k != 1<<19 || err != nil || err2 != nil {
				t.Errorf("%s: sent %d and %d, %v, %v", name, n, k, err, err2)
			}
			c1.CloseWrite()
		})
		wg.Go(func() {
			n, err := io.CopyN(d1, c2, 1<<18)
			k, err2 := io.Copy(d1, c2)
			if n != 1<<18 || k != 3<<18 || err != nil || err2 != nil {
				t.Errorf("%s: passed on %d and %d, %v, %v", name, n, k, err, err2)
			}
			d1.CloseWrite()
		})
		var got bytes.Buffer
		if n, err := io.Copy(&got, d2); n != 1<<20 || err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%s: got %d bytes, %v", name, n, err)
		}
		wg.Wait()
		for _, c := range []*sock.Conn{c1, c2, d1, d2} {
			c.Close()
		}
	}
	// A limited reader of a connection knows what was taken from it.
	c1, c2 := conns(t, sa, sb)
	c1.Write([]byte("abcdef"))
	l := &io.LimitedReader{R: c2, N: 4}
	if n, err := c2.ReadFrom(l); n != 4 || err != nil || l.N != 0 {
		t.Errorf("%d bytes, %v, %d left", n, err, l.N)
	}
	c1.Close()
	c2.Close()
}

// A handler that copies a body which itself writes to the connection does not wait for itself.
func TestReadFromReaderThatWrites(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	c1, c2 := conns(t, sa, sb)
	defer c1.Close()
	defer c2.Close()
	r := async(func() (int, error) {
		n, err := c1.ReadFrom(&writesFirst{c: c1, r: strings.NewReader("body")})
		c1.CloseWrite()
		return int(n), err
	})
	got, err := io.ReadAll(c2)
	if string(got) != "first body" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if res := wait(t, r); res.n != 4 || res.err != nil {
		t.Errorf("%d, %v", res.n, res.err)
	}
}

type writesFirst struct {
	c    *sock.Conn
	r    io.Reader
	once sync.Once
}

func (w *writesFirst) Read(p []byte) (int, error) {
	w.once.Do(func() { w.c.Write([]byte("first ")) })
	return w.r.Read(p)
}

// AcceptBatch takes what waits, with one call.
func TestAcceptBatch(t *testing.T) {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	ln, err := sock.Listen(sb, "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	d := sock.Dialer{Stack: sa}
	batch := make([]*sock.Conn, 100)
	r := async(func() (int, error) { return ln.AcceptBatch(batch) })
	c := must(d.Dial("tcp", "10.0.0.2:80"))
	first := wait(t, r)
	if first.n != 1 || first.err != nil {
		t.Fatalf("%d connections, %v", first.n, first.err)
	}
	c.Close()
	batch[0].Close()
	var dialled []net.Conn
	for range 70 {
		dialled = append(dialled, must(d.Dial("tcp", "10.0.0.2:80")))
	}
	for end := time.Now().Add(soon); ln.Pending() < 70 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	seen := map[string]bool{}
	for _, want := range []int{5, 64, 1} {
		n, err := ln.AcceptBatch(batch[:[]int{5: 5, 64: 100, 1: 100}[want]])
		if n != want || err != nil {
			t.Errorf("%d connections, %v; want %d", n, err, want)
		}
		for _, c := range batch[:n] {
			seen[c.RemoteAddr().String()] = true
			c.Close()
		}
	}
	for _, c := range dialled {
		if !seen[c.LocalAddr().String()] {
			t.Errorf("%v was not accepted", c.LocalAddr())
		}
		c.Close()
	}
	r = async(func() (int, error) { return ln.AcceptBatch(batch) })
	ln.Close()
	if got := wait(t, r); !errors.Is(got.err, net.ErrClosed) {
		t.Errorf("after close: %v", got.err)
	}
}

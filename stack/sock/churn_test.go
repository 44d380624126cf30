package sock_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Thousands of connections opened and closed, in every way, leave no goroutine, buffer, chunk, timer or connection behind.
func TestChurn(t *testing.T) {
	total := 3000
	if testing.Short() {
		total = 300
	}
	for _, cfg := range []struct {
		name    string
		workers []stack.WorkerConfig
	}{
		{"one worker", make([]stack.WorkerConfig, 1)},
		{"three workers", make([]stack.WorkerConfig, 3)},
		{"spinning", []stack.WorkerConfig{{Poll: stack.Spin, Core: 0}}},
	} {
		t.Run(cfg.name, func(t *testing.T) {
			if cfg.workers[0].Poll == stack.Spin && runtime.NumCPU() < 2 {
				t.Skip("a spinning worker wants a core of its own, and there is one only")
			}
			before := settled(0)
			churn(t, cfg.workers, total)
			if after := settled(before); after > before {
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines, %d before:\n%s", after, before, buf[:runtime.Stack(buf, true)])
			}
		})
	}
}

// settled waits until the number of goroutines is at most want, for a while, and returns it.
func settled(want int) (n int) {
	for range 100 {
		if n = runtime.NumGoroutine(); n <= want {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
	return n
}

func churn(t *testing.T, workers []stack.WorkerConfig, total int) {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	arena := mem.NewHeapArena(budget)
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var s [2]*stack.Stack
	for i, p := range []*memlink.Port{pa, pb} {
		ws := slices.Clone(workers)
		if i == 1 && ws[0].Poll == stack.Spin {
			ws = make([]stack.WorkerConfig, 1) // one of them spins
		}
		s[i], err = stack.New(stack.Config{
			Port: p, Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+1))}, Workers: ws, Arena: arena,
			TCP: tcp.Config{TimeWait: 50 * time.Millisecond, FinWait2: time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ln, err := sock.Listen(s[1], "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer c.Close()
				io.Copy(c, c) //nolint:errcheck // resets are part of the game
			}()
		}
	}()
	dialers := 8
	for w := range dialers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			d := sock.Dialer{Stack: s[0]}
			for i := range total / dialers {
				if err := one(&d, (i+w)%5); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		for opened := uint64(0); opened < uint64(total/dialers*dialers); time.Sleep(time.Millisecond) {
			opened = 0
			for _, st := range s[0].Stats() {
				opened += st.TCP.ActiveOpens
			}
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("connections do not open")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s[0].Drain(ctx); err != nil {
		t.Error(err)
	}
	ln.Close()
	if err := s[1].Drain(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := uint64(0)
		for _, st := range s {
			for _, w := range st.Stats() {
				left += w.TCP.Conns + w.TCP.TimeWaits
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%d connections and TIME-WAIT records left", left)
			break
		}
	}
	if err := arena.CheckLeaks(); err != nil {
		t.Error(err)
	}
	for _, st := range s { // the ports check the buffers
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := arena.Close(); err != nil {
		t.Error(err)
	}
	if used := budget.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
}

// one opens a connection to the echo server and ends it in one of five ways.
func one(d *sock.Dialer, how int) error {
	c, err := d.Dial("tcp", "10.0.0.2:80")
	if err != nil {
		return err
	}
	defer c.Close()
	if how == 0 {
		return nil // at once
	}
	msg := make([]byte, 3000)
	if _, err := c.Write(msg); err != nil {
		return err
	}
	switch how {
	case 1: // with an answer on its way
		return nil
	case 2: // reset
		c.(*sock.Conn).SetLinger(0)
		return nil
	case 3: // orderly, the other end first
		if err := c.(*sock.Conn).CloseWrite(); err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, c)
		if n != 3000 || err != nil {
			return fmt.Errorf("%d bytes echoed, %w", n, err)
		}
		return nil
	}
	_, err = io.ReadFull(c, msg)
	return err
}

// A worker that spins serves connections like another; its core must exist.
func TestSpin(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("a spinning worker wants a core of its own, and there is one only")
	}
	sa, sb := pair(t, stack.Config{Workers: []stack.WorkerConfig{{Poll: stack.Spin, Core: 0}}})
	c1, c2 := connect(t, sa, sb)
	defer c1.Close()
	defer c2.Close()
	r := async(func() (int, error) { n, err := io.Copy(io.Discard, c2); return int(n), err })
	n, err := io.Copy(c1, io.LimitReader(zeros{}, 1<<20))
	if n != 1<<20 || err != nil {
		t.Errorf("sent %d, %v", n, err)
	}
	c1.(*sock.Conn).CloseWrite()
	if got := wait(t, r); got.n != 1<<20 || got.err != nil {
		t.Errorf("received %d, %v", got.n, got.err)
	}
	if st := sa.Stats()[0]; st.Poll != stack.Spin || st.Core != 0 {
		t.Errorf("worker %+v", st)
	}
	p, q, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stack.New(stack.Config{Port: p, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, Workers: []stack.WorkerConfig{{Poll: stack.Spin, Core: 1000}}})
	if err == nil {
		t.Error("a worker spins on core 1000")
	}
	p.Close()
	q.Close()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

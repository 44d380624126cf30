package memlink

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// take fills tx with frames of n bytes from pool.
func take(pool *pmd.Pool, tx []*pmd.Buf, n int) bool {
	for i := range tx {
		b := pool.Get()
		if b == nil {
			for _, b := range tx[:i] {
				pool.Put(b)
			}
			return false
		}
		b.SetLen(n)
		tx[i] = b
	}
	return true
}

// BenchmarkPoll is the link alone: the same buffers go back and forth between the two ends on one goroutine.
func BenchmarkPoll(b *testing.B) {
	for _, batch := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			p, q := must(b, Config{})
			tx, rx := make([]*pmd.Buf, batch), make([]*pmd.Buf, batch)
			take(p.Queue(0).Pool(), tx, 1514)
			from, to := p.Queue(0), q.Queue(0)
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch {
				from.Poll(tx, nil)
				to.Poll(nil, rx)
				from, to, tx, rx = to, from, rx, tx
			}
			b.StopTimer()
			pmd.FreeAll(tx)
			closeBoth(b, p, q)
		})
	}
}

// BenchmarkCycle is a frame's whole life on one goroutine: taken from the pool, sent, received, freed to the sender's pool.
func BenchmarkCycle(b *testing.B) {
	for _, tc := range []struct {
		name string
		c    Config
	}{
		{"clean", Config{}},
		{"steered", Config{Queues: 2, Steer: func([]byte) (uint32, int) { return 1, 0 }}},
		{"loss", Config{AtoB: Path{Loss: Loss{Random: Percent}}}},
		{"delay", Config{AtoB: Path{Rate: 1e12, Delay: 10 * time.Microsecond}, Now: monotonic}},
		{"jitter", Config{AtoB: Path{Rate: 1e12, Delay: 10 * time.Microsecond, Jitter: 5 * time.Microsecond}, Now: monotonic}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			p, q := must(b, tc.c)
			var tx, rx [32]*pmd.Buf
			from, to := p.Queue(0), q.Queue(0)
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(tx) {
				if take(from.Pool(), tx[:], 1514) {
					from.Poll(tx[:], nil)
				}
				_, nrx := to.Poll(nil, rx[:])
				pmd.FreeAll(rx[:nrx])
			}
			b.StopTimer()
			closeBoth(b, p, q)
		})
	}
}

// BenchmarkThreads is BenchmarkCycle with the two ends on a thread each.
func BenchmarkThreads(b *testing.B) {
	p, q := must(b, Config{})
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var rx [32]*pmd.Buf
		for !stop.Load() {
			_, n := q.Queue(0).Poll(nil, rx[:])
			pmd.FreeAll(rx[:n])
		}
	}()
	var tx [32]*pmd.Buf
	from := p.Queue(0)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		if !take(from.Pool(), tx[:], 1514) {
			continue
		}
		sent, _ := from.Poll(tx[:], nil)
		for _, f := range tx[sent:] {
			from.Pool().Put(f)
		}
		n += sent
	}
	b.StopTimer()
	stop.Store(true)
	<-done
	closeBoth(b, p, q)
}

// BenchmarkIdle is a Poll that finds nothing.
func BenchmarkIdle(b *testing.B) {
	p, q := must(b, Config{})
	var rx [32]*pmd.Buf
	for b.Loop() {
		q.Queue(0).Poll(nil, rx[:])
	}
	closeBoth(b, p, q)
}

func closeBoth(t testing.TB, a, b *Port) {
	t.Helper()
	for _, p := range []*Port{a, b} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

package stream

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// Append and Reserve mixed, with commits of nothing, a part and all; leases that outlive what they were taken for.
func TestReserveModel(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 11))
		a := newArena(t, mem.Limits{})
		var s Send
		s.Init(a)
		limit := uint64(1) << (10 + rng.IntN(12))
		buf := make([]byte, 100_000)
		var leased []*mem.Chunk
		for range 500 {
			head, tail := s.Head(), s.Tail()
			switch rng.IntN(6) {
			case 0:
				s.Append(fill(buf[:rng.IntN(1<<(1+rng.IntN(16)))], tail), limit)
			case 1, 2:
				p, c := s.Reserve(1+rng.IntN(1<<(1+rng.IntN(16))), limit)
				if (p == nil) != (tail-head >= limit) || (p == nil) != (c == nil) {
					t.Fatalf("%d of %d held: reserved %d bytes", tail-head, limit, len(p))
				}
				if p == nil {
					break
				}
				if uint64(len(p)) > limit-(tail-head) || s.Tail() != tail {
					t.Fatalf("reserved %d bytes with %d of %d held", len(p), tail-head, limit)
				}
				upto := head + rng.Uint64N(tail-head+1) // the worker goes on meanwhile
				s.Release(upto)
				n := rng.IntN(len(p) + 1)
				fill(p[:n], tail)
				s.Commit(n)
				if s.Tail() != tail+uint64(n) {
					t.Fatalf("tail %d after a commit of %d at %d", s.Tail(), n, tail)
				}
				if n == 0 {
					s.Trim()
				}
				if leased = append(leased, c); rng.IntN(2) == 0 {
					for _, c := range leased {
						a.Put(c)
					}
					leased = leased[:0]
				}
			case 3, 4:
				if tail > head {
					checkSlices(t, &s, head+rng.Uint64N(tail-head), rng.IntN(70_000))
				}
			default:
				upto := head + rng.Uint64N(tail-head+1)
				if rng.IntN(3) == 0 {
					upto = tail
				}
				s.Release(upto)
			}
			if s.Head() == s.Tail() && len(leased) == 0 && chunks(a) != 0 {
				t.Fatalf("an empty queue holds %d chunks", chunks(a))
			}
		}
		p, c := s.Reserve(100, 1<<30)
		s.Reset() // with a reservation: its memory is still the holder's
		for _, c := range leased {
			a.Put(c)
		}
		if chunks(a) != 1 {
			t.Fatalf("%d chunks after Reset, want the reserved one", chunks(a))
		}
		clear(p)
		a.Put(c)
		if chunks(a) != 0 {
			t.Fatal("the last lease leaves a chunk")
		}
	}
}

// Two goroutines: one reserves and appends, the other reads and releases.
func TestReserveConcurrent(t *testing.T) {
	a := newArena(t, mem.Limits{})
	var s Send
	s.Init(a)
	const total = 4 << 20
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		buf := make([]byte, 1<<14)
		for s.Tail() < total {
			if rng.IntN(3) == 0 {
				if s.Append(fill(buf[:1+rng.IntN(len(buf))], s.Tail()), 1<<16) == 0 {
					runtime.Gosched()
				}
				continue
			}
			p, c := s.Reserve(1+rng.IntN(1<<14), 1<<16)
			if p == nil {
				runtime.Gosched()
				continue
			}
			n := 1 + rng.IntN(len(p))
			fill(p[:n], s.Tail())
			s.Commit(n)
			a.Put(c)
		}
	})
	for s.Head() < total {
		head, tail := s.Head(), s.Tail()
		if head == tail {
			runtime.Gosched()
			continue
		}
		checkSlices(t, &s, head, int(min(tail-head, 3000)))
		s.Release(min(head+3000, tail))
	}
	wg.Wait()
	s.Release(s.Tail())
	if chunks(a) != 0 {
		t.Fatalf("%d chunks left", chunks(a))
	}
}

// What Take returns keeps its bytes when the queue has moved on, has been reset, or is written again.
func TestTake(t *testing.T) {
	a := newArena(t, mem.Limits{})
	rng := rand.New(rand.NewPCG(5, 5))
	var r Recv
	r.Init(a)
	type piece struct {
		p   []byte
		c   *mem.Chunk
		off uint64
	}
	var held []piece
	buf := make([]byte, 40_000)
	check := func(n int) {
		for _, h := range held[:n] {
			checkPattern(t, h.p, h.off)
			a.Put(h.c)
		}
		held = append(held[:0], held[n:]...)
	}
	for range 2000 {
		switch rng.IntN(5) {
		case 0, 1:
			tail := r.Tail()
			p := fill(buf[:1+rng.IntN(1<<(1+rng.IntN(15)))], tail)
			if !r.WriteAt(tail, p) {
				t.Fatal("no memory")
			}
			r.Commit(tail + uint64(len(p)))
		case 2, 3:
			off, left := r.Head(), r.Tail()-r.Head()
			p, c := r.Take(rng.IntN(30_000))
			if p == nil {
				break
			}
			if uint64(len(p)) > left || r.Head() != off+uint64(len(p)) {
				t.Fatalf("took %d of %d bytes, head %d → %d", len(p), left, off, r.Head())
			}
			held = append(held, piece{p, c, off})
		default:
			check(rng.IntN(len(held) + 1))
		}
	}
	r.Reset()
	check(len(held))
	if chunks(a) != 0 {
		t.Fatalf("%d chunks left", chunks(a))
	}
}

func TestLeaseAllocs(t *testing.T) {
	a := newArena(t, mem.Limits{})
	var s Send
	var r Recv
	s.Init(a)
	r.Init(a)
	if n := testing.AllocsPerRun(100, func() {
		p, c := s.Reserve(1000, 1<<20)
		s.Commit(len(p))
		s.Release(s.Tail())
		a.Put(c)
		r.WriteAt(r.Tail(), p)
		r.Commit(r.Tail() + 1000)
		_, c = r.Take(1000)
		a.Put(c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

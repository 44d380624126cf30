package stream

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// receiver is a Recv with the ranges that a worker keeps beside it, and a model of what the application must see.
type receiver struct {
	t   testing.TB
	r   Recv
	ooo Ranges
	buf []byte
}

func newReceiver(t testing.TB, a *mem.Arena) *receiver {
	x := &receiver{t: t, buf: make([]byte, 1<<17)}
	x.r.Init(a)
	return x
}

// arrive writes [off, off+n) and commits what is complete.
func (x *receiver) arrive(off uint64, n int) bool {
	if !x.r.WriteAt(off, fill(x.buf[:n], off)) {
		return false
	}
	end, tail := off+uint64(n), x.r.Tail()
	if end > tail {
		x.ooo.Add(max(off, tail), end)
	}
	if f := x.ooo.First(); f.Start == tail && f.End > tail {
		x.r.Commit(f.End)
		x.ooo.Trim(f.End)
	}
	return true
}

// read consumes up to n bytes, by Read or by Peek and Discard.
func (x *receiver) read(n int, peek bool) int {
	head, tail := x.r.Head(), x.r.Tail()
	if peek {
		p := x.r.Peek()
		if (len(p) == 0) != (head == tail) {
			x.t.Fatalf("Peek gave %d bytes of [%d, %d)", len(p), head, tail)
		}
		checkPattern(x.t, p, head)
		n = min(n, len(p))
		x.r.Discard(n)
	} else {
		p := x.buf[:n]
		got := x.r.Read(p)
		if uint64(got) != min(uint64(n), tail-head) {
			x.t.Fatalf("Read(%d) of [%d, %d) = %d", n, head, tail, got)
		}
		checkPattern(x.t, p[:got], head)
		n = got
	}
	if x.r.Head() != head+uint64(n) {
		x.t.Fatalf("Head() = %d after %d bytes from %d", x.r.Head(), n, head)
	}
	return n
}

func (x *receiver) checkEmpty(a *mem.Arena) {
	x.t.Helper()
	if x.r.Head() == x.r.Tail() && x.ooo.Len() == 0 && chunks(a) != 0 {
		x.t.Fatalf("an empty queue at %d holds %d chunks", x.r.Head(), chunks(a))
	}
}

// checkAhead: every chunk behind wr is found without a walk, and nothing else is in the set.
func (x *receiver) checkAhead() {
	x.t.Helper()
	r := &x.r
	n := 0
	if _, state := r.tail.load(); state == busy {
		for c := r.wr.Next.Load(); c != nil && c != r.last; c = c.Next.Load() {
			if n++; r.ahead.at(c.Start) != c {
				x.t.Fatalf("chunk [%d, %d) of the chain is not in the set", c.Start, c.End)
			}
		}
	}
	if r.ahead.len() == 0 {
		if n != 0 {
			x.t.Fatalf("no chunk in the set, want %d", n)
		}
		return
	}
	in := map[*mem.Chunk]bool{nil: true}
	r.ahead.x.t.AscendGreaterOrEqual(place{start: r.Tail() + 1}, func(p place) bool {
		in[p.c] = true
		if r.last == nil || p.start > r.last.Start { // the others are counted
			n++
		}
		if below, _ := r.ahead.around(p.start); below != p.c {
			x.t.Fatalf("the chunk at %d is not found there", p.start)
		}
		return true
	})
	if n != r.ahead.len() {
		x.t.Fatalf("%d chunks in the set, want %d", r.ahead.len(), n)
	}
	for _, c := range r.ahead.x.near {
		if !in[c] {
			x.t.Fatalf("chunk [%d, %d) left the set, but is still found", c.Start, c.End)
		}
	}
}

func TestRecvModel(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 4))
		a := newArena(t, mem.Limits{})
		x := newReceiver(t, a)
		window := uint64(1) << (11 + rng.IntN(10))
		for range 800 {
			tail, head := x.r.Tail(), x.r.Head()
			room := head + window - tail
			switch rng.IntN(6) {
			case 0, 1: // in order
				x.arrive(tail, int(min(room, uint64(1+rng.IntN(3000)))))
			case 2: // anywhere in the window, also before the tail
				off := tail + rng.Uint64N(room+1) - min(tail-head, uint64(rng.IntN(100)))
				x.arrive(off, int(min(head+window-off, uint64(rng.IntN(1<<(1+rng.IntN(16)))))))
			case 3: // fill the first hole
				if f := x.ooo.First(); f.Start > tail {
					x.arrive(tail, int(min(f.Start-tail, 100_000)))
				}
			case 4:
				x.read(rng.IntN(1<<(1+rng.IntN(17))), rng.IntN(2) == 0)
			default:
				if rng.IntN(10) == 0 {
					x.r.Prune()
					x.ooo.Clear()
				}
				x.read(len(x.buf), false)
			}
			x.checkEmpty(a)
			x.checkAhead()
		}
		x.r.Reset()
		if chunks(a) != 0 {
			t.Fatal("Reset left chunks")
		}
	}
}

// A hole of one segment in a long window is filled last.
func TestRecvHole(t *testing.T) {
	a := newArena(t, mem.Limits{})
	x := newReceiver(t, a)
	x.arrive(0, 1448)
	for off := uint64(2 * 1448); off < 6<<20; off += 1448 {
		x.arrive(off, 1448)
	}
	if x.r.Tail() != 1448 || x.ooo.Len() != 1 {
		t.Fatalf("tail %d, %d ranges", x.r.Tail(), x.ooo.Len())
	}
	if st := a.Stats(); st[mem.Large].Used > 97 || st[mem.Small].Used > 4 {
		t.Fatalf("6 MiB take %+v", st)
	}
	x.arrive(1448, 1448)
	for x.r.Head() != x.r.Tail() {
		x.read(100_000, false)
	}
	if x.r.Head() < 6<<20 {
		t.Fatalf("only %d bytes came out", x.r.Head())
	}
	x.checkEmpty(a)
}

// One byte here and there must not take a whole window's memory.
func TestRecvSparse(t *testing.T) {
	a := newArena(t, mem.Limits{})
	x := newReceiver(t, a)
	for i := range uint64(50) {
		x.arrive(100_000*(i+1), 1)
	}
	if n := a.Budget().Used(); n > 50*4096+3*128<<10 {
		t.Fatalf("50 bytes take %d", n)
	}
	if freed := x.r.Prune(); freed < 50*2048 || chunks(a) != 0 {
		t.Fatalf("Prune freed %d, %d chunks left", freed, chunks(a))
	}
}

func TestRecvMemoryOut(t *testing.T) {
	a := newArena(t, mem.Limits{Low: 1 << 17, Pressure: 1 << 17, High: 1 << 17})
	x := newReceiver(t, a)
	off := uint64(0)
	for x.arrive(off, 1448) {
		off += 1448
		if off > 1<<17 {
			t.Fatal("memory does not run out")
		}
	}
	if off != x.r.Tail() {
		t.Fatalf("committed %d of %d", x.r.Tail(), off)
	}
	for x.r.Head() != x.r.Tail() {
		x.read(1000, true)
	}
	a.Trim()
	if !x.arrive(off, 1448) {
		t.Fatal("no memory after everything was read")
	}
	x.read(2000, false)
	x.checkEmpty(a)
}

// A failed write at an empty queue leaves nothing behind.
func TestRecvMemoryOutEmpty(t *testing.T) {
	a := newArena(t, mem.Limits{Low: 1 << 16, Pressure: 1 << 16, High: 1 << 16})
	x := newReceiver(t, a)
	if x.arrive(0, 100_000) {
		t.Fatal("100000 bytes fit into 64 KiB")
	}
	x.r.Prune()
	x.r.Reset()
	if chunks(a) != 0 {
		t.Fatal("chunks left")
	}
}

func TestCommitUnwritten(t *testing.T) {
	x := newReceiver(t, newArena(t, mem.Limits{}))
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	x.r.Commit(1)
}

func TestRecvConcurrent(t *testing.T) {
	for _, size := range []int{64, 1448, 30_000} {
		a := newArena(t, mem.Limits{})
		x := newReceiver(t, a)
		total := uint64(size) * 1000
		var wg sync.WaitGroup
		wg.Go(func() { // the application
			buf := make([]byte, 3*size)
			rng := rand.New(rand.NewPCG(5, uint64(size)))
			for head := uint64(0); head < total; {
				var n int
				if rng.IntN(4) == 0 {
					p := x.r.Peek()
					checkPattern(t, p, head)
					n = len(p)
					x.r.Discard(n)
				} else {
					n = x.r.Read(buf[:1+rng.IntN(len(buf))])
					checkPattern(t, buf[:n], head)
				}
				if n == 0 {
					runtime.Gosched()
				}
				head += uint64(n)
			}
		})
		rng := rand.New(rand.NewPCG(6, uint64(size)))
		for x.r.Tail() < total { // the worker
			tail := x.r.Tail()
			if tail-x.r.Head() > uint64(8*size) {
				runtime.Gosched()
				continue
			}
			if rng.IntN(3) == 0 {
				off := tail + uint64(rng.IntN(4*size))
				x.arrive(off, int(min(total-min(total, off), uint64(1+rng.IntN(size)))))
			}
			x.arrive(tail, int(min(total-tail, uint64(1+rng.IntN(size)))))
		}
		wg.Wait()
		if n := chunks(a); n != 0 {
			t.Fatalf("size %d: %d chunks left", size, n)
		}
	}
}

func FuzzRecv(f *testing.F) {
	f.Add([]byte{1, 10, 0, 0, 0, 255, 2, 0, 0, 0, 12, 0, 2, 255, 255})
	f.Fuzz(func(t *testing.T, ops []byte) {
		a := newArena(t, mem.Limits{})
		x := newReceiver(t, a)
		for ; len(ops) >= 3; ops = ops[3:] {
			tail, v := x.r.Tail(), int(ops[1])<<8|int(ops[2])
			switch ops[0] & 3 {
			case 0:
				x.arrive(tail, v)
			case 1:
				x.arrive(tail+uint64(ops[0]>>2)<<(ops[1]&15), int(ops[2])<<4)
			case 2:
				x.read(v, ops[0]&4 != 0)
			default:
				x.r.Prune()
				x.ooo.Clear()
				x.read(0, false)
			}
			x.checkEmpty(a)
		}
		x.r.Reset()
	})
}

func TestRecvAllocs(t *testing.T) {
	a := newArena(t, mem.Limits{})
	x := newReceiver(t, a)
	p := make([]byte, 1448)
	run := func() {
		tail := x.r.Tail()
		for i := range uint64(100) {
			x.r.WriteAt(tail+(i+1)*1448, p)
		}
		x.r.WriteAt(tail+1<<20, p)
		x.r.Prune()
		for range 100 {
			x.r.WriteAt(x.r.Tail(), p)
			x.r.Commit(x.r.Tail() + 1448)
		}
		x.r.Read(x.buf)
		x.r.Read(x.buf)
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkRecvPingPong is a small message through an empty queue.
func BenchmarkRecvPingPong(b *testing.B) {
	var r Recv
	r.Init(offHeap(b))
	p, q := make([]byte, 64), make([]byte, 4096)
	for b.Loop() {
		off := r.Tail()
		r.WriteAt(off, p)
		r.Commit(off + 64)
		r.Read(q)
	}
}

// BenchmarkRecvSegment is a segment of 1448 bytes, written, committed, and read with 31 others.
func BenchmarkRecvSegment(b *testing.B) {
	var r Recv
	r.Init(offHeap(b))
	p, q := make([]byte, 1448), make([]byte, 32*1448)
	b.SetBytes(1448)
	for i := 0; b.Loop(); i++ {
		off := r.Tail()
		r.WriteAt(off, p)
		r.Commit(off + 1448)
		if i&31 == 31 {
			r.Read(q)
		}
	}
	r.Reset()
}

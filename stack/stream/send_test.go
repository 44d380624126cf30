package stream

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// newArena returns an arena on the heap, which must be empty at the end of the test.
func newArena(t testing.TB, l mem.Limits) *mem.Arena {
	b, err := mem.NewBudget(l)
	if err != nil {
		t.Fatal(err)
	}
	a := mem.NewHeapArena(b)
	t.Cleanup(func() {
		if err := a.CheckLeaks(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func chunks(a *mem.Arena) (n int) {
	for _, s := range a.Stats() {
		n += s.Used
	}
	return n
}

// pattern is the byte at offset off of every test stream.
func pattern(off uint64) byte { return byte(off*0x9e3779b97f4a7c15>>56) ^ byte(off) }

func fill(p []byte, off uint64) []byte {
	for i := range p {
		p[i] = pattern(off + uint64(i))
	}
	return p
}

func checkPattern(t testing.TB, p []byte, off uint64) {
	t.Helper()
	for i, b := range p {
		if b != pattern(off+uint64(i)) {
			t.Fatalf("byte at offset %d is %#x, want %#x", off+uint64(i), b, pattern(off+uint64(i)))
		}
	}
}

func TestSizes(t *testing.T) {
	if s, r := unsafe.Sizeof(Send{}), unsafe.Sizeof(Recv{}); s > 96 || r > 96 {
		t.Fatalf("Send has %d bytes, Recv %d", s, r)
	}
}

// slices checks that Slices returns [off, off+n), as far as four pieces go.
func checkSlices(t testing.TB, s *Send, off uint64, n int) {
	t.Helper()
	var dst [4][]byte
	k := s.Slices(off, n, &dst)
	got := bytes.Join(dst[:k], nil)
	want := min(uint64(n), s.Tail()-off)
	if uint64(len(got)) > want || uint64(len(got)) < want && k < 4 {
		t.Fatalf("Slices(%d, %d) of [%d, %d) gave %d bytes in %d pieces", off, n, s.Head(), s.Tail(), len(got), k)
	}
	checkPattern(t, got, off)
}

func TestSendModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a := newArena(t, mem.Limits{})
		var s Send
		s.Init(a)
		limit := uint64(1) << (10 + rng.IntN(12))
		buf := make([]byte, 200_000)
		for range 600 {
			head, tail := s.Head(), s.Tail()
			switch rng.IntN(5) {
			case 0, 1:
				p := fill(buf[:rng.IntN(1<<(1+rng.IntN(17)))], tail)
				want := min(uint64(len(p)), limit-(tail-head))
				if n := s.Append(p, limit); uint64(n) != want || s.Tail() != tail+want {
					t.Fatalf("Append(%d) with %d of %d held = %d", len(p), tail-head, limit, n)
				}
			case 2, 3:
				if tail > head {
					checkSlices(t, &s, head+rng.Uint64N(tail-head), rng.IntN(70_000))
				}
			default:
				upto := head + rng.Uint64N(tail-head+1)
				if rng.IntN(4) == 0 {
					upto = tail
				}
				s.Release(upto)
				if s.Head() != upto {
					t.Fatalf("Head() = %d after Release(%d)", s.Head(), upto)
				}
				if upto == tail && chunks(a) != 0 {
					t.Fatalf("an empty queue holds %d chunks", chunks(a))
				}
			}
		}
		s.Reset()
		if chunks(a) != 0 || s.Tail() != 0 {
			t.Fatal("Reset left something")
		}
	}
}

// Random offsets in a long queue go through the index.
func TestSendIndex(t *testing.T) {
	a := newArena(t, mem.Limits{})
	var s Send
	s.Init(a)
	rng := rand.New(rand.NewPCG(3, 3))
	buf := make([]byte, 1<<16)
	for range 200 {
		for s.Tail()-s.Head() < 4<<20 {
			s.Append(fill(buf, s.Tail()), 8<<20)
		}
		for range 20 {
			checkSlices(t, &s, s.Head()+rng.Uint64N(s.Tail()-s.Head()), 1448)
		}
		s.Release(s.Head() + rng.Uint64N(1<<20))
	}
	if s.idx == nil || cap(s.idx.c) > 512 {
		t.Fatalf("index %+v", s.idx)
	}
	s.Reset()
}

func TestSendMemoryOut(t *testing.T) {
	a := newArena(t, mem.Limits{Low: 1 << 17, Pressure: 1 << 17, High: 1 << 17})
	var s Send
	s.Init(a)
	buf := make([]byte, 1<<20)
	n := s.Append(fill(buf, 0), 1<<20)
	if n < 64<<10 || n > 128<<10 {
		t.Fatalf("Append took %d bytes with 128 KiB of memory", n)
	}
	if m := s.Append(fill(buf, uint64(n)), 1<<20); m != 0 || s.Tail() != uint64(n) {
		t.Fatalf("Append took %d bytes without memory", m)
	}
	checkSlices(t, &s, uint64(n)-1000, 1000)
	s.Release(uint64(n))
	if chunks(a) != 0 {
		t.Fatal("chunks left")
	}
	a.Trim()
	if s.Append(fill(buf[:10], s.Tail()), 100) != 10 {
		t.Fatal("Append fails after memory came back")
	}
	s.Reset()
}

// First chunks are small, and those of a long stream large.
func TestSendClasses(t *testing.T) {
	a := newArena(t, mem.Limits{})
	var s Send
	s.Init(a)
	s.Append(make([]byte, 100), 1<<20)
	if st := a.Stats(); st[mem.Small].Used != 1 || chunks(a) != 1 {
		t.Fatalf("%+v", st)
	}
	for range 3000 {
		s.Append(make([]byte, 500), 1<<30)
	}
	if st := a.Stats(); st[mem.Small].Used != 1 || st[mem.Medium].Used != 1 || st[mem.Large].Used < 20 {
		t.Fatalf("%+v", st)
	}
	s.Reset()
	s.Append(make([]byte, 60000), 1<<20)
	if st := a.Stats(); st[mem.Large].Used != 1 || chunks(a) != 1 {
		t.Fatalf("%+v", st)
	}
	s.Reset()
}

// An application and a worker on their own threads, the queue running empty again and again.
func TestSendConcurrent(t *testing.T) {
	for _, size := range []int{64, 3000, 40_000} {
		a := newArena(t, mem.Limits{})
		var s Send
		s.Init(a)
		total := uint64(size) * 1000
		var wg sync.WaitGroup
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(size)))
			buf := make([]byte, size)
			for s.Tail() < total {
				p := buf[:1+rng.IntN(size)]
				if n := s.Append(fill(p, s.Tail()), uint64(4*size)); n == 0 {
					runtime.Gosched()
				}
			}
		})
		for sent := uint64(0); sent < total; {
			tail := s.Tail()
			if sent == tail {
				runtime.Gosched()
				continue
			}
			for sent < tail {
				var dst [4][]byte
				for _, p := range dst[:s.Slices(sent, 1448, &dst)] {
					checkPattern(t, p, sent)
					sent += uint64(len(p))
				}
			}
			s.Release(tail)
		}
		wg.Wait()
		s.Release(s.Tail())
		if n := chunks(a); n != 0 {
			t.Fatalf("size %d: %d chunks left", size, n)
		}
	}
}

func FuzzSend(f *testing.F) {
	f.Add([]byte{0, 255, 255, 1, 3, 9, 2, 0, 5, 0, 1, 1, 2, 255, 255})
	f.Fuzz(func(t *testing.T, ops []byte) {
		a := newArena(t, mem.Limits{})
		var s Send
		s.Init(a)
		buf := make([]byte, 1<<16)
		for ; len(ops) >= 3; ops = ops[3:] {
			v := int(ops[1])<<8 | int(ops[2])
			held := s.Tail() - s.Head()
			switch ops[0] % 3 {
			case 0:
				s.Append(fill(buf[:v], s.Tail()), 1<<18)
			case 1:
				if held > 0 {
					checkSlices(t, &s, s.Head()+uint64(v)%held, v+1)
				}
			default:
				s.Release(s.Head() + min(uint64(v), held))
			}
			if s.Tail() == s.Head() && chunks(a) != 0 {
				t.Fatal("an empty queue holds chunks")
			}
		}
		s.Reset()
	})
}

func TestSendAllocs(t *testing.T) {
	a := newArena(t, mem.Limits{})
	var s Send
	s.Init(a)
	buf := make([]byte, 1<<20)
	var dst [4][]byte
	run := func() {
		s.Append(buf, 1<<21)
		for off := s.Head(); off < s.Tail(); off += 50_000 {
			s.Slices(off, 1448, &dst)
		}
		s.Slices(s.Head(), 1448, &dst)
		s.Slices(s.Tail()-1448, 1448, &dst)
		s.Release(s.Tail())
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func offHeap(b *testing.B) *mem.Arena {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	return mem.NewArena(budget)
}

// BenchmarkSendPingPong is a small message through an empty queue.
func BenchmarkSendPingPong(b *testing.B) {
	var s Send
	s.Init(offHeap(b))
	p := make([]byte, 64)
	var dst [4][]byte
	for b.Loop() {
		s.Append(p, 1<<20)
		s.Slices(s.Head(), 64, &dst)
		s.Release(s.Tail())
	}
}

// BenchmarkSendBulk appends 64 KiB, cuts it into segments, and releases what is 1 MiB old. Compare BenchmarkCopy64K.
func BenchmarkSendBulk(b *testing.B) {
	var s Send
	s.Init(offHeap(b))
	p := make([]byte, 64<<10)
	var dst [4][]byte
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		off := s.Tail()
		s.Append(p, 4<<20)
		for ; off < s.Tail(); off += 1448 {
			s.Slices(off, 1448, &dst)
		}
		if off > 1<<20 {
			s.Release(off - 1<<20)
		}
	}
	s.Reset()
}

// BenchmarkCopy64K copies 64 KiB into a ring of the same size as BenchmarkSendBulk's.
func BenchmarkCopy64K(b *testing.B) {
	ring, p := make([]byte, 1<<20), make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	for i := 0; b.Loop(); i++ {
		copy(ring[i&15<<16:], p)
	}
}

// BenchmarkSendRandom looks up random offsets in a queue of 16 MiB.
func BenchmarkSendRandom(b *testing.B) {
	var s Send
	s.Init(offHeap(b))
	p := make([]byte, 64<<10)
	for s.Tail() < 16<<20 {
		s.Append(p, 32<<20)
	}
	var dst [4][]byte
	x := uint64(1)
	for b.Loop() {
		x = x*6364136223846793005 + 1442695040888963407
		s.Slices(x>>41, 1448, &dst)
	}
	s.Reset()
}

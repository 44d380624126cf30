package pmd

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func newTestPool(t testing.TB, n int) *Pool {
	t.Helper()
	p, err := NewPool("test", n, DefaultBufSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.CheckLeaks(), p.Unmap()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func wantPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if s, _ := recover().(string); !strings.Contains(s, want) {
			t.Errorf("panic %q, want %q", s, want)
		}
	}()
	f()
}

// TestBufFitsTwoCacheLines: the hot fields of a Buf are touched for each frame.
func TestBufFitsTwoCacheLines(t *testing.T) {
	if n := unsafe.Sizeof(Buf{}); n > 128 {
		t.Errorf("a Buf has %d bytes", n)
	}
}

// TestRemoteStackHasItsOwnCacheLine: other threads write it while the owner writes its free list.
func TestRemoteStackHasItsOwnCacheLine(t *testing.T) {
	var p Pool
	at := unsafe.Offsetof(p.remote)
	before := unsafe.Offsetof(p.High) + unsafe.Sizeof(p.High)
	if after := unsafe.Offsetof(p.outside); at-before < 64 || after-at < 64 {
		t.Errorf("remote at %d, owner's fields end at %d, the next begins at %d", at, before, after)
	}
}

func TestBufPushPull(t *testing.T) {
	p, err := NewPool("test", 1, 1024)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Unmap()
	b := p.Get()
	defer p.Put(b)
	b.Append([]byte("frame"))
	if !b.Push(4) || b.Len() != 9 || b.Off() != Headroom-4 || string(b.Bytes()[4:]) != "frame" {
		t.Errorf("after Push: %d bytes at %d", b.Len(), b.Off())
	}
	if !b.Pull(5) || string(b.Bytes()) != "rame" {
		t.Errorf("after Pull: %q", b.Bytes())
	}
	if b.Pull(5) || b.Pull(-1) || b.Push(-1) || b.Push(Headroom+2) || string(b.Bytes()) != "rame" {
		t.Errorf("beyond the frame or the headroom: %q", b.Bytes())
	}
}

func TestBufBounds(t *testing.T) {
	p := newTestPool(t, 1)
	b := p.Get()
	defer p.Put(b)
	if b.Len() != 0 || b.Off() != Headroom || b.Cap() != DefaultBufSize-Headroom || len(b.Mem()) != DefaultBufSize {
		t.Errorf("fresh buffer: length %d, offset %d, room %d", b.Len(), b.Off(), b.Cap())
	}
	b.SetLen(b.Cap())
	if len(b.Bytes()) != b.Cap() || cap(b.Bytes()) != b.Cap() {
		t.Errorf("full buffer has %d bytes, room for %d", len(b.Bytes()), cap(b.Bytes()))
	}
	if b.Append([]byte{1}) {
		t.Error("Append beyond the buffer")
	}
	wantPanic(t, "SetLen", func() { b.SetLen(b.Cap() + 1) })
	wantPanic(t, "SetLen", func() { b.SetLen(-1) })
	b.Reset()
	if !b.Append([]byte("ab")) || !b.Append([]byte("c")) || string(b.Bytes()) != "abc" {
		t.Errorf("appended: %q", b.Bytes())
	}
	// Appending to what Bytes returns must not write into the buffer behind the frame.
	if _ = append(b.Bytes(), 'x'); b.Mem()[Headroom+3] == 'x' {
		t.Error("Bytes can be appended to in place")
	}
	b.Flags, b.SegSize, b.Hash, b.L2Len, b.Next = 1, 2, 3, 4, b
	b.ResetAt(10)
	if b.Off() != 10 || b.Len() != 0 || b.Flags != 0 || b.SegSize != 0 || b.Hash != 0 || b.L2Len != 0 || b.Next != nil {
		t.Errorf("reset buffer: %+v", b)
	}
}

func TestPoolBuffersAreDisjoint(t *testing.T) {
	p := newTestPool(t, 5)
	var bs []*Buf
	for b := p.Get(); b != nil; b = p.Get() {
		b.SetLen(b.Cap())
		for i := range b.Mem() {
			b.Mem()[i] = byte(b.Index + 1)
		}
		bs = append(bs, b)
	}
	if len(bs) != 5 || p.Free() != 0 {
		t.Fatalf("%d of 5 buffers, %d free", len(bs), p.Free())
	}
	for _, b := range bs {
		if p.At(int(b.Index)) != b || b.Pool() != p {
			t.Errorf("buffer %d is not At its index", b.Index)
		}
		for _, x := range b.Mem() {
			if x != byte(b.Index+1) {
				t.Fatalf("buffer %d was written through another", b.Index)
			}
		}
		p.Put(b)
	}
	if p.MappedBytes() != 5*DefaultBufSize {
		t.Errorf("%d bytes are mapped", p.MappedBytes())
	}
}

func TestPoolMisusePanics(t *testing.T) {
	p, q := newTestPool(t, 2), newTestPool(t, 1)
	b := p.Get()
	p.Put(b)
	wantPanic(t, "free buffer", func() { p.Put(b) })
	c := q.Get()
	wantPanic(t, "another pool", func() { p.Put(c) })
	c.Free()
	// A buffer that was freed remotely twice is found when it is collected.
	p2, err := NewPool("twice", 1, 256)
	if err != nil {
		t.Fatal(err)
	}
	d := p2.Get()
	d.Free()
	d.Free()
	wantPanic(t, "free buffer", func() { p2.Collect() })
	if err := p2.Unmap(); err != nil {
		t.Error(err)
	}
}

func TestNewPoolErrors(t *testing.T) {
	for _, tc := range [][2]int{{0, 2048}, {-1, 2048}, {1, Headroom}} {
		if _, err := NewPool("x", tc[0], tc[1]); err == nil {
			t.Errorf("%d buffers of %d bytes were mapped", tc[0], tc[1])
		}
	}
	if _, err := NewPool("huge", 1<<40, 1<<20); err == nil {
		t.Error("2^60 bytes were mapped")
	}
}

// TestPoolModel compares a pool with a model of who has which buffer, through a random sequence of operations.
func TestPoolModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 16
	p := newTestPool(t, n)
	var mine, driver []*Buf
	pick := func(s *[]*Buf) *Buf {
		i := r.IntN(len(*s))
		b := (*s)[i]
		(*s)[i] = (*s)[len(*s)-1]
		*s = (*s)[:len(*s)-1]
		return b
	}
	for range 100_000 {
		switch op := r.IntN(7); {
		case op == 0:
			if b := p.Get(); b != nil {
				mine = append(mine, b)
			} else if len(mine)+len(driver) != n {
				t.Fatalf("Get found none, but %d are out", len(mine)+len(driver))
			}
		case op == 1 && len(mine) > 0:
			p.Put(pick(&mine))
		case op == 2 && len(mine) > 0:
			pick(&mine).Free()
		case op == 3 && len(mine) > 1:
			FreeAll([]*Buf{pick(&mine), pick(&mine)})
		case op == 4 && len(mine) > 0: // sent
			b := pick(&mine)
			p.Sent(b)
			driver = append(driver, b)
		case op == 5 && len(driver) > 0: // completed or received
			if b := pick(&driver); r.IntN(2) == 0 {
				p.Fill(b)
			} else {
				b := p.Received(b, 64, 100)
				if b.Off() != 64 || b.Len() != 100 {
					t.Fatalf("received at %d, %d bytes", b.Off(), b.Len())
				}
				mine = append(mine, b)
			}
		case op == 6:
			if b := p.Spill(); b != nil {
				driver = append(driver, b)
			}
		}
		var leak *LeakError
		if err := p.CheckLeaks(); errors.As(err, &leak) != (len(mine) > 0) || leak != nil && leak.Count != len(mine) {
			t.Fatalf("%d buffers are out: %v", len(mine), err)
		}
		if p.Free() != n-len(mine)-len(driver) {
			t.Fatalf("%d free, want %d", p.Free(), n-len(mine)-len(driver))
		}
	}
	FreeAll(mine)
	for _, b := range driver {
		p.Fill(b)
	}
}

func TestExternalPool(t *testing.T) {
	mem := make([]byte, 4*512)
	p := NewExternalPool("ext", 4, func(i int) ([]byte, uintptr) { return mem[i*512 : (i+1)*512], uintptr(i) * 10 })
	if p.Get() != nil || p.CheckLeaks() != nil {
		t.Error("the pool does not begin empty, with all buffers at the driver")
	}
	b := p.At(2)
	if b.Handle != 20 {
		t.Errorf("handle %d", b.Handle)
	}
	p.Fill(b)
	if p.Get() != b || p.MappedBytes() != 4*512 {
		t.Error("the filled buffer did not come out")
	}
	p.Put(b)
	if err := errors.Join(p.CheckLeaks(), p.Unmap()); err != nil {
		t.Error(err)
	}
}

// TestRemote frees from several goroutines while the owner takes; it is for the race detector too.
func TestRemote(t *testing.T) {
	p := newTestPool(t, 64)
	ch := make(chan *Buf, 64)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			var batch []*Buf
			for b := range ch {
				b.Bytes()[0]++
				if i == 0 {
					b.Free()
				} else if batch = append(batch, b); len(batch) == 4 {
					FreeAll(batch)
					batch = batch[:0]
				}
			}
			FreeAll(batch)
		})
	}
	for sent := 0; sent < 50_000; {
		if b := p.Get(); b != nil {
			b.SetLen(64)
			b.Bytes()[0]++
			ch <- b
			sent++
		}
	}
	close(ch)
	wg.Wait()
}

// What others have returned is free: figures that left it out would look like a leak.
func TestNotHeldCountsReturned(t *testing.T) {
	p := newTestPool(t, 4)
	a, b := p.Get(), p.Get()
	if n := p.NotHeld(); n != 2 {
		t.Errorf("%d of 4 are not held, with 2 taken", n)
	}
	a.Free()
	FreeAll([]*Buf{b})
	if n := p.NotHeld(); n != 4 {
		t.Errorf("%d of 4 are not held, with all returned", n)
	}
}

func TestFreeAllMixedPools(t *testing.T) {
	p, q := newTestPool(t, 4), newTestPool(t, 4)
	FreeAll(nil)
	FreeAll([]*Buf{p.Get(), p.Get(), q.Get(), p.Get(), q.Get(), q.Get()})
	p.Collect()
	q.Collect()
	if p.Free() != 4 || q.Free() != 4 {
		t.Errorf("%d and %d free", p.Free(), q.Free())
	}
}

//go:noinline
func forget(p *Pool) *Buf { return p.Get() }

func TestLeakNamesItsSite(t *testing.T) {
	p := newTestPool(t, 4)
	early := p.Get() // before tracking: counted, but without a site
	p.Track(true)
	a, b := forget(p), forget(p)
	err := p.CheckLeaks()
	if err == nil || !strings.Contains(err.Error(), "pool test: 3 buffers leaked") || strings.Count(err.Error(), "2 taken at") != 1 ||
		!strings.Contains(err.Error(), "pmd.forget:") || !strings.Contains(err.Error(), "TestLeakNamesItsSite") {
		t.Errorf("got: %v", err)
	}
	p.Put(a)
	p.Track(false)
	p.Put(p.Get()) // a's old site must not be reported again
	c := p.Get()
	if err := p.CheckLeaks(); err == nil || strings.Count(err.Error(), "taken at") != 1 {
		t.Errorf("got: %v", err)
	}
	p.Put(b)
	p.Put(c)
	p.Put(early)
}

func TestMoved(t *testing.T) {
	p := newTestPool(t, 1)
	p.Track(true)
	b := forget(p)
	func() { // as a driver's Poll
		b.Moved()
	}()
	if err := p.CheckLeaks(); err == nil || strings.Contains(err.Error(), "forget") || !strings.Contains(err.Error(), "TestMoved") {
		t.Errorf("got: %v", err)
	}
	b.Free()
}

func TestWatch(t *testing.T) {
	defer watched.on.Store(false)
	Watch()
	if err := Watched(); err != nil {
		t.Error(err)
	}
	open, err := NewPool("left open", 1, 256)
	if err != nil {
		t.Fatal(err)
	}
	leaky, err := NewPool("leaky", 1, 256)
	if err != nil {
		t.Fatal(err)
	}
	forget(leaky)
	leak := leaky.CheckLeaks()
	if err := leaky.Unmap(); err != nil {
		t.Error(err)
	}
	err = Watched()
	if err == nil || !strings.Contains(err.Error(), "left open was not unmapped") || !strings.Contains(err.Error(), "pmd.forget") {
		t.Errorf("got: %v", err)
	}
	Forgive(leak)
	if err := open.Unmap(); err != nil {
		t.Error(err)
	}
	if err := Watched(); err != nil {
		t.Errorf("after all is well: %v", err)
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := newTestPool(t, 8)
	for _, track := range []bool{false, true} { // tracked, a buffer's call stack is allocated once
		p.Track(track)
		for _, b := range []*Buf{p.Get(), p.Get()} {
			b.Free()
		}
		if n := testing.AllocsPerRun(100, func() {
			a, b := p.Get(), p.Get()
			p.Put(a)
			b.Free()
			p.Collect()
		}); n != 0 {
			t.Errorf("track %v: %v allocations", track, n)
		}
	}
}

func BenchmarkGetPut(b *testing.B) {
	p := newTestPool(b, 64)
	for b.Loop() {
		p.Put(p.Get())
	}
}

func BenchmarkGetFree(b *testing.B) {
	p := newTestPool(b, 64)
	for b.Loop() {
		p.Get().Free()
	}
}

package pmd

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Pool is a fixed set of buffers. Get and Put belong to the pool's owner, the worker of its queue; PutRemote is for all
// others. It allocates nothing after NewPool.
type Pool struct {
	name string
	mem  []byte // nil if the driver owns the memory
	bufs []Buf
	free []*Buf // last in, first out: warm buffers first

	// High and Low, if High is not 0, tell the driver to give buffers back to the hardware above High and to fetch some below
	// Low, once per Poll. See Spill and Fill.
	Low, High int

	_       [64]byte
	remote  atomic.Pointer[Buf] // stack of buffers that others returned
	_       [56]byte
	outside atomic.Int64 // buffers that the driver holds (in its rings)
	track   atomic.Bool
}

// DefaultBufSize holds a 1500-byte packet with its headers and headroom.
const DefaultBufSize = 2048

// NewPool maps n buffers of size bytes each.
func NewPool(name string, n, size int) (*Pool, error) {
	if n <= 0 || size < Headroom+64 {
		return nil, fmt.Errorf("pmd: pool %s: %d buffers of %d bytes", name, n, size)
	}
	mem, err := unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("pmd: pool %s: mapping %d bytes: %w", name, n*size, err)
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // fewer TLB misses where the kernel can; not needed
	p := newPool(name, n)
	p.mem = mem
	for i := range p.bufs {
		p.bufs[i].mem = mem[i*size : (i+1)*size : (i+1)*size]
		p.bufs[i].Reset()
	}
	for i := n - 1; i >= 0; i-- {
		p.free = append(p.free, &p.bufs[i])
	}
	return p, nil
}

// Populate has the kernel back the pool's memory now: else each first use of a huge page is a fault, in which the kernel clears 2 MB while
// the worker waits. Where the kernel can't, nothing is different.
func (p *Pool) Populate() { _ = unix.Madvise(p.mem, unix.MADV_POPULATE_WRITE) }

// NewExternalPool makes a pool over memory that the driver owns: block(i) is buffer i's memory and its handle. The pool starts
// empty: all buffers are with the driver, which hands them over by Fill or by receiving.
func NewExternalPool(name string, n int, block func(i int) ([]byte, uintptr)) *Pool {
	p := newPool(name, n)
	for i := range p.bufs {
		p.bufs[i].mem, p.bufs[i].Handle = block(i)
		p.bufs[i].Reset()
	}
	p.outside.Store(int64(n))
	return p
}

func newPool(name string, n int) *Pool {
	p := &Pool{name: name, bufs: make([]Buf, n), free: make([]*Buf, 0, n)}
	watch(p)
	for i := range p.bufs {
		p.bufs[i].pool, p.bufs[i].Index = p, uint32(i)
	}
	return p
}

// Name is the pool's name.
func (p *Pool) Name() string { return p.name }

// Len is the number of buffers in the pool, free or not.
func (p *Pool) Len() int { return len(p.bufs) }

// MappedBytes is the memory that the pool maps.
func (p *Pool) MappedBytes() int {
	if p.mem != nil {
		return len(p.mem)
	}
	n := 0
	for i := range p.bufs {
		n += len(p.bufs[i].mem)
	}
	return n
}

// At returns buffer i, for drivers.
func (p *Pool) At(i int) *Buf { return &p.bufs[i] }

// Free is the number of buffers that Get can return now, as the owner sees it.
func (p *Pool) Free() int { return len(p.free) }

// NotHeld is the number of buffers that the stack does not hold: free ones, and those with the driver, which are free in its own pool,
// wait for frames, or are being sent. What others have returned is taken in first, and so is free. Only the owner calls it.
func (p *Pool) NotHeld() int {
	p.Collect()
	return len(p.free) + int(p.outside.Load())
}

// Get takes a buffer, reset, or returns nil if there is none.
func (p *Pool) Get() *Buf {
	if len(p.free) == 0 {
		p.Collect()
		if len(p.free) == 0 {
			return nil
		}
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	b.Reset()
	b.taken = true
	if p.track.Load() {
		b.site = callers(b.site)
	}
	return b
}

// Put returns a buffer of this pool, and More. Only the owner calls it. Putting a buffer twice panics.
func (p *Pool) Put(b *Buf) {
	if b.More != nil {
		p.putMore(b)
	}
	if b.pool != p {
		panic("pmd: Pool.Put of a buffer of another pool")
	}
	if !b.taken {
		panic("pmd: Pool.Put of a free buffer")
	}
	b.taken = false
	b.site = b.site[:0]
	p.free = append(p.free, b)
}

// putMore returns what b goes on in.
func (p *Pool) putMore(b *Buf) {
	m := b.More
	b.More = nil
	for m != nil {
		next := m.More
		m.More = nil
		p.Put(m)
		m = next
	}
}

// PutRemote returns a buffer from a goroutine that does not own the pool.
func (p *Pool) PutRemote(b *Buf) { p.putChain(b, b) }

// putChain returns the buffers from first to last, which are linked by Next.
func (p *Pool) putChain(first, last *Buf) {
	for {
		h := p.remote.Load()
		last.Next = h
		if p.remote.CompareAndSwap(h, first) {
			return
		}
	}
}

// FreeAll returns buffers to their pools, as Buf.Free does for one, with one atomic operation for each run of buffers of the
// same pool.
func FreeAll(bs []*Buf) {
	for len(bs) > 0 {
		p, n := bs[0].pool, 1
		for n < len(bs) && bs[n].pool == p {
			bs[n-1].Next = bs[n]
			n++
		}
		p.putChain(bs[0], bs[n-1])
		bs = bs[n:]
	}
}

// Collect moves what PutRemote returned to the owner's free list.
func (p *Pool) Collect() {
	if p.remote.Load() == nil {
		return
	}
	for b := p.remote.Swap(nil); b != nil; {
		next := b.Next
		p.Put(b)
		b = next
	}
}

// Received marks a buffer that the driver filled with a frame of n bytes at offset off, and hands it to the caller.
func (p *Pool) Received(b *Buf, off, n int) *Buf {
	b.ResetAt(off)
	b.n = uint32(n)
	b.taken = true
	p.outside.Add(-1)
	if p.track.Load() {
		b.site = callers(b.site)
	}
	return b
}

// Sent says that the driver took a buffer for transmission and holds it outside the pool's free list.
func (p *Pool) Sent(b *Buf) {
	b.taken = false
	b.site = b.site[:0]
	p.outside.Add(1)
}

// Fill hands a buffer from the driver to the pool's free list.
func (p *Pool) Fill(b *Buf) {
	p.outside.Add(-1)
	p.free = append(p.free, b)
}

// Spill takes a free buffer from the pool for the driver, or returns nil.
func (p *Pool) Spill() *Buf {
	if len(p.free) == 0 {
		return nil
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.outside.Add(1)
	return b
}

// Unmap releases the pool's memory. No buffer may be used afterwards.
func (p *Pool) Unmap() error {
	unwatch(p)
	p.free, p.bufs = nil, nil
	if p.mem == nil {
		return nil
	}
	m := p.mem
	p.mem = nil
	return unix.Munmap(m)
}

package stream

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// Recv is a queue of received bytes. The worker writes what arrives, in any order, and commits what is complete; the
// application reads what is committed. The zero value is ready after Init.
type Recv struct {
	tail  tailWord      // committed
	head  atomic.Uint64 // read
	arena *mem.Arena

	// The worker's. first is written while the chain is empty, and read by the application behind the tail that follows.
	first *mem.Chunk
	wr    *mem.Chunk // the chunk of the next byte to commit, or the last one, if that is full
	last  *mem.Chunk // end of the chain; it and wr count only while the state is busy
	ahead chunkSet   // chunks between wr and last, and those beyond the end of the chain, not linked, with gaps

	// The application's.
	rd *mem.Chunk // head is in it; nil: see first
}

// gapMin is the least gap that a chunk of its own is started behind; smaller ones are covered by the chunk.
const gapMin = 2 << 10

// Init sets the arena. The queue is empty.
func (r *Recv) Init(a *mem.Arena) { r.arena = a }

// Tail is the end of what is committed. Any goroutine may call it.
func (r *Recv) Tail() uint64 {
	t, _ := r.tail.load()
	return t
}

// Head is the offset of the next byte to read. Any goroutine may call it.
func (r *Recv) Head() uint64 { return r.head.Load() }

// WriteAt stores p at off. Bytes below Tail are skipped. It returns false if memory is out; then all of p counts as not
// written, and what was written before is as it was. The worker calls it.
func (r *Recv) WriteAt(off uint64, p []byte) bool {
	if tail := r.Tail(); off < tail {
		p = p[min(tail-off, uint64(len(p))):]
		off = tail
	}
	if len(p) == 0 {
		return true
	}
	tail := r.claim()
	for len(p) > 0 {
		c := r.locate(off, len(p), tail)
		if c == nil {
			r.settle(tail)
			return false
		}
		k := copy(c.Mem[off-c.Start:c.End-c.Start], p)
		off += uint64(k)
		p = p[k:]
		c.Fill = max(c.Fill, off)
	}
	return true
}

// claim takes the last chunk, if there is one, and returns the tail.
func (r *Recv) claim() uint64 {
	tail, state := r.tail.load()
	if state == none || state == idle && !r.tail.change(tail, busy) {
		r.wr, r.last = nil, nil // the application has read everything and freed it
	}
	return tail
}

// settle lets the application free the last chunk when it has read everything, unless that holds more than is committed.
func (r *Recv) settle(tail uint64) {
	if r.last != nil && r.wr == r.last && r.last.Fill <= tail {
		r.tail.store(tail, idle)
	}
}

// locate returns the chunk that covers off, or a new one for n bytes there; nil if memory is out.
func (r *Recv) locate(off uint64, n int, tail uint64) *mem.Chunk {
	end, prev := tail, r.last
	if prev != nil {
		end = prev.End
		if off < end && off >= prev.Start {
			return prev
		}
		if off < r.wr.End {
			return r.wr
		}
	}
	// [from, to) is the gap around off.
	from, to := end, ^uint64(0)
	below, above := r.ahead.around(off)
	if below != nil {
		if off < below.End {
			return below
		}
		if below.End > from {
			from, prev = below.End, below
		}
	}
	if above != nil {
		to = above.Start
	}
	start := max(from, off&^(gapMin-1))
	class := mem.ClassFor(int(off-start) + n)
	if prev != nil && start == prev.End {
		class = grown(prev.Class, n)
	}
	if gap := to - start; gap < uint64(class.Size()) {
		class = mem.ClassFor(int(gap))
	}
	c := take(r.arena, class)
	if c == nil {
		return nil
	}
	c.Start, c.End, c.Fill = start, min(start+uint64(len(c.Mem)), to), start
	if start == end {
		r.link(c, tail)
	} else {
		r.ahead.add(c)
	}
	return c
}

// link appends c to the chain, and the chunks that are adjacent then.
func (r *Recv) link(c *mem.Chunk, tail uint64) {
	r.append(c, tail)
	for c = r.ahead.at(c.End); c != nil; c = r.ahead.at(c.End) {
		r.append(c, tail)
	}
}

// append appends c to the chain.
func (r *Recv) append(c *mem.Chunk, tail uint64) {
	r.ahead.drop(c.Start)
	full := r.last
	r.last = c
	switch {
	case full == nil:
		r.first, r.wr = c, c
		r.tail.store(tail, busy)
		return
	case full != r.wr:
		r.ahead.add(full)
	case full.End <= tail:
		r.wr = c
	}
	full.Next.Store(c) // and then it may be freed
}

// Commit says that everything below upto was written; the application may read it. The worker calls it.
func (r *Recv) Commit(upto uint64) {
	tail, state := r.tail.load()
	if upto <= tail {
		if state == busy {
			r.settle(tail)
		}
		return
	}
	if state != busy || r.last.End < upto {
		panic("stream: Recv.Commit of bytes that were not written")
	}
	for upto >= r.wr.End && r.wr != r.last {
		r.wr = r.wr.Next.Load()
		r.ahead.drop(r.wr.Start)
	}
	if r.wr == r.last && r.last.Fill <= upto {
		r.tail.store(upto, idle)
	} else {
		r.tail.store(upto, busy)
	}
}

// Prune frees memory that only holds bytes beyond Tail and returns its size; all bytes beyond Tail then count as not written
// (a receiver may renege: RFC 2018, 8). A last chunk, up to 64 KiB, goes with the application's next call. The worker calls
// it.
func (r *Recv) Prune() (freed int) {
	tail, state := r.tail.load()
	free := func(c *mem.Chunk) {
		freed += len(c.Mem)
		r.arena.Put(c)
	}
	r.ahead.clear(free)
	if state != busy {
		return freed
	}
	// The application does not look behind wr before more is committed: wr ends above the tail, or is the last.
	if r.last != r.wr {
		r.wr.Next.Store(nil)
		free(r.last)
		r.last = r.wr
	}
	r.last.Fill = tail
	r.settle(tail)
	return freed
}

// Peek returns the next committed bytes that lie together; nil if there are none. They stay valid until Discard or Read. The
// application calls it.
func (r *Recv) Peek() []byte {
	head, tail := r.head.Load(), r.Tail()
	if head == tail {
		return nil
	}
	c := r.at(head)
	stop := min(tail, c.End)
	return c.Mem[head-c.Start : stop-c.Start : stop-c.Start]
}

// Discard consumes n bytes, at most what is committed. The application calls it.
func (r *Recv) Discard(n int) { r.consume(nil, n) }

// Read copies committed bytes to p, consumes them, and returns how many; 0 if there are none. The application calls it.
func (r *Recv) Read(p []byte) int { return r.consume(p, len(p)) }

// consume consumes n bytes, and copies them to p if that is not nil.
func (r *Recv) consume(p []byte, n int) int {
	head, tail := r.head.Load(), r.Tail()
	n = int(min(uint64(n), tail-head))
	if n <= 0 {
		r.release(head, tail, r.rd)
		return 0
	}
	var c *mem.Chunk
	for left := n; left > 0; {
		c = r.at(head)
		k := int(min(uint64(left), c.End-head))
		if p != nil {
			copy(p[n-left:n], c.Mem[head-c.Start:head-c.Start+uint64(k)])
		}
		head += uint64(k)
		left -= k
	}
	if head == c.End {
		if next := c.Next.Load(); next != nil {
			r.arena.Put(c)
			r.rd, c = next, next
		}
	}
	r.head.Store(head)
	r.release(head, tail, c)
	return n
}

// release frees the chain, which begins with c, if everything is read and the worker does not use it.
func (r *Recv) release(head, tail uint64, c *mem.Chunk) {
	if head != tail || !r.tail.change(head, none) {
		return
	}
	if c == nil {
		c = r.first
	}
	freeChain(r.arena, c)
	r.rd = nil
}

// at returns the chunk of head, which is committed, and frees the one before it.
func (r *Recv) at(head uint64) *mem.Chunk {
	if r.rd == nil {
		r.rd = r.first
	}
	if head == r.rd.End {
		next := r.rd.Next.Load()
		r.arena.Put(r.rd)
		r.rd = next
	}
	return r.rd
}

// Reset frees everything and makes the queue a new one. Neither side may use it meanwhile.
func (r *Recv) Reset() {
	_, state := r.tail.load()
	r.ahead.clear(func(c *mem.Chunk) {
		if state == none || c.Start > r.last.Start { // the others are in the chain
			r.arena.Put(c)
		}
	})
	if state != none {
		c := r.rd
		if c == nil {
			c = r.first
		}
		freeChain(r.arena, c)
	}
	*r = Recv{arena: r.arena}
}

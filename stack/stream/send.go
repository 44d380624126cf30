package stream

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// Send is a queue of bytes to send. The application appends; the worker reads any range of what is held and releases what is
// acknowledged. The zero value is ready after Init.
type Send struct {
	tail  tailWord
	head  atomic.Uint64 // lowest offset held
	arena *mem.Arena

	// The application's. first is written while the chain is empty, and read by the worker behind the tail that follows.
	first   *mem.Chunk
	last    *mem.Chunk
	lastEnd uint64 // last.End, which must not be read while the worker may free last

	// The worker's.
	cur  *mem.Chunk // head is in it; nil: see first
	hint *mem.Chunk // of the last Slices
	idx  *index     // all chunks known to the worker, once a walk was long
}

// walkMax is how many chunks Slices walks over before it makes an index.
const walkMax = 8

// Init sets the arena. The queue is empty.
func (s *Send) Init(a *mem.Arena) { s.arena = a }

// Tail is the end of what was appended. Any goroutine may call it.
func (s *Send) Tail() uint64 {
	t, _ := s.tail.load()
	return t
}

// Head is the lowest offset still held. Any goroutine may call it.
func (s *Send) Head() uint64 { return s.head.Load() }

// Append copies bytes of p to the end of the queue while it holds less than limit bytes and memory lasts, and returns how
// many. The application calls it.
func (s *Send) Append(p []byte, limit uint64) int {
	tail, state := s.tail.load()
	held := tail - s.head.Load()
	if held >= limit || len(p) == 0 {
		return 0
	}
	if room := limit - held; uint64(len(p)) > room {
		p = p[:room]
	}
	fresh, ok := s.own(len(p), tail, state)
	if !ok {
		return 0
	}
	n := s.fill(fresh, p, tail)
	s.tail.store(tail+uint64(n), idle)
	return n
}

// own makes the chain's end the application's, for n more bytes. fresh is to be linked there, unless it is nil. It returns false if
// memory is out.
func (s *Send) own(n int, tail, state uint64) (fresh *mem.Chunk, ok bool) {
	// Memory comes first: a busy word must be followed by a larger tail or by Trim, else nobody frees the chunk.
	if state == none {
		fresh = take(s.arena, mem.ClassFor(n))
	} else if tail == s.lastEnd {
		fresh = take(s.arena, grown(s.last.Class, n))
	}
	if fresh == nil && (state == none || tail == s.lastEnd) {
		return nil, false
	}
	if state != none && !s.tail.change(tail, busy) {
		state = none // the worker released all and freed the chunk
		if fresh == nil {
			if fresh = take(s.arena, mem.ClassFor(n)); fresh == nil {
				return nil, false
			}
		}
	}
	if state == none {
		s.last = nil
	}
	return fresh, true
}

// extend links fresh to the chain's end.
func (s *Send) extend(fresh *mem.Chunk, tail uint64) {
	fresh.Start, fresh.End = tail, tail+uint64(len(fresh.Mem))
	if s.last == nil {
		s.first = fresh
	} else {
		s.last.Next.Store(fresh) // and then it may be freed
	}
	s.last, s.lastEnd = fresh, fresh.End
}

// fill copies p to the chain's end, behind linking fresh if that is not nil, and returns how many bytes memory sufficed for.
func (s *Send) fill(fresh *mem.Chunk, p []byte, tail uint64) (n int) {
	for {
		if fresh != nil {
			s.extend(fresh, tail)
		}
		k := copy(s.last.Mem[tail-s.last.Start:], p[n:])
		tail += uint64(k)
		n += k
		if n == len(p) {
			return n
		}
		if fresh = take(s.arena, grown(s.last.Class, len(p)-n)); fresh == nil {
			return n
		}
	}
}

// Slices sets dst to the bytes [off, off+n), in place, and returns how many pieces they are. They stay valid until they are
// released. off lies between Head and Tail; what lies beyond Tail, or does not fit into four pieces, is left out. The worker
// calls it.
func (s *Send) Slices(off uint64, n int, dst *[4][]byte) int {
	tail := s.Tail()
	if off >= tail || n <= 0 {
		return 0
	}
	end := min(off+uint64(n), tail)
	c := s.seek(off)
	for i := range dst {
		stop := min(end, c.End)
		dst[i] = c.Mem[off-c.Start : stop-c.Start : stop-c.Start]
		if stop == end {
			s.hint = c
			return i + 1
		}
		off = stop
		c = c.Next.Load()
	}
	s.hint = c
	return len(dst)
}

// seek returns the chunk of off, which is held.
func (s *Send) seek(off uint64) *mem.Chunk {
	if s.cur == nil {
		s.cur = s.first
	}
	c := s.hint
	if c == nil || off < c.Start {
		c = s.cur
	}
	for steps := 0; off >= c.End; steps++ {
		if steps == walkMax || s.idx != nil && steps == 1 {
			return s.lookup(off)
		}
		c = c.Next.Load()
	}
	return c
}

// lookup searches the index, which it makes or brings up to date.
func (s *Send) lookup(off uint64) *mem.Chunk {
	if s.idx == nil {
		s.idx = new(index)
	}
	c := s.idx.last()
	if c == nil {
		c = s.cur
		s.idx.push(c)
	}
	for c = c.Next.Load(); c != nil; c = c.Next.Load() {
		s.idx.push(c)
	}
	return s.idx.c[s.idx.search(off)]
}

// Release frees what lies below upto, which is at most Tail. The worker calls it.
func (s *Send) Release(upto uint64) {
	if upto <= s.head.Load() {
		return
	}
	c := s.cur
	if c == nil {
		c = s.first
	}
	for upto >= c.End {
		next := c.Next.Load()
		if next == nil {
			break
		}
		s.drop(c)
		c = next
	}
	s.head.Store(upto)
	if s.tail.change(upto, none) {
		s.drop(c)
		c = nil
	}
	s.cur = c
}

// drop frees the first chunk.
func (s *Send) drop(c *mem.Chunk) {
	if s.hint == c {
		s.hint = nil
	}
	if s.idx != nil {
		s.idx.popIf(c)
	}
	s.arena.Put(c)
}

// Reset frees everything and makes the queue a new one. Neither side may use it meanwhile.
func (s *Send) Reset() {
	if _, state := s.tail.load(); state != none {
		c := s.cur
		if c == nil {
			c = s.first
		}
		freeChain(s.arena, c)
	}
	*s = Send{arena: s.arena}
}

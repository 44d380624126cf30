package stream

import "github.com/fastpath-tcp/fastpath/stack/mem"

// Take consumes up to n committed bytes that lie together and returns them in place, with their chunk, which stays until the caller
// puts it back. It returns nil if there are none. The application calls it.
func (r *Recv) Take(n int) ([]byte, *mem.Chunk) {
	head, tail := r.head.Load(), r.Tail()
	if head == tail || n <= 0 {
		r.consume(nil, 0)
		return nil, nil
	}
	c := r.at(head)
	stop := min(tail, c.End, head+uint64(n))
	p := c.Mem[head-c.Start : stop-c.Start : stop-c.Start]
	c.Lease()
	r.consume(nil, len(p))
	return p, c
}

// Reserve returns room for up to n bytes behind the end of the queue, while it holds less than limit bytes and memory lasts; nil if
// there is none. The room's chunk stays until the caller puts it back, whatever becomes of the queue. Commit comes next, and no Append
// or Reserve before. The application calls it.
func (s *Send) Reserve(n int, limit uint64) ([]byte, *mem.Chunk) {
	tail, state := s.tail.load()
	held := tail - s.head.Load()
	if held >= limit || n <= 0 {
		return nil, nil
	}
	n = int(min(uint64(n), limit-held))
	fresh, ok := s.own(n, tail, state)
	if !ok {
		return nil, nil
	}
	if fresh != nil {
		s.extend(fresh, tail)
		s.tail.store(tail, busy)
	}
	at := int(tail - s.last.Start)
	n = min(n, len(s.last.Mem)-at)
	s.last.Lease()
	return s.last.Mem[at : at+n : at+n], s.last
}

// Commit appends the first n bytes of what Reserve returned. If it is none, the worker is to call Trim. The application calls it.
func (s *Send) Commit(n int) {
	tail, _ := s.tail.load()
	s.tail.store(tail+uint64(n), idle)
}

// Trim frees what an empty queue holds, which is room that was reserved and not used. The worker calls it.
func (s *Send) Trim() {
	if !s.tail.change(s.head.Load(), none) {
		return
	}
	c := s.cur
	if c == nil {
		c = s.first
	}
	for c != nil {
		next := c.Next.Load()
		s.drop(c)
		c = next
	}
	s.cur = nil
}

package udp

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// queue passes datagrams from any goroutine to one: a lock-free stack, which the consumer takes whole and turns round. The chunk of a
// datagram holds its data; its fields hold the addresses of both ends, the other end's port and the length.
type queue struct {
	head  atomic.Pointer[mem.Chunk] // newest first
	bytes atomic.Int64              // memory of all that wait, also of those that the consumer has taken and not used
	limit atomic.Int64
	list  *mem.Chunk // the consumer's: oldest first
}

// reserve makes room for a chunk. It reports false if there is none: one datagram fits in any case, so that a small limit delays, and
// does not stop.
func (q *queue) reserve(c mem.Class) bool {
	n := int64(c.Size())
	if used := q.bytes.Add(n); used > q.limit.Load() && used != n {
		q.bytes.Add(-n)
		return false
	}
	return true
}

func (q *queue) release(c mem.Class) { q.bytes.Add(-int64(c.Size())) }

// push appends a chunk for which reserve has made room.
func (q *queue) push(c *mem.Chunk) {
	for {
		h := q.head.Load()
		c.Next.Store(h)
		if q.head.CompareAndSwap(h, c) {
			return
		}
	}
}

// front returns the oldest datagram without taking it, nil if there is none. The consumer calls it.
func (q *queue) front() *mem.Chunk {
	if q.list == nil && q.head.Load() != nil {
		for c := q.head.Swap(nil); c != nil; {
			next := c.Next.Load()
			c.Next.Store(q.list)
			q.list, c = c, next
		}
	}
	return q.list
}

// pop takes the datagram that front has returned, and frees it.
func (q *queue) pop(a *mem.Arena) {
	c := q.list
	q.list = c.Next.Load()
	q.release(c.Class)
	a.Put(c)
}

// drain frees all. It returns how many there were.
func (q *queue) drain(a *mem.Arena) (n int) {
	for ; q.front() != nil; n++ {
		q.pop(a)
	}
	return n
}

// fill copies data into c with the other end's address and this end's.
func fill(c *mem.Chunk, addr wire.Addr, port uint16, local wire.Addr, data []byte) {
	c.Start, c.End = addr.Words()
	c.Fill = uint64(port)<<32 | uint64(len(data))
	c.Extra[0], c.Extra[1] = local.Words()
	copy(c.Mem, data)
}

// content is what fill has put.
func content(c *mem.Chunk) (addr wire.Addr, port uint16, local wire.Addr, data []byte) {
	return wire.AddrFromWords(c.Start, c.End), uint16(c.Fill >> 32), wire.AddrFromWords(c.Extra[0], c.Extra[1]), c.Mem[:uint32(c.Fill)]
}

// mailbox is where applications tell an engine which endpoints have something for it: a lock-free stack, each in it at most once.
type mailbox struct {
	head   atomic.Pointer[Endpoint]
	kicked func()
}

func (m *mailbox) push(ep *Endpoint) {
	if ep.mailed.Swap(true) {
		return
	}
	for {
		h := m.head.Load()
		ep.mailNext = h
		if m.head.CompareAndSwap(h, ep) {
			if h == nil {
				m.kicked()
			}
			return
		}
	}
}

func (m *mailbox) take() *Endpoint {
	if m.head.Load() == nil {
		return nil
	}
	return m.head.Swap(nil)
}

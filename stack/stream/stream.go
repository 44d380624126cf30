// Package stream holds the bytes of connections: one queue to send from, one to receive into, each with one producer and one
// consumer that may run on different threads, and the set of ranges that arrived out of order.
//
// Positions are offsets from the start of the stream. A queue is a chain of chunks of off-heap memory that cover consecutive
// offsets; an empty queue holds none. It takes no lock: producer and consumer meet in one word, the tail with two bits of
// state about the last chunk of the chain, which either side may want: the producer to fill it or to link the next one, the
// consumer to free it when the queue has run empty.
package stream

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// tailWord is tail<<2 | state.
type tailWord struct{ v atomic.Uint64 }

const (
	none uint64 = iota // the chain is empty; the producer may start one
	idle               // whoever changes this to busy (producer) or none (consumer, at an empty queue) owns the last chunk
	busy               // the producer uses the last chunk
)

func (t *tailWord) load() (tail, state uint64) {
	v := t.v.Load()
	return v >> 2, v & 3
}

func (t *tailWord) store(tail, state uint64) { t.v.Store(tail<<2 | state) }

// change moves idle to state and reports whether it did.
func (t *tailWord) change(tail, state uint64) bool {
	return t.v.CompareAndSwap(tail<<2|idle, tail<<2|state)
}

// take returns a chunk of class c or, if memory is short, of a smaller one; nil if there is none.
func take(a *mem.Arena, c mem.Class) *mem.Chunk {
	for {
		if ch := a.Get(c); ch != nil || c == mem.Small {
			return ch
		}
		c--
	}
}

// grown is the class for n bytes behind a chunk of class prev: streams that last get larger chunks.
func grown(prev mem.Class, n int) mem.Class {
	return max(min(prev+1, mem.Large), mem.ClassFor(n))
}

// freeChain puts back c and all behind it.
func freeChain(a *mem.Arena, c *mem.Chunk) {
	for c != nil {
		next := c.Next.Load()
		a.Put(c)
		c = next
	}
}

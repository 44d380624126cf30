package stream

import (
	"sort"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// index is a queue of chunks in the order of their offsets.
type index struct {
	c  []*mem.Chunk // [lo:] are in the queue
	lo int
}

func (x *index) last() *mem.Chunk {
	if x.lo == len(x.c) {
		return nil
	}
	return x.c[len(x.c)-1]
}

// push appends c. It reuses the front rather than grow, if that is worth the move.
func (x *index) push(c *mem.Chunk) {
	if len(x.c) == cap(x.c) && x.lo > 0 && x.lo >= len(x.c)/4 {
		n := copy(x.c, x.c[x.lo:])
		clear(x.c[n:])
		x.c, x.lo = x.c[:n], 0
	}
	x.c = append(x.c, c)
}

// popIf removes c if it is the first.
func (x *index) popIf(c *mem.Chunk) {
	if x.lo < len(x.c) && x.c[x.lo] == c {
		x.c[x.lo] = nil
		x.lo++
		if x.lo == len(x.c) {
			x.c, x.lo = x.c[:0], 0
		}
	}
}

// search returns the position in x.c of the first chunk that ends above off.
func (x *index) search(off uint64) int {
	q := x.c[x.lo:]
	return x.lo + sort.Search(len(q), func(i int) bool { return q[i].End > off })
}

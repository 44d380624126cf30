package stream

import (
	"github.com/google/btree"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// chunkSet is a set of chunks in the order of their offsets, which do not overlap: finding one costs O(log n), wherever it is, and less
// where bytes arrive around the same place for a while. The zero value is empty.
type chunkSet struct {
	x *chunkTree // made once
}

type chunkTree struct {
	t *btree.BTreeG[place]
	// near holds, by the low bits of off/nearSpan, the chunk that was found there last; those that left the set are not in it.
	near [nearSlots]*mem.Chunk
}

const (
	nearSpan  = 16 << 10 // bytes
	nearSlots = 64
)

// place is a chunk and where it starts.
type place struct {
	start uint64
	c     *mem.Chunk
}

func slot(off uint64) uint64 { return off / nearSpan % nearSlots }

func (s *chunkSet) len() int {
	if s.x == nil {
		return 0
	}
	return s.x.t.Len()
}

func (s *chunkSet) add(c *mem.Chunk) {
	if s.x == nil {
		s.x = &chunkTree{t: btree.NewG(treeDegree, func(a, b place) bool { return a.start < b.start })}
	}
	s.x.t.ReplaceOrInsert(place{c.Start, c})
}

// drop removes the chunk that starts at start, if there is one.
func (s *chunkSet) drop(start uint64) {
	if s.len() == 0 {
		return
	}
	if p, ok := s.x.t.Delete(place{start: start}); ok {
		for off := p.start; off/nearSpan <= (p.c.End-1)/nearSpan; off += nearSpan {
			if k := slot(off); s.x.near[k] == p.c {
				s.x.near[k] = nil
			}
		}
	}
}

// at returns the chunk that starts at start, or nil.
func (s *chunkSet) at(start uint64) *mem.Chunk {
	if s.len() == 0 {
		return nil
	}
	p, _ := s.x.t.Get(place{start: start})
	return p.c
}

// around returns the last chunk that starts at or below off, and, unless that one holds off, the first that starts above it; nil for either
// if there is none.
func (s *chunkSet) around(off uint64) (below, above *mem.Chunk) {
	if s.len() == 0 {
		return nil, nil
	}
	near := &s.x.near[slot(off)]
	if c := *near; c != nil && off >= c.Start && off < c.End {
		return c, nil
	}
	s.x.t.DescendLessOrEqual(place{start: off}, func(p place) bool {
		below = p.c
		return false
	})
	if below != nil && off < below.End {
		*near = below
		return below, nil
	}
	s.x.t.AscendGreaterOrEqual(place{start: off + 1}, func(p place) bool {
		above = p.c
		return false
	})
	return below, above
}

// clear empties the set, after f for each chunk, and keeps its memory.
func (s *chunkSet) clear(f func(*mem.Chunk)) {
	if s.len() == 0 {
		return
	}
	s.x.t.Ascend(func(p place) bool {
		f(p.c)
		return true
	})
	s.x.t.Clear(true)
	s.x.near = [nearSlots]*mem.Chunk{}
}

package stream

import (
	"github.com/google/btree"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// chunkSet is a set of chunks in the order of their offsets, which do not overlap: finding one costs O(log n), wherever it is. The zero
// value is empty.
type chunkSet struct {
	t *btree.BTreeG[place] // made once
}

// place is a chunk and where it starts.
type place struct {
	start uint64
	c     *mem.Chunk
}

func (s *chunkSet) len() int {
	if s.t == nil {
		return 0
	}
	return s.t.Len()
}

func (s *chunkSet) add(c *mem.Chunk) {
	if s.t == nil {
		s.t = btree.NewG(treeDegree, func(a, b place) bool { return a.start < b.start })
	}
	s.t.ReplaceOrInsert(place{c.Start, c})
}

// drop removes the chunk that starts at start, if there is one.
func (s *chunkSet) drop(start uint64) {
	if s.len() > 0 {
		s.t.Delete(place{start: start})
	}
}

// at returns the chunk that starts at start, or nil.
func (s *chunkSet) at(start uint64) *mem.Chunk {
	if s.len() == 0 {
		return nil
	}
	p, _ := s.t.Get(place{start: start})
	return p.c
}

// around returns the last chunk that starts at or below off, and the first that starts above it; nil for either if there is none.
func (s *chunkSet) around(off uint64) (below, above *mem.Chunk) {
	if s.len() == 0 {
		return nil, nil
	}
	s.t.DescendLessOrEqual(place{start: off}, func(p place) bool {
		below = p.c
		return false
	})
	s.t.AscendGreaterOrEqual(place{start: off + 1}, func(p place) bool {
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
	s.t.Ascend(func(p place) bool {
		f(p.c)
		return true
	})
	s.t.Clear(true)
}

package stream

import (
	"slices"

	"github.com/google/btree"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Range is the half-open range of offsets [Start, End).
type Range struct{ Start, End uint64 }

// Len is the number of bytes in r.
func (r Range) Len() uint64 { return r.End - r.Start }

// Ranges is a set of disjoint ranges of offsets that do not touch, such as what a receiver holds out of order. It remembers
// which ranges changed last, for SACK (RFC 2018, 4). The zero value is empty and holds up to DefaultRanges.
//
// Few ranges are a sorted slice; beyond sliceMax they move to a tree, and back below sliceMax/2.
type Ranges struct {
	s *rangeSet // nil until something is added
}

const (
	// DefaultRanges bounds the number of ranges, and so the work that one peer can cause.
	DefaultRanges = 1024
	sliceMax      = 32
	treeDegree    = 16
	recents       = 8
)

type rangeSet struct {
	list    []Range              // if tree is nil or empty
	tree    *btree.BTreeG[Range] // ordered by Start; made once
	bytes   uint64
	refused uint64
	limit   int
	nRecent int
	nFresh  int            // of recent, the first ones: Recent has not reported them since they changed
	recent  [recents]Range // the ranges that changed last, newest first, as they are in the set
}

// SetLimit bounds the number of ranges.
func (r *Ranges) SetLimit(n int) { r.set().limit = n }

func (r *Ranges) set() *rangeSet {
	if r.s == nil {
		r.s = &rangeSet{limit: DefaultRanges}
	}
	return r.s
}

func (s *rangeSet) inTree() bool { return s.tree != nil && s.tree.Len() > 0 }

func (s *rangeSet) len() int {
	if s.inTree() {
		return s.tree.Len()
	}
	return len(s.list)
}

// Len is the number of ranges.
func (r *Ranges) Len() int {
	if r.s == nil {
		return 0
	}
	return r.s.len()
}

// Bytes is the number of bytes in all ranges.
func (r *Ranges) Bytes() uint64 {
	if r.s == nil {
		return 0
	}
	return r.s.bytes
}

// Refused is the number of Adds that the limit refused.
func (r *Ranges) Refused() uint64 {
	if r.s == nil {
		return 0
	}
	return r.s.refused
}

// First returns the lowest range; the zero Range if there is none.
func (r *Ranges) First() Range {
	if r.s == nil {
		return Range{}
	}
	return r.s.first()
}

func (s *rangeSet) first() Range {
	if s.inTree() {
		f, _ := s.tree.Min()
		return f
	}
	if len(s.list) > 0 {
		return s.list[0]
	}
	return Range{}
}

// Add adds [start, end), joins it with what it touches or overlaps, and makes the result the most recent range. It returns
// how many bytes are new, the lowest part that was in a range already, and the range that now holds all. If the set is full, and the
// range touches no other, nothing changes and merged is the zero Range.
func (r *Ranges) Add(start, end uint64) (newly uint64, dup, merged Range) {
	if start >= end {
		return 0, Range{}, Range{}
	}
	s := r.set()
	m := Range{start, end}
	var old uint64 // bytes in the ranges that m swallows
	count := 0
	at, found := Range{}, false // what m replaces in its place
	for t, ok := s.touching(m); ok; t, ok = s.touching(m) {
		if t.Start <= m.Start && t.End >= m.End && count == 0 { // nothing new
			s.touch(t)
			return 0, m, t
		}
		if both := (Range{max(start, t.Start), min(end, t.End)}); both.Start < both.End && (dup.Len() == 0 || both.Start < dup.Start) {
			dup = both
		}
		old += t.Len()
		count++
		m = Range{min(m.Start, t.Start), max(m.End, t.End)}
		if m.Start == t.Start {
			at, found = t, true
			break // what lies below t does not touch it
		}
		s.remove(t)
	}
	if count == 0 && s.len() >= s.limit {
		s.refused++
		return 0, Range{}, Range{}
	}
	if found {
		s.replace(at, m)
	} else {
		s.insert(m)
	}
	newly = m.Len() - old
	s.bytes += newly
	s.touch(m)
	return newly, dup, m
}

// Next returns the lowest range that ends above off; the zero Range if there is none.
func (r *Ranges) Next(off uint64) (next Range) {
	s := r.s
	switch {
	case s == nil:
	case s.inTree():
		s.tree.DescendLessOrEqual(Range{Start: off}, func(x Range) bool {
			if x.End > off {
				next = x
			}
			return false
		})
		if next.End > off {
			return next
		}
		s.tree.AscendGreaterOrEqual(Range{Start: off + 1}, func(x Range) bool {
			next = x
			return false
		})
	default:
		if i := s.find(off + 1); i < len(s.list) {
			next = s.list[i]
		}
	}
	return next
}

// Last returns the highest range; the zero Range if there is none.
func (r *Ranges) Last() (last Range) {
	s := r.s
	switch {
	case s == nil:
	case s.inTree():
		last, _ = s.tree.Max()
	case len(s.list) > 0:
		last = s.list[len(s.list)-1]
	}
	return last
}

// Room reports whether Add would take [start, end): the set is not full, or the range touches another.
func (r *Ranges) Room(start, end uint64) bool {
	s := r.s
	if s == nil || s.len() < s.limit {
		return true
	}
	if _, ok := s.touching(Range{start, end}); ok {
		return true
	}
	s.refused++
	return false
}

// touching returns the highest range that overlaps m or is adjacent to it.
func (s *rangeSet) touching(m Range) (t Range, ok bool) {
	if s.inTree() {
		s.tree.DescendLessOrEqual(Range{Start: m.End}, func(x Range) bool {
			t, ok = x, x.End >= m.Start
			return false
		})
		return t, ok
	}
	i := s.find(m.End)
	if i == len(s.list) || s.list[i].Start > m.End {
		i--
	}
	if i < 0 || s.list[i].End < m.Start {
		return t, false
	}
	return s.list[i], true
}

// find returns the position of the first range of the list that ends at or above off.
func (s *rangeSet) find(off uint64) int {
	lo, hi := 0, len(s.list)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if s.list[m].End < off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (s *rangeSet) remove(t Range) {
	if !s.inTree() {
		i := s.find(t.End)
		s.list = slices.Delete(s.list, i, i+1)
		return
	}
	s.tree.Delete(t)
	if s.tree.Len() < sliceMax/2 {
		s.tree.Ascend(func(x Range) bool {
			s.list = append(s.list, x)
			return true
		})
		s.tree.Clear(true)
	}
}

func (s *rangeSet) insert(m Range) {
	if !s.inTree() && len(s.list) < sliceMax {
		s.list = slices.Insert(s.list, s.find(m.Start), m)
		return
	}
	if s.tree == nil {
		s.tree = btree.NewG(treeDegree, func(a, b Range) bool { return a.Start < b.Start })
	}
	for _, x := range s.list {
		s.tree.ReplaceOrInsert(x)
	}
	s.list = s.list[:0]
	s.tree.ReplaceOrInsert(m)
}

// replace makes t, which is in the set, m, which starts where t does.
func (s *rangeSet) replace(t, m Range) {
	if s.inTree() {
		s.tree.ReplaceOrInsert(m)
	} else {
		s.list[s.find(t.End)] = m
	}
}

// touch makes m the newest of the recent ranges, and forgets others inside of it.
func (s *rangeSet) touch(m Range) {
	if s.nFresh > 0 && s.recent[0].Start == m.Start && s.recent[0].End == m.End {
		return
	}
	var keep [recents]Range
	keep[0] = m
	n, fresh := 1, 1
	for i, v := range s.recent[:s.nRecent] {
		if (v.Start < m.Start || v.Start >= m.End) && n < recents {
			keep[n] = v
			n++
			if i < s.nFresh {
				fresh++
			}
		}
	}
	s.recent, s.nRecent, s.nFresh = keep, n, fresh
}

// Trim removes what lies below off.
func (r *Ranges) Trim(off uint64) {
	s := r.s
	if s == nil {
		return
	}
	for s.len() > 0 {
		f := s.first()
		if f.Start >= off {
			break
		}
		s.remove(f)
		s.bytes -= min(f.End, off) - f.Start
		if f.End > off {
			s.insert(Range{off, f.End})
			for i, v := range s.recent[:s.nRecent] {
				if v.Start == f.Start {
					s.recent[i].Start = off
				}
			}
			break
		}
	}
	n, fresh := 0, 0
	for i, v := range s.recent[:s.nRecent] {
		if v.Start >= off {
			s.recent[n] = v
			n++
			if i < s.nFresh {
				fresh++
			}
		}
	}
	s.nRecent, s.nFresh = n, fresh
}

// Fresh is the number of ranges, up to 8, that Recent has not reported since they changed.
func (r *Ranges) Fresh() int {
	if r.s == nil {
		return 0
	}
	return r.s.nFresh
}

// Recent fills dst with ranges, the one that changed last first, and returns how many: the order in which an ACK reports
// SACK blocks (RFC 2018, 4). If more than most of them have not been reported since they changed, those wait that changed last, for
// another call (see Fresh). base is the sequence number of offset 0.
func (r *Ranges) Recent(dst []seq.Range, most int, base uint32) (n int) {
	s := r.s
	if s == nil {
		return 0
	}
	wait := max(s.nFresh-most, 0)
	s.nFresh = wait
	for _, t := range s.recent[wait:s.nRecent] {
		if n == len(dst) {
			return n
		}
		dst[n] = seq.Range{Start: base + uint32(t.Start), End: base + uint32(t.End)}
		n++
	}
	if n < len(dst) && n < s.len()-wait {
		n = s.others(dst, n, base)
	}
	return n
}

// others adds ranges that are not among the recent ones to dst[n:], the lowest first.
func (s *rangeSet) others(dst []seq.Range, n int, base uint32) int {
	known := n
	s.all(func(t Range) bool {
		b := seq.Range{Start: base + uint32(t.Start), End: base + uint32(t.End)}
		if !slices.Contains(dst[:known], b) {
			dst[n] = b
			n++
		}
		return n < len(dst)
	})
	return n
}

// All calls f with each range in order until it returns false.
func (r *Ranges) All(f func(Range) bool) {
	if r.s != nil {
		r.s.all(f)
	}
}

func (s *rangeSet) all(f func(Range) bool) {
	if s.inTree() {
		s.tree.Ascend(f)
		return
	}
	for _, x := range s.list {
		if !f(x) {
			return
		}
	}
}

// Clear removes all ranges and keeps the memory.
func (r *Ranges) Clear() {
	if s := r.s; s != nil {
		s.list = s.list[:0]
		if s.tree != nil {
			s.tree.Clear(true)
		}
		s.bytes, s.nRecent, s.nFresh = 0, 0, 0
	}
}

// Reset removes all ranges and frees the memory.
func (r *Ranges) Reset() { r.s = nil }

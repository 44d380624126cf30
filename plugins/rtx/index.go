package rtx

import (
	"github.com/google/btree"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// index finds segments of a long queue by sequence number. Segments lie in runs, sorted arrays of up to a fixed number; a B-tree
// (github.com/google/btree) orders the runs by their first sequence number. In order, a segment costs an array store at the end and
// nothing at the front; the tree is touched once per run.
type index struct {
	tree        *btree.BTreeG[entry]
	first, last *run
	found       *run // the last one found: neighbours are often asked for next
	visit       btree.ItemIteratorG[entry]
	next        *index // free list
}

// entry is a run in the tree. Keys are compared modulo 2^32: a queue spans less than 2^31 (see maxSpan).
type entry struct {
	key uint32
	run *run
}

// run is a sorted array: entries lo…hi-1 are in use; what the others point to is in use elsewhere or in the pool. All of its keys are at
// least key, and below the next run's key.
type run struct {
	key        uint32
	lo, hi     int
	keys       []uint32 // segment.key
	segs       []*segment
	prev, next *run
}

// indexPool holds indexes and runs that are not in use.
type indexPool struct {
	threshold int // queues with more segments than this have an index
	runLen    int
	nodes     *btree.FreeListG[entry]
	free      *index
	runs      *run // linked by next
	nruns     int
}

// Sizes that the benchmarks chose: up to 32 segments a walk is as fast as a search; runs of 64 make the tree cheap to keep in order.
const (
	defaultThreshold = 32
	defaultRunLen    = 64
	treeDegree       = 32
	maxFreeNodes     = 4096
)

func (ip *indexPool) get(p *pool) *index {
	if x := ip.free; x != nil {
		ip.free, x.next = x.next, nil
		return x
	}
	if ip.nodes == nil {
		ip.nodes = btree.NewFreeListG[entry](maxFreeNodes)
	}
	x := &index{tree: btree.NewWithFreeListG(treeDegree, func(a, b entry) bool {
		p.visits++
		return seq.Before(a.key, b.key)
	}, ip.nodes)}
	x.visit = func(e entry) bool {
		x.found = e.run
		return false
	}
	return x
}

func (ip *indexPool) put(x *index) {
	for r := x.first; r != nil; {
		next := r.next
		ip.putRun(r)
		r = next
	}
	x.tree.Clear(true)
	x.first, x.last, x.found = nil, nil, nil
	x.next, ip.free = ip.free, x
}

func (ip *indexPool) getRun() *run {
	r := ip.runs
	if r == nil {
		return &run{keys: make([]uint32, ip.runLen), segs: make([]*segment, ip.runLen)}
	}
	ip.runs, r.next = r.next, nil
	ip.nruns--
	return r
}

func (ip *indexPool) putRun(r *run) {
	if ip.nruns >= maxFree/ip.runLen {
		return
	}
	r.lo, r.hi, r.prev = 0, 0, nil
	r.next, ip.runs = ip.runs, r
	ip.nruns++
}

// append adds g, which lies behind all others.
func (x *index) append(p *pool, g *segment) {
	r := x.last
	if r == nil || r.hi == len(r.segs) {
		if r == nil || r.lo <= len(r.segs)/2 {
			x.addRun(p, r, g)
			return
		}
		r.slide()
	}
	r.keys[r.hi], r.segs[r.hi] = g.key, g
	r.hi++
}

// slide moves a run's entries to the front of its array.
func (r *run) slide() {
	n := copy(r.keys, r.keys[r.lo:r.hi])
	copy(r.segs, r.segs[r.lo:r.hi])
	r.lo, r.hi = 0, n
}

// addRun puts a new run with only g behind run r (nil: as the first one).
func (x *index) addRun(p *pool, r *run, g *segment) *run {
	n := p.idx.getRun()
	n.key, n.hi = g.key, 1
	n.keys[0], n.segs[0] = g.key, g
	x.link(r, n)
	return n
}

// link puts run n behind run r and into the tree.
func (x *index) link(r, n *run) {
	n.prev = r
	if r == nil {
		n.next, x.first = x.first, n
	} else {
		n.next, r.next = r.next, n
	}
	if n.next == nil {
		x.last = n
	} else {
		n.next.prev = n
	}
	x.tree.ReplaceOrInsert(entry{n.key, n})
}

// unlink takes an empty run out.
func (x *index) unlink(p *pool, r *run) {
	if r.prev == nil {
		x.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		x.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	if x.found == r {
		x.found = nil
	}
	x.tree.Delete(entry{key: r.key})
	p.idx.putRun(r)
}

// popFront forgets the first n segments.
func (x *index) popFront(p *pool, n int) {
	for n > 0 {
		r := x.first
		k := min(n, r.hi-r.lo)
		r.lo += k
		n -= k
		if r.lo == r.hi {
			x.unlink(p, r)
		}
	}
}

// runOf returns the last run whose key is at most s; the first run if there is none.
func (x *index) runOf(p *pool, s uint32) *run {
	p.visits++
	if seq.AfterEq(s, x.last.key) {
		return x.last
	}
	if r := x.found; r != nil && seq.AfterEq(s, r.key) && seq.Before(s, r.next.key) { // not the last: that was tried
		return r
	}
	x.found = x.first
	if x.first.next == nil || seq.Before(s, x.first.next.key) {
		return x.first
	}
	x.tree.DescendLessOrEqual(entry{key: s}, x.visit)
	return x.found
}

// locate returns the number of entries of r whose key is at most s.
func (r *run) locate(p *pool, s uint32) int {
	lo, hi := r.lo, r.hi
	for lo < hi {
		p.visits++
		mid := int(uint(lo+hi) / 2)
		if seq.BeforeEq(r.keys[mid], s) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns the last segment whose key is at most s.
func (x *index) find(p *pool, s uint32) *segment {
	r := x.runOf(p, s)
	i := r.locate(p, s)
	if i == r.lo { // s lies in the last segment of the run before, which has grown
		r = r.prev
		i = r.hi
	}
	return r.segs[i-1]
}

// insertAfter adds g, which was cut off the end of left.
func (x *index) insertAfter(p *pool, left, g *segment) {
	r := x.runOf(p, left.key)
	i := r.locate(p, left.key) // g's place
	if i == r.hi && r.next != nil && seq.AfterEq(g.key, r.next.key) {
		r = r.next // left had grown beyond where the next run once began
		i = r.lo
	}
	if r.hi == len(r.segs) {
		switch {
		case r.lo > 0:
			i -= r.lo
			r.slide()
		case i == r.hi:
			x.addRun(p, r, g)
			return
		default:
			r, i = x.splitRun(p, r, i)
		}
	}
	copy(r.keys[i+1:r.hi+1], r.keys[i:r.hi])
	copy(r.segs[i+1:r.hi+1], r.segs[i:r.hi])
	r.keys[i], r.segs[i] = g.key, g
	r.hi++
}

// splitRun moves the upper half of a full run to a new one, and returns where the place i went.
func (x *index) splitRun(p *pool, r *run, i int) (*run, int) {
	half := (r.lo + r.hi) / 2
	n := p.idx.getRun()
	n.hi = copy(n.keys, r.keys[half:r.hi])
	copy(n.segs, r.segs[half:r.hi])
	n.key = n.keys[0]
	r.hi = half
	x.link(r, n)
	if i <= half {
		return r, i
	}
	return n, i - half
}

// remove forgets g, and joins runs that have become small.
func (x *index) remove(p *pool, g *segment) {
	r := x.runOf(p, g.key)
	i := r.locate(p, g.key) - 1
	copy(r.keys[i:], r.keys[i+1:r.hi])
	copy(r.segs[i:], r.segs[i+1:r.hi])
	r.hi--
	if r.lo == r.hi {
		x.unlink(p, r)
		return
	}
	if n := r.next; n != nil && (r.hi-r.lo)+(n.hi-n.lo) <= len(r.segs)/2 {
		r.slide()
		copy(r.keys[r.hi:], n.keys[n.lo:n.hi])
		r.hi += copy(r.segs[r.hi:], n.segs[n.lo:n.hi])
		n.lo = n.hi
		x.unlink(p, n)
	}
}

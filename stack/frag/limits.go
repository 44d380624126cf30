package frag

import (
	"math/bits"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// overhead is what a datagram costs beside its fragments, in bytes.
const overhead = 512

// room takes n bytes. If that is too much, the oldest datagrams but keep are dropped.
func (r *Reassembler) room(n int64, keep *datagram) bool {
	if r.blocks.used+n > r.cfg.High {
		for r.blocks.used+n > r.cfg.Low {
			v := r.oldest(keep)
			if v == nil {
				break
			}
			r.evict(v)
		}
		if r.blocks.used+n > r.cfg.High {
			return false
		}
	}
	for !r.blocks.charge(n) {
		v := r.oldest(keep)
		if v == nil {
			return false
		}
		r.evict(v)
	}
	return true
}

// oldest is the datagram that began first, but keep.
func (r *Reassembler) oldest(keep *datagram) (best *datagram) {
	began := plugins.Never
	for family, timeout := range [...]plugins.Time{plugins.Time(r.cfg.TimeoutV4), plugins.Time(r.cfg.TimeoutV6)} {
		g := r.age[family].first
		if g == keep && g != nil {
			g = g.age.next
		}
		if g != nil && g.deadline-timeout < began {
			best, began = g, g.deadline-timeout
		}
	}
	return best
}

func (r *Reassembler) evict(g *datagram) {
	r.stats.Evicted++
	r.remove(g)
}

// giveUp drops what has arrived of g. Its other fragments are dropped as they come (RFC 5722, 4).
func (r *Reassembler) giveUp(g *datagram) {
	r.release(g)
	r.blocks.uncharge(g.charged - overhead)
	g.charged, g.dead = overhead, true
}

// release frees g's blocks, which stay charged.
func (r *Reassembler) release(g *datagram) {
	for i := range g.pieces {
		r.blocks.free(g.pieces[i].data)
		g.pieces[i].data = nil
	}
	g.pieces = g.pieces[:0]
	if g.head != nil {
		r.blocks.free(g.head)
		g.head = nil
	}
}

// maxSpare is the number of datagram records kept for reuse.
const maxSpare = 256

func (r *Reassembler) remove(g *datagram) {
	r.release(g)
	r.blocks.uncharge(g.charged)
	delete(r.byKey, g.key)
	family := 0
	if g.v6 {
		family = 1
	}
	r.age[family].remove(g)
	g.src.list.remove(g)
	if g.src.n--; g.src.n == 0 {
		delete(r.sources, g.src.addr)
	}
	g.src = nil
	if len(r.spare) < maxSpare {
		r.spare = append(r.spare, g)
	}
}

// Expired is a datagram whose time ran out and whose first fragment had arrived: its source is told so by a Time Exceeded message
// with code 1 (RFC 792; RFC 1122, 3.3.2; RFC 4443, 3.3).
type Expired struct {
	Src, Dst wire.Addr // as in the fragments: the message goes to Src
	First    []byte    // the first fragment, a whole IP packet, for the quote; valid until the function that gets it returns
}

// Deadline is the next time at which Poll has work; Never if there is none.
func (r *Reassembler) Deadline() plugins.Time {
	at := plugins.Never
	for i := range r.age {
		if g := r.age[i].first; g != nil {
			at = min(at, g.deadline)
		}
	}
	return at
}

// Poll removes the datagrams whose time is over, and calls report for those whose first fragment is there.
func (r *Reassembler) Poll(now plugins.Time, report func(*Expired)) {
	for i := range r.age {
		for g := r.age[i].first; g != nil && g.deadline <= now; g = r.age[i].first {
			if !g.dead {
				r.stats.TimedOut++
				if g.head != nil && report != nil {
					first := append(append([]byte(nil), g.head...), g.pieces[0].data...)
					report(&Expired{Src: g.key.src, Dst: g.key.dst, First: first})
				}
			}
			r.remove(g)
		}
	}
}

// Close drops everything and gives its memory back to the budget.
func (r *Reassembler) Close() {
	for i := range r.age {
		for r.age[i].first != nil {
			r.remove(r.age[i].first)
		}
	}
	r.blocks.trim(0)
	r.spare, r.whole = nil, nil
}

// blocks is the memory for copies of fragments, in sizes of powers of two. What is freed is kept for reuse up to maxKept bytes.
type blocks struct {
	budget *mem.Budget
	used   int64 // bytes charged for datagrams
	kept   int64 // bytes in free; they are charged to the budget, too
	lists  [11][][]byte
}

const (
	minBlock = 64
	maxKept  = 256 << 10
)

// class is the size class of a block for n bytes.
func class(n int) int { return bits.Len(uint(max(n, minBlock)-1)) - bits.Len(uint(minBlock-1)) }

// cost is the number of bytes that a block for n bytes is charged with.
func (m *blocks) cost(n int) int64 { return minBlock << class(n) }

// charge takes n bytes of the budget, those of free blocks first.
func (m *blocks) charge(n int64) bool {
	if m.budget != nil && !m.budget.TryAdd(n) {
		if m.kept == 0 {
			return false
		}
		m.trim(0)
		if !m.budget.TryAdd(n) {
			return false
		}
	}
	m.used += n
	return true
}

func (m *blocks) uncharge(n int64) {
	m.used -= n
	if m.budget != nil {
		m.budget.Sub(n)
	}
}

// copy returns a copy of p in a block that was charged.
func (m *blocks) copy(p []byte) []byte {
	c := class(len(p))
	if n := len(m.lists[c]); n > 0 {
		b := m.lists[c][n-1]
		m.lists[c] = m.lists[c][:n-1]
		m.keep(-m.cost(len(p)))
		return append(b, p...)
	}
	return append(make([]byte, 0, m.cost(len(p))), p...)
}

func (m *blocks) free(b []byte) {
	n := int64(cap(b))
	if m.kept+n > maxKept {
		return
	}
	c := class(cap(b))
	m.lists[c] = append(m.lists[c], b[:0])
	m.keep(n)
}

func (m *blocks) keep(n int64) {
	m.kept += n
	if m.budget != nil {
		m.budget.Add(n)
	}
}

// trim drops free blocks until at most n bytes are kept.
func (m *blocks) trim(n int64) {
	for c := len(m.lists) - 1; c >= 0; c-- {
		for m.kept > n && len(m.lists[c]) > 0 {
			last := len(m.lists[c]) - 1
			m.lists[c][last] = nil
			m.lists[c] = m.lists[c][:last]
			m.keep(-(minBlock << c))
		}
	}
}

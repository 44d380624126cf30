// Package timer is a hierarchical timing wheel over small dense ids, such as the slots of a worker's connections. Arming,
// moving and stopping are O(1) and allocate nothing once the ids are known.
package timer

import (
	"math/bits"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// A level has 64 slots, one word of its bitmap. A tick is 256 ns; ten levels reach as far as Time does.
const (
	tickBits  = 8
	slotBits  = 6
	slots     = 1 << slotBits
	levels    = 10
	sentinels = levels * slots
)

// Wheel holds at most one deadline per id. It has one owner.
//
// An entry is in the level of the highest digit (base 64) in which its tick differs from the current one, in the slot of that
// digit. So every slot in use lies ahead of the current one (on level 0, at it or ahead), whatever is on a lower level is due
// earlier, and the earliest entry is in the first slot of the lowest level in use.
type Wheel struct {
	tick  uint64         // of the last Advance
	used  uint32         // levels with entries
	slots [levels]uint64 // slots with entries
	// nodes are the rings of the slots, linked by index, and behind these the ids.
	nodes []node
	// next is the result of Next while valid.
	next  plugins.Time
	valid bool
}

type node struct {
	at         plugins.Time // Never if not armed
	prev, next uint32
}

// New returns an empty wheel.
func New(now plugins.Time) *Wheel {
	w := &Wheel{tick: tickOf(now), nodes: make([]node, sentinels)}
	for i := range w.nodes {
		w.nodes[i] = node{at: plugins.Never, prev: uint32(i), next: uint32(i)}
	}
	return w
}

func tickOf(t plugins.Time) uint64 { return uint64(max(t, 0)) >> tickBits }

// Grow makes room for ids below n, so that Set does not allocate for them.
func (w *Wheel) Grow(n int) {
	for len(w.nodes) < sentinels+n {
		w.nodes = append(w.nodes, node{at: plugins.Never})
	}
}

// Set arms id, or moves its deadline. A time that is past fires at the next Advance; Never stops it.
func (w *Wheel) Set(id uint32, at plugins.Time) {
	i := sentinels + id
	if int(i) >= len(w.nodes) {
		if at == plugins.Never {
			return
		}
		w.Grow(int(id) + 1)
	}
	if old := w.nodes[i].at; old != plugins.Never {
		if old == at {
			return
		}
		w.remove(i, old)
	}
	if at == plugins.Never {
		return
	}
	w.insert(i, at)
	if at < w.next {
		w.next = at // if not valid, it is computed anyway
	}
}

// Stop disarms id.
func (w *Wheel) Stop(id uint32) { w.Set(id, plugins.Never) }

// At returns the deadline of id, Never if it has none.
func (w *Wheel) At(id uint32) plugins.Time {
	if i := int(sentinels + id); i < len(w.nodes) {
		return w.nodes[i].at
	}
	return plugins.Never
}

// insert links node i at the end of its slot.
func (w *Wheel) insert(i uint32, at plugins.Time) {
	tick := max(tickOf(at), w.tick)
	level := uint32(0)
	if d := tick ^ w.tick; d != 0 {
		level = uint32(bits.Len64(d)-1) / slotBits
	}
	slot := uint32(tick>>(level*slotBits)) & (slots - 1)
	w.used |= 1 << level
	w.slots[level] |= 1 << slot
	s := level*slots + slot
	last := w.nodes[s].prev
	w.nodes[i] = node{at: at, prev: last, next: s}
	w.nodes[last].next = i
	w.nodes[s].prev = i
}

// remove unlinks node i, whose deadline was at.
func (w *Wheel) remove(i uint32, at plugins.Time) {
	n := &w.nodes[i]
	n.at = plugins.Never
	w.nodes[n.prev].next = n.next
	w.nodes[n.next].prev = n.prev
	if n.prev == n.next && n.prev < sentinels {
		w.clear(n.prev)
	}
	if at <= w.next || w.used == 0 {
		w.valid = false
	}
}

// clear marks the slot of sentinel s as empty.
func (w *Wheel) clear(s uint32) {
	level := s / slots
	w.slots[level] &^= 1 << (s % slots)
	if w.slots[level] == 0 {
		w.used &^= 1 << level
	}
}

// first returns the sentinel and the first tick of the earliest slot in use; w.used is not 0.
func (w *Wheel) first() (s uint32, tick uint64) {
	level := uint32(bits.TrailingZeros32(w.used))
	slot := uint32(bits.TrailingZeros64(w.slots[level]))
	shift := level * slotBits
	tick = w.tick>>shift>>slotBits<<slotBits<<shift | uint64(slot)<<shift
	return level*slots + slot, tick
}

// Advance moves the wheel to now, which does not go back, disarms the ids that are due (at <= now), appends them to dst and
// returns it. Their order is that of their ticks, and within a tick that in which they were set.
func (w *Wheel) Advance(now plugins.Time, dst []uint32) []uint32 {
	to := max(tickOf(now), w.tick)
	for w.used != 0 {
		s, tick := w.first()
		if tick > to {
			break
		}
		w.tick = tick // nothing lies between
		if s >= slots {
			w.cascade(s)
			continue
		}
		dst = w.fire(s, now, dst)
		if tick == to {
			break // what is left is due later in this tick
		}
	}
	w.tick = to
	if w.next <= now {
		w.valid = false
	}
	return dst
}

// cascade spreads a slot of a higher level, whose first tick is the current one, over lower levels.
func (w *Wheel) cascade(s uint32) {
	i := w.nodes[s].next
	w.nodes[s].next, w.nodes[s].prev = s, s
	w.clear(s)
	for i != s {
		next := w.nodes[i].next
		w.insert(i, w.nodes[i].at)
		i = next
	}
}

// fire takes the due entries out of slot s of level 0.
func (w *Wheel) fire(s uint32, now plugins.Time, dst []uint32) []uint32 {
	for i := w.nodes[s].next; i != s; {
		next := w.nodes[i].next
		if at := w.nodes[i].at; at <= now {
			w.remove(i, at)
			dst = append(dst, i-sentinels)
		}
		i = next
	}
	return dst
}

// Next returns a time that no deadline precedes, so Advance need not be called before it; Never if nothing is armed. It is
// after the time of the last Advance, unless an id was since set to a time that is past. It is the earliest deadline itself
// if that lies within level 0 (up to 16 µs ahead); else Advance at that time makes it more exact.
func (w *Wheel) Next() plugins.Time {
	if !w.valid {
		w.next, w.valid = w.bound(), true
	}
	return w.next
}

func (w *Wheel) bound() plugins.Time {
	if w.used == 0 {
		return plugins.Never
	}
	s, tick := w.first()
	if s >= slots {
		return plugins.Time(tick << tickBits)
	}
	at := plugins.Never
	for i := w.nodes[s].next; i != s; i = w.nodes[i].next {
		at = min(at, w.nodes[i].at)
	}
	return at
}

package trace

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
)

// slot is one copied frame.
type slot struct {
	at     plugins.Time
	dir    pcap.Direction
	length int // of the frame
	n      int // bytes copied
	data   []byte
}

// ring carries copies from one queue's worker to the consumer. Slots are allocated when the capture starts.
type ring struct {
	slots []slot
	mask  uint64
	keep  func(frame []byte) bool // nil: all

	_       [64]byte
	tail    atomic.Uint64 // published
	pending uint64        // written but not published; the worker's
	seen    uint64        // the worker's copy of head
	dropped atomic.Uint64
	_       [64]byte
	head    atomic.Uint64
}

func newRing(slots, snap int, keep func([]byte) bool) *ring {
	r := &ring{slots: make([]slot, slots), mask: uint64(slots - 1), keep: keep}
	mem := make([]byte, slots*snap)
	for i := range r.slots {
		r.slots[i].data = mem[i*snap : (i+1)*snap : (i+1)*snap]
	}
	return r
}

// stage copies a frame into the next slot, without publishing it. It reports false if the ring is full.
func (r *ring) stage(frame []byte, dir pcap.Direction, at plugins.Time) bool {
	if r.pending-r.seen == uint64(len(r.slots)) {
		if r.seen = r.head.Load(); r.pending-r.seen == uint64(len(r.slots)) {
			return false
		}
	}
	s := &r.slots[r.pending&r.mask]
	s.at, s.dir, s.length = at, dir, len(frame)
	s.n = copy(s.data, frame)
	r.pending++
	return true
}

// publish makes what is staged visible, up to index end, and forgets the rest.
func (r *ring) publish(end uint64) {
	r.pending = end
	if end != r.tail.Load() {
		r.tail.Store(end)
	}
}

// peek returns the oldest copy, or nil. Only the consumer calls it.
func (r *ring) peek() *slot {
	h := r.head.Load()
	if h == r.tail.Load() {
		return nil
	}
	return &r.slots[h&r.mask]
}

// advance gives the oldest slot back.
func (r *ring) advance() { r.head.Store(r.head.Load() + 1) }

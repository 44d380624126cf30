package memlink

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// ring is a single-producer, single-consumer queue of frames. Each side keeps a copy of the other's index and looks at the real
// one only when the copy says full or empty, so that in steady state a batch costs one atomic publication on each side.
type ring struct {
	slots []*pmd.Buf
	mask  uint64

	_        [64]byte
	tail     atomic.Uint64 // next slot to fill; written by the producer
	headSeen uint64        // the producer's copy of head
	_        [48]byte
	head     atomic.Uint64 // next slot to empty; written by the consumer
	tailSeen uint64        // the consumer's copy of tail
	_        [48]byte
}

func newRing(n int) *ring { return &ring{slots: make([]*pmd.Buf, n), mask: uint64(n - 1)} }

// room is the number of free slots, as the producer may use them, if it is below want; else at least want.
func (r *ring) room(want int) int {
	tail := r.tail.Load()
	n := len(r.slots) - int(tail-r.headSeen)
	if n < want {
		r.headSeen = r.head.Load()
		n = len(r.slots) - int(tail-r.headSeen)
	}
	return n
}

// pop takes up to len(out) frames. Only the consumer calls it.
func (r *ring) pop(out []*pmd.Buf) int {
	head := r.head.Load()
	n := int(r.tailSeen - head)
	if n < len(out) {
		r.tailSeen = r.tail.Load()
		n = min(int(r.tailSeen-head), len(out))
		if n == 0 {
			return 0
		}
	} else {
		n = len(out)
	}
	at := int(head & r.mask)
	k := copy(out[:n], r.slots[at:])
	copy(out[k:n], r.slots)
	r.head.Store(head + uint64(n))
	return n
}

// empty may be called from any goroutine.
func (r *ring) empty() bool { return r.head.Load() == r.tail.Load() }

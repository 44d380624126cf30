package host

import "github.com/fastpath-tcp/fastpath/plugins"

// flowState is what a Remote knows of one slot.
type flowState struct {
	gen    uint32
	known  bool   // opened or resumed at some time: gen is right
	dirty  bool   // an event was dropped: so are all further ones until Resume
	queued bool   // in flowTable.queue
	asOf   uint64 // id of the last event that was written to the ring
}

// flowTable holds the slots of one Remote.
type flowTable[E any] struct {
	slots  []flowState
	queue  []plugins.Flow // dirty flows that the worker has not been told of
	closed []E            // Close events that found the ring full
}

// maxFlows bounds the table, as engines bound their slots.
const maxFlows = 1 << 24

// at returns the state of a slot, nil if there can be no such slot. The table grows with the engine's.
func (t *flowTable[E]) at(slot uint32) *flowState {
	if int(slot) >= len(t.slots) {
		if slot >= maxFlows {
			return nil
		}
		t.slots = append(t.slots, make([]flowState, max(int(slot)+1-len(t.slots), len(t.slots), 64))...)
	}
	return &t.slots[slot]
}

// enqueue notes that the worker must resume a flow.
func (t *flowTable[E]) enqueue(f *flowState, flow plugins.Flow) {
	if f.queued && f.gen == flow.Gen {
		return
	}
	f.queued = true
	t.queue = append(t.queue, flow)
}

// dequeue appends up to n flows that still need a Resume to dst.
func (t *flowTable[E]) dequeue(dst []plugins.Flow, n int) []plugins.Flow {
	i := 0
	for ; i < len(t.queue) && n > 0; i++ {
		flow := t.queue[i]
		f := &t.slots[flow.Slot]
		if f.gen != flow.Gen || !f.queued {
			continue // closed, and its slot used again
		}
		f.queued = false
		if f.dirty {
			dst = append(dst, flow)
			n--
		}
	}
	t.queue = t.queue[:copy(t.queue, t.queue[i:])]
	return dst
}

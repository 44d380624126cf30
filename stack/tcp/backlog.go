package tcp

import (
	"math"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// backlog bounds, in bytes, what FIFO and port hold together (F12), as byte queue limits do in Linux: enough to keep the port busy until the
// worker looks again, and no more, so that fair queueing decides late. What does not fit waits as a flow, not as frames.
//
// The limit is twice the most that the port completes within the shortest time that it takes from a frame's entry to its completion: that
// covers ports that complete at once, in batches, and late. Linux's own rule (lib/dynamic_queue_limits.c) takes all that is completed in
// one interrupt for what the port needs; a worker that polls sees single frames, which says nothing of a port that tells late. The shortest
// time is measured anew every ten seconds, by one frame on an empty port.
type backlog struct {
	bytes uint32 // entered and neither completed nor too old
	limit uint32
	open  bool // no limit in this turn: what the port keeps is not known, and it took everything
	tight bool // a flow has waited for it since the last completion
	probe bool // the port is to become empty, to measure its shortest time
	from  uint32
	last  plugins.Time // when the port completed something

	slotAt    plugins.Time // when the present slot of the shortest time began
	slotBytes uint32       // completed in it
	most      [2]uint32    // the most of a slot, in this period and in the one before
	mostUntil plugins.Time

	fast      [2]uint32 // shortest time, in stamps, in this period and in the one before
	fastUntil plugins.Time
}

const (
	// leastBacklog is the least limit: two full frames behind the two that a look may complete.
	leastBacklog = 4 * 1514
	// backlogAge is when a frame that the port has taken counts no more if it has completed nothing for as long: small queues wait no
	// longer, either. A port that tells only when its ring is nearly full is thus given more until it is.
	backlogAge  = portPatience
	mostPeriod  = 100 * time.Millisecond
	probePeriod = 10 * time.Second
)

func newBacklog() backlog {
	return backlog{limit: leastBacklog, fast: [2]uint32{math.MaxUint32, math.MaxUint32}}
}

// stamp is a time in units of 1.024 µs, which wraps after 73 minutes.
func stamp(t plugins.Time) uint32 { return uint32(t >> 10) }

// full reports whether nothing may enter FIFO and port now. Who asks has something to send.
func (b *backlog) full() bool {
	if b.room() > 0 {
		return false
	}
	b.tight = true
	return true
}

// portFull counts that.
func (e *Engine) portFull() bool {
	if e.port.backlog.full() {
		e.Stats.BacklogWaits++
		return true
	}
	return false
}

// room is how many bytes more may enter. More may be sent than that by what is less than a segment.
func (b *backlog) room() uint32 {
	switch {
	case b.open:
		return math.MaxUint32
	case b.probe:
		if b.bytes > 0 {
			return 0
		}
		return 1
	}
	return b.limit - min(b.limit, b.bytes)
}

// segments is how many of n bytes of payload may enter: one if any.
func (b *backlog) segments(n uint32) uint32 {
	room := b.room()
	if room == math.MaxUint32 {
		return room
	}
	return (room + n + segCost - 1) / (n + segCost)
}

// told is told of a frame that the port has completed, which entered at a stamp.
func (b *backlog) told(now plugins.Time, entered uint32) {
	b.last = now
	b.fast[0] = min(b.fast[0], stamp(now)-entered)
}

// completed is told of n bytes that the port has completed, or has had for too long, up to a position in the FIFO.
func (b *backlog) completed(now plugins.Time, n, end, pushed uint32) {
	b.bytes -= n
	dry := b.bytes == 0 && b.tight && !b.probe // it may have had nothing to send
	if b.probe && int32(end-b.from) > 0 {
		b.probe = false
	}
	if now >= b.fastUntil {
		b.fast = [2]uint32{math.MaxUint32, b.fast[0]}
		b.fastUntil = now.Add(probePeriod)
		b.probe, b.from = true, pushed
	}
	if fast := time.Duration(min(b.fast[0], b.fast[1])) << 10; now.Sub(b.slotAt) >= fast-fast/4 { // two batches are not one
		b.slotAt, b.slotBytes = now, 0
	}
	if b.tight { // else nobody has looked, and it says nothing
		if now >= b.mostUntil {
			b.most = [2]uint32{0, b.most[0]}
			b.mostUntil = now.Add(mostPeriod)
		}
		if b.slotBytes += n; dry {
			b.slotBytes = max(b.slotBytes, b.limit)
		}
		b.most[0] = max(b.most[0], b.slotBytes)
		b.tight = false
	}
	b.limit = max(2*max(b.most[0], b.most[1]), leastBacklog)
}

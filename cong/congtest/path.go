package congtest

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Path is an emulated path: losses, then a policer, then a bottleneck with a drop-tail queue, then a delay; acknowledgements
// come back in order and are not lost. Its fields may be changed between calls of Sim.Run; what is queued keeps its times.
type Path struct {
	Rate   uint64        // of the bottleneck in payload bytes/s; 0: none
	RTT    time.Duration // without queueing
	Buffer uint64        // bytes of the bottleneck's queue; 0: no limit
	MSS    uint32        // payload bytes of a segment; 0: 1448

	LossPPM     uint32        // share of segments lost at random, in 1/1 000 000
	LossEvery   uint64        // each so-many-th segment is lost; 0: none
	LossFrom    uint64        // … but none of the first segments
	MarkAbove   uint64        // segments that find more bytes queued are marked and echoed (ECN); 0: none
	PolicerRate uint64        // token bucket in bytes/s; 0: none
	PolicerSize uint64        // its size in bytes
	AckEvery    time.Duration // acknowledgements arrive together at multiples of this; 0: each on its own
	Seed        uint64        // of random losses
}

// link is the state of a path.
type link struct {
	*Path
	rand    rng.Rand
	count   uint64
	busy    plugins.Time // when the bottleneck has sent all that is queued
	lastAck plugins.Time
	tokens  uint64
	refill  plugins.Time
}

func (l *link) queued(now plugins.Time) uint64 {
	if l.Rate == 0 || l.busy <= now {
		return 0
	}
	return cong.MulDiv(uint64(l.busy.Sub(now)), l.Rate, uint64(time.Second))
}

// send puts a segment onto the path and returns when its acknowledgement arrives and whether it was marked; 0 if it is lost.
func (l *link) send(now plugins.Time, size uint32) (ack plugins.Time, marked bool) {
	l.count++
	if l.LossEvery > 0 && l.count > l.LossFrom && (l.count-l.LossFrom)%l.LossEvery == 0 {
		return 0, false
	}
	if l.LossPPM > 0 && l.rand.N(1_000_000) < l.LossPPM && l.count > l.LossFrom {
		return 0, false
	}
	if l.PolicerRate > 0 && !l.conforms(now, uint64(size)) {
		return 0, false
	}
	ack = now
	if l.Rate > 0 {
		q := l.queued(now)
		if l.Buffer > 0 && q+uint64(size) > l.Buffer {
			return 0, false
		}
		marked = l.MarkAbove > 0 && q > l.MarkAbove
		l.busy = max(l.busy, now).Add(time.Duration(cong.MulDiv(uint64(size), uint64(time.Second), l.Rate)))
		ack = l.busy
	}
	ack = ack.Add(l.RTT)
	if e := plugins.Time(l.AckEvery); e > 0 {
		ack = (ack + e - 1) / e * e
	}
	l.lastAck = max(l.lastAck, ack)
	return l.lastAck, marked
}

// conforms takes a segment's tokens from the policer's bucket.
func (l *link) conforms(now plugins.Time, size uint64) bool {
	l.tokens = min(l.tokens+cong.MulDiv(uint64(now.Sub(l.refill)), l.PolicerRate, uint64(time.Second)), l.PolicerSize)
	l.refill = now
	if l.tokens < size {
		return false
	}
	l.tokens -= size
	return true
}

package host

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// latencyBuckets hold durations by their highest bit and the two below it.
const latencyBuckets = 64 * 4

// Latency is how long a module's answers took, from the turn in which an event was written to the one in which its answer was read:
// counts by duration. One event at a time is followed.
type Latency [latencyBuckets]uint64

func latencyBucket(d time.Duration) int {
	n := bits.Len64(uint64(d))
	if n < 3 {
		return int(d)
	}
	return n*4 + int(d>>(n-3))&3
}

// upper is the longest duration of a bucket.
func upper(bucket int) time.Duration {
	n, low := bucket/4, bucket%4
	if n < 3 {
		return time.Duration(bucket)
	}
	return time.Duration(5+low)<<(n-3) - 1
}

// Quantile returns a duration that the q-th part (0 to 1) of the answers did not exceed; 0 if there was none.
func (l *Latency) Quantile(q float64) time.Duration {
	n := uint64(0)
	for _, c := range l {
		n += c
	}
	if n == 0 {
		return 0
	}
	at := uint64(q * float64(n-1))
	for i, c := range l {
		if at < c {
			return upper(i)
		}
		at -= c
	}
	return 0
}

// Sub takes the counts of an earlier look away.
func (l *Latency) Sub(before *Latency) {
	for i := range l {
		l[i] -= before[i]
	}
}

func (l *Latency) add(o *Latency) {
	for i := range l {
		l[i] += o[i]
	}
}

// latencyProbe follows one event until it is answered.
type latencyProbe struct {
	on     bool
	flow   plugins.Flow
	id     uint64
	at     plugins.Time
	counts [latencyBuckets]atomic.Uint64
}

// asked follows an event that was written, unless there is one already.
func (p *latencyProbe) asked(flow plugins.Flow, id uint64, now plugins.Time) {
	if !p.on {
		p.on, p.flow, p.id, p.at = true, flow, id, now
	}
}

// answered looks whether a command answers the event that is followed.
func (p *latencyProbe) answered(flow plugins.Flow, asOf uint64, now plugins.Time) {
	if p.on && flow == p.flow && asOf >= p.id {
		p.on = false
		p.counts[latencyBucket(max(now.Sub(p.at), 0))].Add(1)
	}
}

func (p *latencyProbe) read(l *Latency) {
	for i := range p.counts {
		l[i] = p.counts[i].Load()
	}
}

package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// ResetsPerSecond bounds the resets that a worker sends for segments of no connection, so that it answers a scan or a flood with
// forged sources by a trickle. As many may leave at once.
const ResetsPerSecond = 1000

// bucket is a token bucket in units of time: it holds the tokens of a second when it is full.
type bucket struct{ empty plugins.Time } // when it was, or would have been, empty

// take takes one of perSecond tokens if there is one.
func (b *bucket) take(now plugins.Time, perSecond int64) bool {
	each := plugins.Time(int64(time.Second) / perSecond)
	b.empty = max(b.empty, now-plugins.Time(time.Second))
	if b.empty+each > now {
		return false
	}
	b.empty += each
	return true
}

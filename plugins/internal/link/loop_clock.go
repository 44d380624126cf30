package link

import (
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
)

// Loop runs lanes on the calling goroutine until stop is set and bell is rung. spin is how long it looks for events before it
// parks.
func Loop(lanes []Lane, bell *ring.Bell, spin time.Duration, stop *atomic.Bool) {
	last := Now() // when there last was something to do
	for !stop.Load() {
		now := Now()
		if turnAll(lanes, now) {
			last = now
			continue
		}
		if now.Sub(last) < spin {
			continue
		}
		park(lanes, bell, stop)
		last = Now()
	}
}

func turnAll(lanes []Lane, now plugins.Time) (worked bool) {
	for _, l := range lanes {
		if l.Turn(now) {
			worked = true
		}
	}
	return worked
}

// park waits for the bell or the earliest deadline. An idle module costs nothing: without a deadline there is no time-out.
func park(lanes []Lane, bell *ring.Bell, stop *atomic.Bool) {
	seen := bell.Seen()
	next := plugins.Never
	ready := stop.Load()
	for _, l := range lanes {
		if !l.Park() {
			ready = true
		}
		next = min(next, l.Next())
	}
	if !ready {
		bell.Wait(seen, timeout(next))
	}
	for _, l := range lanes {
		l.Unpark()
	}
}

func timeout(next plugins.Time) time.Duration {
	if next == plugins.Never {
		return -1
	}
	return max(next.Sub(Now()), 0)
}

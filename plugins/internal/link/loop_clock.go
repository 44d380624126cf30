package link

import (
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
)

// doze is how long a loop that has just had events sleeps before it looks again by itself. Events that keep coming are so handled in
// batches, and the host, which rings only for a loop that is parked, pays no system call for them. An answer comes that much later,
// which is little beside a round trip that is worth deciding about.
const doze = 250 * time.Microsecond

// Loop runs lanes on the calling goroutine until stop is set and bell is rung. spin is how long it looks for events before it
// sleeps: once for a doze, unless that is spin already, and if nothing came in it until it is woken.
func Loop(lanes []Lane, bell *ring.Bell, spin time.Duration, stop *atomic.Bool) {
	last := Now()  // when there last was something to do
	fresh := false // ... and it has not dozed since
	for !stop.Load() {
		now := Now()
		if turnAll(lanes, now) {
			last, fresh = now, spin < doze
			continue
		}
		if now.Sub(last) < spin {
			continue
		}
		if fresh && mayDoze(lanes, now) {
			fresh = false
			bell.Wait(bell.Seen(), doze)
			continue
		}
		park(lanes, bell, stop)
		last = Now()
	}
}

// mayDoze reports whether no lane needs the loop sooner than it wakes from a doze.
func mayDoze(lanes []Lane, now plugins.Time) bool {
	for _, l := range lanes {
		if l.Prompt() || l.Next() < now.Add(doze) {
			return false
		}
	}
	return true
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

package versus

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const tick = time.Millisecond

// watchLateness looks, on a thread of its own, by how much more than a millisecond it wakes up late each millisecond, until the function that it returns is
// called, which says what share of the time that was. A process that has to wait for a processor cannot send when it should; the
// kernel's timers interrupt whatever runs, so that its senders do not suffer from that. On a machine with nothing else to do it is next to nothing.
func watchLateness() (stop func() float64) {
	var ended atomic.Bool
	share := make(chan float64)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var late time.Duration
		start := time.Now()
		last := start
		for !ended.Load() {
			ts := unix.NsecToTimespec(int64(tick))
			unix.Nanosleep(&ts, nil) //nolint:errcheck // a signal makes it short
			now := time.Now()
			late += max(now.Sub(last)-2*tick, 0)
			last = now
		}
		share <- float64(late) / float64(max(time.Since(start), 1))
	}()
	return func() float64 {
		ended.Store(true)
		return <-share
	}
}

package stack

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// A Clock tells the present. Workers read it once per turn; applications read it for deadlines.
type Clock interface {
	Now() plugins.Time
}

// Monotonic is CLOCK_MONOTONIC.
type Monotonic struct{}

var (
	monoBase  = time.Now()
	monoStart = func() plugins.Time {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 1
		}
		return plugins.Time(ts.Nano())
	}()
)

// Now reads the clock; the runtime does so without a system call.
func (Monotonic) Now() plugins.Time { return monoStart + plugins.Time(time.Since(monoBase)) }

// At converts a wall-clock deadline to a time of clock c. The zero time.Time is plugins.Never.
func At(c Clock, t time.Time) plugins.Time {
	if t.IsZero() {
		return plugins.Never
	}
	return max(c.Now()+plugins.Time(time.Until(t)), 1)
}

// Drain waits until no connection is left (TIME-WAIT does not count), or until ctx ends, which is an error. Close the listeners first.
func (s *Stack) Drain(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		left := 0
		s.each(func(w *Worker) { left += w.engine.NumConns() })
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stack: %d connections left: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

const drainPoll = 20 * time.Millisecond

package memlink

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"golang.org/x/sys/unix"
)

// monotonic is CLOCK_MONOTONIC, the clock of the timerfd.
func monotonic() plugins.Time {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return plugins.Time(ts.Nano())
}

// virtual is a clock that tests advance.
type virtual struct {
	now   plugins.Time
	reads int
}

func (v *virtual) read() plugins.Time { v.reads++; return v.now }

func (v *virtual) add(d time.Duration) { v.now = v.now.Add(d) }

package link

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// The runtime's monotonic clock is CLOCK_MONOTONIC read through the vDSO, but time.Time shows it only as a difference. base
// and baseMono tie the two together, once.
var base, baseMono = func() (time.Time, plugins.Time) {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return time.Now(), plugins.Time(ts.Nano())
}()

// Now reads CLOCK_MONOTONIC.
func Now() plugins.Time { return baseMono.Add(time.Since(base)) }

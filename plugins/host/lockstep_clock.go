package host

import (
	"runtime"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// lockstepTimeout is how long a turn may take in real time before the module counts as dead.
const lockstepTimeout = 10 * time.Second

// turn has the module run one turn at the worker's time, and waits for it: the same events, time and room as a linked-in
// module gets, so the same commands. For simulations and conformance tests.
func (r *Remote[E, C]) turn(now plugins.Time, events, room int) {
	if events == 0 && r.settled && now < plugins.Time(r.module.Deadline.Load()) {
		return
	}
	r.host.Now.Store(int64(now))
	r.host.Room.Store(int64(room))
	// Events first, then the turn: who sees the turn finds its events. A lane parks only after it has looked at the turn.
	r.events.Publish()
	turn := r.host.Turn.Add(1)
	if r.events.Parked() {
		r.wakes.Add(1)
		r.bell.Ring()
	}
	start := time.Now()
	for i := 1; r.module.Ran.Load() != turn; i++ {
		if r.State() == plugins.Dead {
			return
		}
		if i%1024 == 0 && time.Since(start) > lockstepTimeout {
			r.die("does not run its turn")
			return
		}
		runtime.Gosched()
	}
}

package sock

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// How calls wait: they look, arm, look once more, and wait, until something has come or the deadline has passed.

// worker is what wakes waiting calls at their deadlines: a connection or a UDP endpoint.
type worker interface{ DeadlineChanged() }

// await waits after a look that found nothing. The first call only arms w and returns true, then one looks once more. posted is the
// deadline that the worker knows.
func await(k worker, armed bool, w *tcp.Waiter, deadline *atomic.Int64, posted *int64) bool {
	if !armed {
		w.Arm()
		return true
	}
	if d := deadline.Load(); d != *posted {
		*posted = d
		k.DeadlineChanged()
	}
	w.Wait()
	return false
}

// looked ends the looks, one of which has found something.
func looked(armed bool, w *tcp.Waiter) {
	if armed {
		w.Disarm()
	}
}

// overdue returns the error of a deadline that has passed.
func overdue(clock stack.Clock, deadline *atomic.Int64) error {
	if d := tcp.Deadline(deadline); d != plugins.Never && d <= clock.Now() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// moveDeadline sets a deadline; the zero time means none. Calls that wait take it up.
func moveDeadline(clock stack.Clock, deadline *atomic.Int64, w *tcp.Waiter, t time.Time) {
	at := int64(0)
	if !t.IsZero() {
		at = int64(stack.At(clock, t))
	}
	deadline.Store(at)
	w.Wake()
}

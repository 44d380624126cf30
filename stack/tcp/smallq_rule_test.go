package tcp

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

// F5: the limit is two pieces or 1 ms worth of the rate, twice that for retransmissions, 1 MiB without a rate; and whatever the port
// keeps, a flow may send while one piece, or none, is unacknowledged.
func TestSmallQueueRule(t *testing.T) {
	const mss = 1000
	for _, c := range []struct {
		name    string
		rule    SmallQueues
		rate    uint64
		rtt     time.Duration
		unacked uint32 // pieces
		n       uint32 // bytes of the next
		limit   uint32 // the most that the port may keep; 0: any amount
	}{
		{"two pieces of two segments", SmallQueuesOneOrEmpty, 1e6, time.Second, 2, mss, 4 * mss},
		{"two of its own size", SmallQueuesOneOrEmpty, 1e6, time.Second, 2, 5 * mss, 10 * mss},
		{"1 ms worth of the rate", SmallQueuesOneOrEmpty, 512e6, time.Second, 2, mss, 512e6 / 1024},
		{"two pieces of 1 ms", SmallQueuesOneOrEmpty, 8e6, time.Second, 2, mss, 14 * mss},
		{"a short path has larger pieces", SmallQueuesOneOrEmpty, 1e6, 1024 * time.Microsecond, 2, mss, 2 * 17 * mss},
		{"no rate", SmallQueuesOneOrEmpty, plugins.Unlimited, time.Second, 2, mss, 1 << 20},
		{"one", SmallQueuesOneOrEmpty, 1e6, time.Second, 1, mss, 0},
		{"none", SmallQueuesOneOrEmpty, 1e6, time.Second, 0, mss, 0},
		{"only none: one", SmallQueuesEmptyOnly, 1e6, time.Second, 1, mss, 4 * mss},
		{"only none: none", SmallQueuesEmptyOnly, 1e6, time.Second, 0, mss, 0},
		{"off", SmallQueuesOff, 1e6, time.Second, 9, mss, 0},
	} {
		e := New(Config{SmallQueues: c.rule}, Env{}, 1e9)
		for _, again := range []bool{false, true} {
			f := &Conn{eng: e, mss: mss, out: new(outstanding), line: &pace.Line{Rate: c.rate}}
			for i := range f.due {
				f.due[i] = never
			}
			f.stat.minRTT = c.rtt
			f.out.log.n = c.unacked
			limit := c.limit
			if again {
				limit *= 2
			}
			for _, queued := range []uint32{0, limit, limit + 1, 10 << 20} {
				f.queued = queued
				want := c.limit == 0 || queued <= limit
				if got := e.mayQueue(f, c.n, again); got != want || (f.held != 0) == want || (e.port.waiting == 1) == want {
					t.Errorf("%s, again %v: %d queued: %v, held %v", c.name, again, queued, got, f.held)
				}
				e.release(f)
			}
		}
	}
}

package host

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// A bucket holds what is said of it: no duration is longer than its bucket's end, or more than a quarter shorter.
func TestLatencyBuckets(t *testing.T) {
	for d := time.Duration(1); d > 0 && d < 1<<60; d += d/7 + 1 {
		if end := upper(latencyBucket(d)); end < d || end > d+d/4 {
			t.Fatalf("%d is in the bucket up to %d", d, end)
		}
	}
	var l Latency
	if l.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 1000 {
		l[latencyBucket(time.Duration(i)*time.Microsecond)]++
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond} {
		if got := l.Quantile(q); got < want || got > want+want/4 {
			t.Errorf("quantile %v is %v", q, got)
		}
	}
}

// An event is followed from the turn in which it is written to the one in which its answer is read.
func TestLatency(t *testing.T) {
	r := newRig(t, mustThird(t), 64, Guard{})
	out := make([]cong.Decision, 4)
	poll := func(now plugins.Time, in ...cong.Sample) { r.Poll(now, in, out) }
	poll(1000, sample(0, 1, cong.KindOpen))
	poll(2000, sample(0, 2, cong.KindAck))
	r.lane.Turn(2500)
	poll(5000)
	poll(6000, sample(0, 3, cong.KindClose))
	r.lane.Turn(6100)
	poll(9000)
	if l := r.Stats().Latency; l[latencyBucket(4000)] != 1 || l.Quantile(1) > 5000 {
		t.Errorf("%v", l)
	}
}

package memlink

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// TestTraceSteps: a frame is served when the rates from its start on add up to its bits, to less than a ns, however many steps it crosses and
// whatever was left over by the frames before it.
func TestTraceSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := &Trace{Start: 1e9}
		at := time.Duration(0)
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			rate := rapid.SampledFrom([]uint64{0, 1, 999, 1e6, 3e6 + 1, 1e9, 1e15}).Draw(t, "rate")
			tr.Steps = append(tr.Steps, Step{at, rate})
			at += time.Duration(rapid.Int64Range(1, 3e6).Draw(t, "time"))
		}
		tr.Steps = append(tr.Steps, Step{at, rapid.Uint64Range(1, 1e10).Draw(t, "last")})
		var e errs
		if tr.validate("", &e); len(e) > 0 {
			t.Fatal(e)
		}
		var k bottleneck
		k.set(&Path{Trace: tr, Overhead: 24})
		now := plugins.Time(1e9)
		busy := new(big.Rat).SetInt64(int64(now)) // exact
		for range rapid.IntRange(1, 20).Draw(t, "frames") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 2e6).Draw(t, "pause")))
			n := rapid.IntRange(60, 1514).Draw(t, "n")
			if cmp := new(big.Rat).SetInt64(int64(now)); k.busy < now {
				busy = cmp
			}
			left := new(big.Rat).SetInt64(int64(n+24) * 8)
			for i, s := range tr.Steps {
				if i+1 < len(tr.Steps) {
					end := new(big.Rat).SetInt64(int64(tr.Start.Add(tr.Steps[i+1].At)))
					if busy.Cmp(end) >= 0 {
						continue
					}
					most := new(big.Rat).Sub(end, busy)
					most.Mul(most, big.NewRat(int64(s.Rate), 1e9))
					if most.Cmp(left) < 0 {
						left.Sub(left, most)
						busy = end
						continue
					}
				}
				busy = new(big.Rat).Add(busy, left.Mul(left, big.NewRat(1e9, int64(s.Rate))))
				break
			}
			got, _, ok := k.enter(n, now)
			want := new(big.Int).Quo(busy.Num(), busy.Denom()).Int64()
			if !ok || int64(got) != want {
				t.Fatalf("served at %d, not %d (%v)", got, want, ok)
			}
		}
	})
}

// TestTraceOpportunities: each opportunity takes 1514 bytes of what is there, over one frame or several; what comes later waits for the next
// one; after the last they begin anew.
func TestTraceOpportunities(t *testing.T) {
	const ms = plugins.Time(time.Millisecond)
	tr := &Trace{Start: 1000 * ms}
	for _, d := range []int{1, 1, 4, 10} {
		tr.Opportunities = append(tr.Opportunities, time.Duration(d)*time.Millisecond)
	}
	var k bottleneck
	k.set(&Path{Trace: tr})
	for i, c := range []struct {
		now  plugins.Time // ms after the start
		n    int
		want plugins.Time
	}{
		{0, 1514, 1}, {0, 1000, 1}, {0, 514, 1}, {0, 60, 4}, {0, 1500, 10}, // the first of 1500 bytes leave at 4, 46 of them with the next
		{4, 60, 10}, {10, 60, 10}, {10, 1514, 11}, {12, 60, 14}, {14, 60, 14}, {15, 60, 20}, {20, 60, 20}, {20, 1514, 21},
		{100, 1514, 100}, {100, 1, 101}, {1e6 + 9, 1514, 1e6 + 10},
	} {
		got, _, ok := k.enter(c.n, tr.Start+c.now*ms)
		if !ok || got != tr.Start+c.want*ms {
			t.Errorf("frame %d: served %v after the start, not %d ms", i, got.Sub(tr.Start), c.want)
		}
	}
	if got := tr.Bits(tr.Start+2*ms, tr.Start+25*ms); got != (2+4+3)*OpportunityBytes*8 {
		t.Errorf("%d bits in 2 … 25 ms", got)
	}
	if got := tr.peak(); got != 4*OpportunityBytes*80 {
		t.Errorf("peak %d", got)
	}
}

// TestTraceQueue: a queue is bounded, and what waits counts, with a trace as with a rate; another trace begins where time stands.
func TestTraceQueue(t *testing.T) {
	var k bottleneck
	k.set(&Path{Trace: &Trace{Steps: []Step{{0, 0}, {time.Second, 8e6}}}, QueueFrames: 2})
	for i, want := range []bool{true, true, false} {
		at, _, ok := k.enter(1000, 5)
		if ok != want || ok && at != plugins.Time(1e9).Add(time.Duration(i+1)*time.Millisecond) {
			t.Errorf("frame %d: %v at %v", i, ok, at)
		}
	}
	k.set(&Path{Trace: &Trace{Steps: []Step{{0, 1}, {2 * time.Second, 80e6}}}})
	if at, _, _ := k.enter(1000, 3e9); at != 3e9+1e5 {
		t.Errorf("at %v", at)
	}
	bad := Config{Now: func() plugins.Time { return 0 }, AtoB: Path{Rate: 1, Trace: &Trace{}}, BtoA: Path{Trace: &Trace{Steps: []Step{{1, 1}, {1, 0}}, Opportunities: []time.Duration{2, 1}}}}
	if _, _, err := New(bad); err == nil {
		t.Error("a trace beside a rate, an empty one and one that goes back are accepted")
	} else {
		t.Log(err)
	}
}

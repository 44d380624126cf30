package pace

import (
	"math/big"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/fastpath-tcp/fastpath/plugins"
)

const mbit = 1e6 / 8 // bytes per second

func line(rate uint64, credit uint32) *Line {
	return &Line{Rate: rate, Credit: credit, Horizon: 10e9}
}

// F7: the departure time is apart from the clock and moves only when something is sent.
func TestClockMovesOnlyWhenSending(t *testing.T) {
	l := line(1e9, 0) // 1 byte per ns
	var c Clock
	for _, now := range []plugins.Time{1000, 2000, 5000} {
		if at := c.Depart(l, now); at != now {
			t.Errorf("an idle flow departs at %d, want %d", at, now)
		}
	}
	if at := c.Sent(l, 5000, 1448); at != 5000 {
		t.Errorf("departure %d, want 5000", at)
	}
	if at := c.Depart(l, 5001); at != 6448 {
		t.Errorf("next departure %d, want 6448", at)
	}
	if at := c.Depart(l, 7000); at != 7000 {
		t.Errorf("next departure %d after a pause, want 7000", at)
	}
	if at := c.Sent(l, 6448, 1000); at != 6448 {
		t.Errorf("asking moved the clock: departure %d, want 6448", at)
	}
}

// F8: len_ns -= min(len_ns/2, credit).
func TestClockCredit(t *testing.T) {
	l := line(1e9, CreditOne/2)
	for _, c := range []struct{ late, want plugins.Time }{
		{0, 1000}, {1, 999}, {400, 600}, {499, 501}, {500, 500}, {501, 500}, {1e9, 500},
	} {
		clk := Clock{wstamp: 1e6}
		now := 1e6 + c.late
		clk.Sent(l, now, 1000)
		if got := clk.Depart(l, 0) - now; got != c.want {
			t.Errorf("%d ns late: the next piece leaves %d ns later, want %d", c.late, got, c.want)
		}
	}
}

// The figures of the founding document (F8): a target of 8000 Mbit/s gives 7710 without and 7999.75 with the credit, when 64 KiB pieces
// leave late by 2.47 µs in the mean.
func TestClockLatenessFigures(t *testing.T) {
	const piece = 65536
	run := func(credit uint32) (mbits float64) {
		l := line(8000*mbit, credit)
		var c Clock
		now, seed := plugins.Time(1e9), uint64(1)
		start := now
		n := 0
		for ; n < 200_000; n++ {
			now = c.Depart(l, now)
			seed = seed*6364136223846793005 + 1442695040888963407
			now += plugins.Time(seed>>33) % 4931 // the host is late by 0…4930 ns, 2465 in the mean
			c.Sent(l, now, piece)
		}
		return float64(n) * piece * 8 / float64(now-start) * 1e3
	}
	if got := run(0); got < 7700 || got > 7720 {
		t.Errorf("without credit: %.2f Mbit/s, want 7710 ± 10", got)
	}
	if got := run(CreditOne / 2); got < 7999.75 || got > 8000.25 {
		t.Errorf("with half credit: %.2f Mbit/s, want 8000 ± 0.25", got)
	}
}

func TestClockFreeSegments(t *testing.T) {
	l := line(1e6, CreditOne/2)
	l.FreeSegs = 10
	var c Clock
	for i := range 10 {
		if at := c.Depart(l, 1e9); at != 1e9 {
			t.Fatalf("segment %d is paced", i)
		}
		c.Sent(l, 1e9, 1448)
	}
	if at := c.Depart(l, 1e9); at != 1e9+1448e3 {
		t.Errorf("segment 10 leaves at %d, want 1448 µs later", at-1e9)
	}
}

func TestClockUnlimited(t *testing.T) {
	l := line(plugins.Unlimited, CreditOne/2)
	var c Clock
	for range 100 {
		c.Sent(l, 1e9, 65536)
	}
	if at := c.Depart(l, 1e9); at != 1e9 {
		t.Errorf("unlimited flow is held until %d", at)
	}
	// What was owed under a limit stays owed.
	c.Sent(line(1e9, 0), 1e9, 1000)
	c.Sent(l, 1e9, 1000)
	if at := c.Depart(l, 1e9); at != 1e9+1000 {
		t.Errorf("departure %d, want 1 µs later", at-1e9)
	}
}

func TestClockHorizon(t *testing.T) {
	l := line(1, 0) // 1 byte per second
	l.Horizon = 10e9
	var c Clock
	if c.Refused(l, 5) {
		t.Error("a fresh flow is refused")
	}
	c.Sent(l, 5, 10)
	if c.Refused(l, 5) {
		t.Error("10 s ahead is refused")
	}
	c.Sent(l, 10e9+5, 11)
	if !c.Refused(l, 10e9+5) {
		t.Error("11 s ahead is not refused")
	}
	if c.Refused(l, 11e9+5) {
		t.Error("10 s ahead is refused")
	}
}

// Rounding does not accumulate: the mean rate is right within 0.001 % from 0.1 to 100 Gbit/s, whether or not the sender is late.
func TestClockMeanRate(t *testing.T) {
	for _, gbit := range []float64{0.1, 0.33, 1, 3.7, 10, 25, 40, 99.9, 100} {
		rate := uint64(gbit * 1e9 / 8)
		for _, late := range []bool{false, true} {
			l := line(rate, CreditOne/2)
			var c Clock
			const n, piece = 100_000, 1448
			now := plugins.Time(1e9)
			c.Sent(l, now, piece)
			for i := range n {
				now = c.Depart(l, now)
				if late && i%3 > 0 {
					now += plugins.Time(piece*1e9/rate) / 3
				}
				c.Sent(l, now, piece)
			}
			want := float64(n) * piece / float64(rate) * 1e9
			got := float64(c.wstamp-1e9) - piece/float64(rate)*1e9/2 // the first piece came from idle: half is forgiven
			if e := got/want - 1; e > 1e-5 || e < -1e-5 {
				t.Errorf("%g Gbit/s, late %v: duration off by %.5f %%", gbit, late, e*100)
			}
		}
	}
}

// refClock is the same arithmetic in rationals without bounds.
type refClock struct{ w *big.Rat }

func (r *refClock) sent(l *Line, now plugins.Time, bytes int) (depart *big.Rat) {
	n := new(big.Rat).SetInt64(int64(now))
	late := new(big.Rat)
	depart = new(big.Rat).Set(r.w)
	if n.Cmp(r.w) > 0 {
		late.Sub(n, r.w)
		depart.Set(n)
	}
	d := new(big.Rat).SetInt(new(big.Int).Mul(big.NewInt(int64(bytes)), big.NewInt(1e9)))
	d.Quo(d, new(big.Rat).SetInt(new(big.Int).SetUint64(l.Rate)))
	share := new(big.Rat).Mul(d, big.NewRat(int64(l.Credit), CreditOne))
	if share.Cmp(late) < 0 {
		late = share
	}
	r.w = new(big.Rat).Add(depart, d.Sub(d, late))
	return depart
}

func (r *refClock) rerate(old, rate uint64, now plugins.Time) {
	n := new(big.Rat).SetInt64(int64(now))
	if ahead := new(big.Rat).Sub(r.w, n); ahead.Sign() > 0 {
		r.w = n.Add(n, ahead.Mul(ahead, new(big.Rat).SetFrac(new(big.Int).SetUint64(old), new(big.Int).SetUint64(rate))))
	}
}

func TestClockAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := plugins.Time(rapid.Int64Range(0, 1<<40).Draw(t, "start"))
		var c Clock
		ref := refClock{w: new(big.Rat)}
		n := rapid.IntRange(1, 60).Draw(t, "n")
		last := uint64(0)
		for range n {
			l := line(rapid.OneOf(rapid.Uint64Range(1, 1e4), rapid.Uint64Range(1e6, 2e10), rapid.Just(uint64(1<<63)),
				rapid.Uint64Range(1, 1<<63)).Draw(t, "rate"), uint32(rapid.SampledFrom([]int{0, CreditOne / 2, CreditOne}).Draw(t, "credit")))
			bytes := rapid.IntRange(1, 65536).Draw(t, "bytes")
			if last != 0 && last < l.Rate && rapid.Bool().Draw(t, "rerate") { // else what is owed takes its time at the rate at which it was sent
				c.Rerate(last, l.Rate, now)
				ref.rerate(last, l.Rate, now)
			}
			last = l.Rate
			switch rapid.IntRange(0, 3).Draw(t, "when") {
			case 0:
				now = c.Depart(l, now)
			case 1:
				now += plugins.Time(rapid.Int64Range(0, 1e6).Draw(t, "step"))
			case 2:
				now += plugins.Time(rapid.Int64Range(0, 1e10).Draw(t, "jump"))
			case 3: // too early, or a clock that steps back
				now -= min(now, plugins.Time(rapid.Int64Range(0, 1e7).Draw(t, "back")))
			}
			if ref.w.Cmp(new(big.Rat).SetInt64(int64(latest/2))) > 0 {
				return // saturation has its own test
			}
			depart := c.Sent(l, now, bytes)
			want := ref.sent(l, now, bytes)
			if diff, _ := new(big.Rat).Sub(want, new(big.Rat).SetInt64(int64(depart))).Float64(); diff < -1e-3 || diff >= 1+1e-3 {
				t.Fatalf("departure %d is %g ns early", depart, diff)
			}
			have := new(big.Rat).SetInt64(int64(c.wstamp))
			have.Add(have, new(big.Rat).SetFrac64(int64(c.frac), 1<<32))
			if diff, _ := new(big.Rat).Sub(ref.w, have).Float64(); diff < -1.01 || diff > 1.01 {
				t.Fatalf("timer is %g ns off after %d bytes at %d B/s", diff, bytes, l.Rate)
			}
		}
	})
}

func TestClockSaturates(t *testing.T) {
	l := line(1, 0)
	var c Clock
	last := plugins.Time(0)
	for range 100 {
		c.Sent(l, 1e9, 1<<31-1)
		at := c.Depart(l, 1e9)
		if at < last || at == plugins.Never {
			t.Fatalf("timer went from %d to %d", last, at)
		}
		last = at
	}
	if last != latest {
		t.Errorf("timer is %d after 6800 years, want %d", last, latest)
	}
}

func TestClockSize(t *testing.T) {
	if s := unsafe.Sizeof(Clock{}); s != 16 {
		t.Errorf("Clock has %d bytes, want 16", s)
	}
}

func BenchmarkClockSent(b *testing.B) {
	l := line(12.5e9, CreditOne/2)
	var c Clock
	now := plugins.Time(1e9)
	for b.Loop() {
		now = c.Depart(l, now) + 7
		c.Sent(l, now, 1448)
	}
}

// Rerate is the exact rescaling of what lies ahead, and moves nothing else.
func TestClockRerate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.OneOf(rapid.Uint64Range(1, 1e4), rapid.Uint64Range(1e6, 2e10), rapid.Uint64Range(1, plugins.Unlimited-1))
		old, rate := rates.Draw(t, "old"), rates.Draw(t, "new")
		now := plugins.Time(rapid.Int64Range(0, 1<<50).Draw(t, "now"))
		c := Clock{wstamp: now + plugins.Time(rapid.Int64Range(-1e9, 1e12).Draw(t, "ahead")), frac: rapid.Uint32().Draw(t, "frac")}
		before := c
		c.Rerate(old, rate, now)
		if rate == old || before.wstamp < now {
			if c != before {
				t.Fatalf("moved from %+v to %+v", before, c)
			}
			return
		}
		ahead := func(c Clock) *big.Rat {
			r := new(big.Rat).SetInt64(int64(c.wstamp - now))
			return r.Add(r, new(big.Rat).SetFrac64(int64(c.frac), 1<<32))
		}
		want := ahead(before)
		want.Mul(want, new(big.Rat).SetFrac(new(big.Int).SetUint64(old), new(big.Int).SetUint64(rate)))
		if want.Cmp(new(big.Rat).SetInt64(int64(latest-now))) >= 0 {
			if c.wstamp != latest {
				t.Fatalf("%+v, want the latest time", c)
			}
		} else if diff, _ := want.Sub(want, ahead(c)).Float64(); diff < 0 || diff > 1e-8 && rate > old>>32 {
			t.Fatalf("off by %g ns", diff)
		}
		if c.Rerate(rate, plugins.Unlimited, now); c.Depart(nil, now) != now {
			t.Fatalf("departure %d at no limit, want now", c.Depart(nil, now))
		}
	})
}

// TestClockSteps: whatever the present does (it steps back, by a second or by a day ahead), no two pieces leave closer together than half of
// the first one's time at the highest rate that held meanwhile, no departure lies before the present, and after a step ahead at most
// half a piece is made up for. A step back holds departures, and never beyond what was sent.
func TestClockSteps(t *testing.T) {
	const day = plugins.Time(24 * 3600 * 1e9)
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SampledFrom([]uint64{1, 1e3, 12_500_000, 1e9, 12_500_000_000, 1 << 63})
		l := line(rates.Draw(t, "rate"), CreditOne/2)
		var c Clock
		now := plugins.Time(1e9) + plugins.Time(rapid.Int64Range(0, 1<<50).Draw(t, "start"))
		latestSend := plugins.Never // of the last piece; Never: none
		var size int
		fastest := l.Rate // since then
		var back, raised bool
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				now -= min(now, plugins.Time(rapid.SampledFrom([]int64{1, 1e6, 1e9, int64(day)}).Draw(t, "back")))
				back = true
			case 1:
				now += 1e9
			case 2:
				now += day
			case 3:
				rate := rates.Draw(t, "rate")
				c.Rerate(l.Rate, rate, now)
				l.Rate = rate
				fastest, raised = max(fastest, rate), true
			case 4:
				now += plugins.Time(rapid.Int64Range(0, 1e6).Draw(t, "step"))
			default:
				if at := c.Depart(l, now); at > now && at-now < 1<<55 {
					now = at
				}
			}
			if c.Depart(l, now) > now || now > 1<<60 {
				continue // held
			}
			if latestSend != plugins.Never && !(back && raised) { // the rate counts from a present that has stepped back
				whole, _ := duration(uint64(size), fastest)
				if gap := now - latestSend; gap < whole/2-1 {
					t.Fatalf("%d bytes left %d ns before, at %d B/s or less", size, gap, fastest)
				}
			}
			size = rapid.IntRange(1, 65536).Draw(t, "size")
			late := c.wstamp < now
			if at := c.Sent(l, now, size); at < now {
				t.Fatalf("departure %d before %d", at, now)
			}
			whole, _ := duration(uint64(size), l.Rate)
			if ahead := c.Depart(l, now) - now; ahead > whole+1 || late && ahead < min(whole/2-1, latest-now) {
				t.Fatalf("%d bytes at %d B/s take %d ns, the next departure is %d ahead", size, l.Rate, whole, ahead)
			}
			latestSend, fastest, back, raised = now, l.Rate, false, false
		}
	})
}

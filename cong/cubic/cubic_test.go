package cubic

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const mss = 1000

func newModule(t testing.TB, p plugins.Params) cong.Module {
	m, err := New(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hand(t testing.TB, p plugins.Params) *congtest.Hand {
	h := congtest.NewHand(t, newModule(t, p), mss)
	h.SRTT, h.MinRTT = 100*time.Millisecond, 100*time.Millisecond
	return h
}

func TestParams(t *testing.T) {
	for _, p := range []plugins.Params{{"beta": "0"}, {"beta": "1000"}, {"c": "0"}, {"hystart": "x"}, {"hystart_l": "0"}, {"alpha": "1"}} {
		_, err := New(p, 0)
		for name := range p {
			if err == nil || !strings.Contains(err.Error(), "cubic: "+name) {
				t.Errorf("%v: error %v", p, err)
			}
		}
	}
}

func TestCubeRoot(t *testing.T) {
	for _, x := range []uint64{0, 1, 7, 8, 9, 26, 27, 1<<63 - 1, 1 << 63, 1<<64 - 1, 999_999_999_999, 1_000_000_000_000} {
		r := cbrt(x)
		if r*r*r > x {
			t.Errorf("cbrt(%d) = %d is too large", x, r)
		}
		if q := r + 1; r < 2_642_245 && q*q*q <= x { // 2642246³ exceeds 2^64
			t.Errorf("cbrt(%d) = %d is too small", x, r)
		}
	}
}

func TestTicks(t *testing.T) {
	for d, want := range map[time.Duration]uint64{0: 0, -1: 0, time.Second: 4096, 500 * time.Millisecond: 2048, time.Hour: 3600 * 4096} {
		if got := ticks(d); got != want {
			t.Errorf("%v: %d ticks, want %d", d, got, want)
		}
	}
}

// Facts V1: values of W(t) at t/K = 0, ¼, … after a loss at W_max, and K.
var curveTable = []struct {
	wMax float64
	k    float64 // s
	w    [8]float64
}{
	{100, 4.217, [8]float64{70, 87.3, 96.2, 99.5, 100, 100.5, 103.8, 130}},
	{833, 8.549, [8]float64{583.1, 727.6, 801.8, 829.1, 833, 836.9, 864.2, 1082.9}},
	{1000, 9.086, [8]float64{700, 873.4, 962.5, 995.3, 1000, 1004.7, 1037.5, 1300}},
	{8333, 18.42, [8]float64{5833, 7278, 8020, 8294, 8333, 8372, 8645, 10833}},
}

var curveAt = [8]float64{0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2}

// The function itself, to 0.05 % of W_max.
func TestCurveFunction(t *testing.T) {
	m := &module{beta: 700, curve: 400 << 20 / 1000}
	for _, c := range curveTable {
		s := curve{wMax: uint32(c.wMax * mss)}
		m.start(&s, 0, uint32(c.wMax*mss*0.7), mss)
		if k := float64(s.k) / ticksPerSecond; math.Abs(k-c.k) > 0.005 {
			t.Errorf("W_max %.0f: K = %.3f s, want %.3f", c.wMax, k, c.k)
		}
		for i, at := range curveAt {
			got := float64(m.at(&s, uint64(at*float64(s.k)), mss)) / mss
			if math.Abs(got-c.w[i]) > c.wMax*0.0005+0.05 {
				t.Errorf("W_max %.0f, t = %.2f K: %.2f, want %.2f", c.wMax, at, got, c.w[i])
			}
		}
	}
}

// A flow's window follows the curve within 2 % of W_max over an epoch: round trips of K/100, twenty samples each.
func TestWindowFollowsCurve(t *testing.T) {
	for _, c := range curveTable {
		p := plugins.Params{}
		if c.wMax == 100 { // Reno would be faster at this window and RTT
			p["tcp_friendliness"] = "false"
		}
		h := hand(t, p)
		h.Cwnd = uint32(c.wMax * mss)
		h.Send(cong.KindOpen)
		h.Enter(cong.CARecovery, 0)
		h.Exit(0)
		k := time.Duration(c.k * float64(time.Second))
		h.SRTT = k / 100
		start, next := h.Now, 0
		for next < len(curveAt) {
			d := h.Ack(h.Cwnd/20, 0)
			if h.Now.Sub(start) >= time.Duration(curveAt[next]*float64(k)) {
				if got := float64(d.Cwnd) / mss; math.Abs(got-c.w[next]) > 0.02*c.wMax {
					t.Errorf("W_max %.0f, t = %.2f K: %.1f, want %.1f", c.wMax, curveAt[next], got, c.w[next])
				}
				next++
			}
			h.Now = h.Now.Add(h.SRTT / 20)
		}
	}
}

// RFC 9438, 4.4: the window aims at the curve a round trip ahead. From 70 segments, K = 4.217 s, 1 s ahead:
// 100 - 0.4·3.217³ = 86.7.
func TestAimsOneRoundTripAhead(t *testing.T) {
	h := hand(t, plugins.Params{"tcp_friendliness": "false"})
	h.Cwnd, h.SRTT = 100*mss, time.Second
	h.Send(cong.KindOpen)
	h.Enter(cong.CARecovery, 0)
	h.Exit(0)
	if d := h.Ack(h.Cwnd, 0); d.Cwnd < 86_500 || d.Cwnd > 86_800 {
		t.Errorf("cwnd %d, want 86.7 segments", d.Cwnd)
	}
}

// RFC 9438, 4.4: at most half as much again per round trip.
func TestTargetIsBounded(t *testing.T) {
	h := hand(t, nil)
	h.Cwnd = 100 * mss
	h.Send(cong.KindOpen)
	h.Enter(cong.CARecovery, 0)
	h.Exit(0)
	h.Ack(mss, 0) // the epoch starts
	h.Now = h.Now.Add(time.Hour)
	before := h.Cwnd
	if d := h.Ack(h.Cwnd, 0); d.Cwnd > before+before/2 || d.Cwnd < before+before/2-1 {
		t.Errorf("one round trip takes %d to %d", before, d.Cwnd)
	}
}

// RFC 9438, 4.3: alpha = 9/17 segment per round trip, spread over its acknowledgements, and 1 once the prior window is reached.
func TestRenoFriendly(t *testing.T) {
	h := hand(t, nil)
	h.SRTT = time.Millisecond // the curve stands still
	h.Cwnd = 20 * mss
	h.Send(cong.KindOpen)
	h.Enter(cong.CARecovery, 0)
	h.Exit(0)
	start := h.Cwnd
	h.Ack(mss, 0) // the epoch starts
	if d, want := h.Cwnd-start, uint32(mss*9/17/14); d < want-1 || d > want+1 {
		t.Errorf("a segment acknowledged gives %d bytes, want %d", d, want)
	}
	rounds := 0
	for ; h.Cwnd < 20*mss; rounds++ {
		h.Ack(h.Cwnd, 0)
		h.Now = h.Now.Add(h.SRTT)
	}
	if want := 6 * 17. / 9; start != 14*mss || math.Abs(float64(rounds)-want) > 1 {
		t.Errorf("%d round trips from %d to 20 segments, want %.1f", rounds, start/mss, want)
	}
	before := h.Cwnd
	for range 20 {
		h.Ack(h.Cwnd, 0)
		h.Now = h.Now.Add(h.SRTT)
	}
	if d := h.Cwnd - before; d < 19*mss || d > 21*mss {
		t.Errorf("%d segments in 20 round trips above the prior window", d/mss)
	}
}

// RFC 9438, 4.6 and 4.7.
func TestFastConvergence(t *testing.T) {
	for _, on := range []string{"true", "false"} {
		h := hand(t, plugins.Params{"fast_convergence": on})
		h.Cwnd = 100 * mss
		h.Send(cong.KindOpen)
		d := h.Enter(cong.CARecovery, 0)
		if d.Ssthresh != 70*mss || d.Cwnd != 70*mss || uint32(d.Aux[0]) != 100*mss {
			t.Fatalf("first reduction: %+v", d)
		}
		h.Exit(0)
		d = h.Enter(cong.CARecovery, 0) // before the window was regained
		want := uint32(59_500)          // 70·(1+0.7)/2
		if on == "false" {
			want = 70_000
		}
		if w := uint32(d.Aux[0]); w != want || d.Ssthresh != 49*mss {
			t.Errorf("fast convergence %s: W_max %d, want %d; ssthresh %d", on, w, want, d.Ssthresh)
		}
	}
}

// RFC 9438, 4.8: beta, slow start, then a curve with K = 0 from the window that it starts with.
func TestTimeout(t *testing.T) {
	h := hand(t, nil)
	h.Cwnd = 200 * mss
	h.Send(cong.KindOpen)
	h.Enter(cong.CARecovery, 0) // there is a curve from before
	h.CA = cong.CAOpen
	h.Exit(0)
	for h.Cwnd < 150*mss {
		h.Ack(h.Cwnd, 0)
		h.Now = h.Now.Add(h.SRTT)
	}
	w := uint32(uint64(h.Cwnd) * 7 / 10)
	if d := h.Timeout(); d.Ssthresh != w || d.Cwnd != mss {
		t.Fatalf("%+v", d)
	}
	if d := h.Timeout(); d.Ssthresh != w || d.Cwnd != mss {
		t.Fatalf("second timeout: %+v", d)
	}
	for h.Cwnd < 64*mss {
		h.Ack(h.Cwnd, 0)
	}
	d := h.Ack(w-h.Cwnd+1, 0)
	if got := uint32(d.Aux[0]); got != w || d.Aux[1] != 0 || d.Cwnd != w {
		t.Errorf("first congestion avoidance: W_max %d, K %d, cwnd %d, want %d, 0, %d", got, d.Aux[1], d.Cwnd, w, w)
	}
}

func TestUndo(t *testing.T) {
	h := hand(t, nil)
	h.Cwnd = 100 * mss
	h.Send(cong.KindOpen)
	h.Enter(cong.CARecovery, 0)
	h.Exit(0)
	var before cong.Decision
	for range 30 { // well into an epoch
		before = h.Ack(h.Cwnd, 0)
		h.Now = h.Now.Add(h.SRTT)
	}
	h.Enter(cong.CARecovery, 0)
	d := h.Exit(cong.FlagUndo)
	if d.Cwnd != before.Cwnd || d.Ssthresh != before.Ssthresh || d.Aux[0] != before.Aux[0] || d.Aux[1] != before.Aux[1] || d.Aux[2] == 0 {
		t.Errorf("undo:\n got %+v\nwant %+v", d, before)
	}
}

// RFC 9438, 4.6: an echo of marks may reduce to one segment; a loss leaves two.
func TestFloors(t *testing.T) {
	h := hand(t, nil)
	h.Cwnd = 2 * mss
	h.Send(cong.KindOpen)
	if d := h.Enter(cong.CACWR, cong.FlagECE); d.Cwnd != 1400 || d.Ssthresh != 2*mss {
		t.Errorf("mark: %+v", d)
	}
	if d := h.Exit(0); d.Cwnd != 1400 {
		t.Errorf("after the mark: %+v", d)
	}
	if d := h.Enter(cong.CARecovery, 0); d.Cwnd != 2*mss || d.Ssthresh != 2*mss {
		t.Errorf("loss: %+v", d)
	}
}

// RFC 9438, 5.8: time in which the window is not used does not count.
func TestUnusedTimeDoesNotCount(t *testing.T) {
	run := func(unused time.Duration, restart bool) uint32 {
		h := hand(t, plugins.Params{"slow_start_after_idle": "false"})
		h.Cwnd = 1000 * mss
		h.Send(cong.KindOpen)
		h.Enter(cong.CARecovery, 0)
		h.Exit(0)
		for i := range 60 {
			if i == 30 && restart {
				h.Now = h.Now.Add(unused)
				h.Send(cong.KindRestart)
			} else if i == 30 {
				for range 100 {
					h.Now = h.Now.Add(unused / 100)
					h.Acked, h.PriorInFlight = mss, 100*mss
					h.Send(cong.KindAck)
				}
			}
			h.Ack(h.Cwnd, 0)
			h.Now = h.Now.Add(h.SRTT)
		}
		return h.Cwnd
	}
	want := run(0, false)
	if want < 900*mss {
		t.Fatalf("the window grew to %d only", want/mss)
	}
	for _, restart := range []bool{false, true} {
		if got := run(20*time.Second, restart); got > want+want/1000 || got < want-want/1000 {
			t.Errorf("restart %v: cwnd %d after unused time, %d without", restart, got, want)
		}
	}
}

// Facts V2 (RFC 9438, tables 1 and 2): the average window with periodic loss.
func TestResponseFunction(t *testing.T) {
	for _, c := range []struct {
		every uint64
		rtt   time.Duration
		want  float64
	}{
		{100, 100 * time.Millisecond, 12},
		{1000, 100 * time.Millisecond, 38},
		{10_000, 100 * time.Millisecond, 187},
		{100_000, 100 * time.Millisecond, 1054},
		{1000, 10 * time.Millisecond, 38},
		{10_000, 10 * time.Millisecond, 120},
	} {
		s := congtest.NewSim(congtest.Path{RTT: c.rtt, MSS: mss, LossEvery: c.every}, newModule(t, nil))
		periods := func(n float64) time.Duration { return time.Duration(n * float64(c.every) / c.want * float64(c.rtt)) }
		s.Run(periods(6))
		d := s.Delivered()
		run := periods(10)
		s.Run(run)
		w := float64(s.Delivered()-d) / mss / (float64(run) / float64(c.rtt))
		t.Logf("p = 1/%d, RTT %v: %.1f segments, want %.0f", c.every, c.rtt, w, c.want)
		if math.Abs(w-c.want) > 0.2*c.want {
			t.Errorf("p = 1/%d, RTT %v: %.1f segments, want %.0f ± 20 %%", c.every, c.rtt, w, c.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	aux := [3]uint64{833*1448 | 1448<<32, 8*ticksPerSecond + ticksPerSecond/2, uint64(2345 * time.Millisecond)}
	if got, want := Describe(aux, &cong.Decision{}), "cubic:(w_max:833,k:8.500,epoch:2.345)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	aux = [3]uint64{0, 0, cssBit}
	if got, want := Describe(aux, &cong.Decision{}), "cubic:(w_max:0,k:0.000,css)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

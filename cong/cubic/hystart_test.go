package cubic

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// rounds drives a flow round by round: n acknowledgements of a tenth of the window each, all with the same RTT.
type rounds struct{ *congtest.Hand }

func (r rounds) round(samples int, rtt time.Duration) (d cong.Decision) {
	w := r.Cwnd
	for i := range samples {
		n := w / uint32(samples)
		r.Acked, r.RTT = n, rtt
		r.Flags = cong.FlagCwndLimited | cong.FlagRTTValid | cong.FlagPaced
		r.Delivered += uint64(n)
		r.PriorInFlight = r.Cwnd
		r.InFlight = w - n*uint32(i+1) // the round's own bytes that are left
		if i == samples-1 {
			r.InFlight = r.Cwnd
		}
		d = r.Send(cong.KindAck)
	}
	return d
}

func startRounds(t *testing.T, p plugins.Params) rounds {
	h := hand(t, p)
	h.Cwnd = 20 * mss
	h.InFlight = 20 * mss
	h.Send(cong.KindOpen)
	return rounds{h}
}

func css(d cong.Decision) bool { return d.Aux[2]&cssBit != 0 }

// RFC 9406, 4.2: the threshold is lastRTT/8 within 4…16 ms, for at least 8 samples.
func TestHystartThreshold(t *testing.T) {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	for _, c := range []struct {
		samples    int
		base, next time.Duration
		want       bool
	}{
		{10, ms(100), ms(112.4), false},
		{10, ms(100), ms(112.5), true}, // an eighth
		{10, ms(10), ms(13.9), false},
		{10, ms(10), ms(14), true}, // at least 4 ms
		{10, ms(800), ms(815.9), false},
		{10, ms(800), ms(816), true}, // at most 16 ms
		{7, ms(100), ms(200), false}, // too few samples
		{8, ms(100), ms(200), true},
	} {
		r := startRounds(t, nil)
		r.round(10, c.base)
		if d := r.round(c.samples, c.next); css(d) != c.want || d.Ssthresh != cong.InfiniteSsthresh {
			t.Errorf("%v after %v, %d samples: CSS %v", c.next, c.base, c.samples, css(d))
		}
	}
}

func TestHystartGrowth(t *testing.T) {
	r := startRounds(t, nil)
	if d := r.round(10, 100*time.Millisecond); d.Cwnd != 40*mss {
		t.Fatalf("slow start: %d", d.Cwnd)
	}
	r.round(10, 120*time.Millisecond) // into CSS with the eighth sample
	before := r.Cwnd
	if d := r.round(10, 120*time.Millisecond); d.Cwnd != before+before/4 {
		t.Errorf("CSS: from %d to %d, want a quarter more", before, d.Cwnd)
	}
}

func TestHystartEndsAfterFiveRounds(t *testing.T) {
	r := startRounds(t, nil)
	r.round(10, 100*time.Millisecond)
	for i := range 5 { // the first, partial one counts
		d := r.round(10, 120*time.Millisecond)
		if done := d.Ssthresh != cong.InfiniteSsthresh; done != (i == 4) {
			t.Fatalf("CSS round %d: ssthresh %d", i+1, d.Ssthresh)
		}
	}
	if r.Ssthresh != r.Cwnd {
		t.Errorf("ssthresh %d, cwnd %d", r.Ssthresh, r.Cwnd)
	}
	// RFC 9438, 4.10: congestion avoidance starts with K = 0, W_max = cwnd.
	w := r.Cwnd
	if d := r.Ack(mss, 0); uint32(d.Aux[0]) != w || d.Aux[1] != 0 {
		t.Errorf("curve after slow start: %+v", d)
	}
}

func TestHystartResumesSlowStart(t *testing.T) {
	r := startRounds(t, nil)
	r.round(10, 100*time.Millisecond)
	if !css(r.round(10, 120*time.Millisecond)) {
		t.Fatal("not in CSS")
	}
	if css(r.round(10, 119*time.Millisecond)) {
		t.Fatal("the RTT fell below the baseline, still in CSS")
	}
	before := r.Cwnd
	if d := r.round(10, 119*time.Millisecond); d.Cwnd != 2*before {
		t.Errorf("slow start goes on: from %d to %d", before, d.Cwnd)
	}
}

// RFC 9406, 4.3: L bounds the growth per acknowledgement of a flow that is not paced.
func TestHystartLimit(t *testing.T) {
	h := hand(t, nil)
	h.Send(cong.KindOpen)
	if d := h.Ack(10*mss, 0); d.Cwnd != 18*mss {
		t.Errorf("not paced: %d, want 10+8 segments", d.Cwnd)
	}
	if d := h.Ack(18*mss, cong.FlagPaced); d.Cwnd != 36*mss {
		t.Errorf("paced: %d, want 36 segments", d.Cwnd)
	}
}

func TestHystartIsForTheInitialSlowStart(t *testing.T) {
	r := startRounds(t, nil)
	r.Timeout()
	r.CA = cong.CAOpen
	for r.Cwnd < 4*mss {
		r.Ack(r.Cwnd, cong.FlagPaced)
	}
	r.round(10, 100*time.Millisecond)
	before := r.Cwnd
	if d := r.round(10, 200*time.Millisecond); css(d) || d.Cwnd == before {
		t.Errorf("after a timeout: %+v", d)
	}
}

// On a path with a buffer of one BDP, HyStart++ leaves slow start before the first loss and loses at most half of what plain
// slow start does.
func TestHystartLeavesBeforeLoss(t *testing.T) {
	p := congtest.Path{Rate: 12_500_000, RTT: 100 * time.Millisecond, Buffer: 1_250_000}
	lost := map[string]uint64{}
	for _, on := range []string{"true", "false"} {
		s := congtest.NewSim(p, newModule(t, plugins.Params{"hystart": on}))
		var entered, left plugins.Time
		s.OnSample = func(in *cong.Sample, d *cong.Decision) {
			if d == nil {
				return
			}
			if entered == 0 && css(*d) {
				entered = in.Now
			}
			if left == 0 && d.Ssthresh != cong.InfiniteSsthresh {
				left = in.Now
			}
		}
		s.Run(5 * time.Second)
		lost[on] = s.Stats.Lost
		if on == "true" && (entered == 0 || s.Stats.FirstLoss != 0 && entered >= s.Stats.FirstLoss) {
			t.Errorf("conservative slow start at %d, first loss at %d", entered, s.Stats.FirstLoss)
		}
		t.Logf("hystart %s: CSS %d, left %d, first loss %d, %d lost", on, entered, left, s.Stats.FirstLoss, s.Stats.Lost)
	}
	if lost["false"] == 0 || lost["true"] > lost["false"]/2 {
		t.Errorf("%d segments lost with, %d without HyStart++", lost["true"], lost["false"])
	}
}

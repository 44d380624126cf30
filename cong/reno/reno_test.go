package reno

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

func hand(t testing.TB, p plugins.Params) *congtest.Hand {
	m, err := New(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := congtest.NewHand(t, m, mss)
	h.SRTT, h.MinRTT = 100*time.Millisecond, 100*time.Millisecond
	h.Send(cong.KindOpen)
	return h
}

func TestParams(t *testing.T) {
	for _, p := range []plugins.Params{{"abe": "maybe"}, {"beta": "1"}} {
		_, err := New(p, 0)
		for name := range p {
			if err == nil || !strings.Contains(err.Error(), "reno: "+name) {
				t.Errorf("%v: error %v", p, err)
			}
		}
	}
}

// RFC 5681, 3.1 and 3.2.
func TestWindow(t *testing.T) {
	h := hand(t, nil)
	if d := h.Ack(10*mss, 0); d.Cwnd != 20*mss || d.Flags != cong.WantsPRR || d.Rate != 0 {
		t.Fatalf("slow start: %+v", d)
	}
	if d := h.Enter(cong.CARecovery, 0); d.Ssthresh != 10*mss || d.Cwnd != 10*mss {
		t.Fatalf("loss: %+v", d)
	}
	if d := h.Ack(3*mss, 0); d.Cwnd != 10*mss {
		t.Fatalf("in recovery: %+v", d)
	}
	if d := h.Exit(0); d.Cwnd != 10*mss {
		t.Fatalf("after recovery: %+v", d)
	}
	if d := h.Ack(10*mss, 0); d.Cwnd != 11*mss {
		t.Fatalf("congestion avoidance: %+v", d)
	}
	if d := h.Timeout(); d.Ssthresh != 11*mss/2 || d.Cwnd != mss {
		t.Fatalf("timeout: %+v", d)
	}
	if d := h.Timeout(); d.Ssthresh != 11*mss/2 || d.Cwnd != mss {
		t.Fatalf("second timeout of the episode: %+v", d)
	}
	if d := h.Ack(mss, 0); d.Cwnd != 2*mss {
		t.Fatalf("slow start after a timeout: %+v", d)
	}
	if d := h.Exit(0); d.Cwnd != 2*mss {
		t.Fatalf("the end of the loss episode changes the window: %+v", d)
	}
	if d := h.Ack(4*mss, 0); d.Cwnd != 11*mss/2 {
		t.Fatalf("slow start ends at ssthresh: %+v", d)
	}
}

// RFC 5681, equation (4): half of what is in flight, not of an unused window; at least two segments.
func TestHalvesTheFlight(t *testing.T) {
	h := hand(t, nil)
	h.Ack(90*mss, 0)
	h.PriorInFlight, h.CA, h.Flags = 30*mss, cong.CARecovery, cong.FlagEnter
	if d := h.Send(cong.KindAck); d.Ssthresh != 15*mss {
		t.Errorf("ssthresh %d with 30 of 100 segments in flight", d.Ssthresh)
	}
	h = hand(t, nil)
	h.PriorInFlight, h.CA, h.Flags = 3*mss, cong.CARecovery, cong.FlagEnter
	if d := h.Send(cong.KindAck); d.Ssthresh != 2*mss {
		t.Errorf("ssthresh %d with 3 segments in flight", d.Ssthresh)
	}
}

// FlightSize is what was outstanding when order broke: an application-limited flow of 8 segments, of which the first is lost and 5 are
// SACKed before the loss is found, had 8 outstanding, though only 3 are in flight then. A window that shrank meanwhile bounds it, and
// what was SACKed in an earlier disorder does not count.
func TestFlightSizeIncludesSACKed(t *testing.T) {
	h := hand(t, nil)
	h.Ack(90*mss, 0)
	disorder := func(flight uint32) {
		for sacked := range uint32(5) {
			h.CA, h.Acked, h.PriorInFlight, h.InFlight = cong.CADisorder, mss, (flight-sacked)*mss, (flight-sacked-1)*mss
			h.Send(cong.KindAck)
		}
	}
	disorder(40)
	h.CA, h.PriorInFlight, h.InFlight = cong.CAOpen, 35*mss, 8*mss
	h.Send(cong.KindAck) // it was reordering
	disorder(8)
	h.CA, h.Flags, h.PriorInFlight, h.InFlight = cong.CARecovery, cong.FlagEnter, 3*mss, 2*mss
	if d := h.Send(cong.KindAck); d.Ssthresh != 4*mss {
		t.Errorf("ssthresh %d segments after 8 were outstanding, want 4", d.Ssthresh/mss)
	}
	h = hand(t, nil) // a timeout before recovery
	h.Ack(90*mss, 0)
	disorder(8)
	h.CA, h.InFlight, h.PriorInFlight = cong.CALoss, 3*mss, 3*mss
	if d := h.Send(cong.KindTimeout); d.Ssthresh != 4*mss || d.Cwnd != mss {
		t.Errorf("timeout: %+v", d)
	}
	h = hand(t, nil)
	disorder(40)
	h.CA, h.Flags, h.PriorInFlight, h.InFlight = cong.CARecovery, cong.FlagEnter, 9*mss, 9*mss
	if d := h.Send(cong.KindAck); d.Ssthresh != 5*mss {
		t.Errorf("ssthresh %d segments with a window of 10", d.Ssthresh/mss)
	}
}

// In recovery what is in flight leaves out what was lost; a timeout there halves the window that recovery had set.
func TestTimeoutInRecovery(t *testing.T) {
	h := hand(t, nil)
	h.Ack(30*mss, 0)
	h.Enter(cong.CARecovery, 0) // 20
	h.CA, h.InFlight, h.PriorInFlight = cong.CALoss, 3*mss, 3*mss
	if d := h.Send(cong.KindTimeout); d.Ssthresh != 10*mss || d.Cwnd != mss {
		t.Errorf("%+v", d)
	}
}

func TestNoGrowthUnlessUsed(t *testing.T) {
	h := hand(t, nil)
	h.Enter(cong.CARecovery, 0)
	h.Exit(0)
	before := h.Cwnd
	for range 100 {
		h.Acked, h.PriorInFlight = mss, h.Cwnd/3
		h.Send(cong.KindAck)
	}
	if h.Cwnd != before {
		t.Errorf("cwnd went from %d to %d unused", before, h.Cwnd)
	}
}

func TestECNAndABE(t *testing.T) {
	h := hand(t, nil)
	if d := h.Enter(cong.CACWR, cong.FlagECE); d.Ssthresh != 5*mss {
		t.Errorf("RFC 3168: ssthresh %d", d.Ssthresh)
	}
	h = hand(t, plugins.Params{"abe": "true"})
	if d := h.Enter(cong.CACWR, cong.FlagECE); d.Ssthresh != 8*mss {
		t.Errorf("RFC 8511: ssthresh %d", d.Ssthresh)
	}
	h = hand(t, plugins.Params{"abe": "true"})
	if d := h.Enter(cong.CARecovery, 0); d.Ssthresh != 5*mss {
		t.Errorf("RFC 8511 is for marks only: ssthresh %d", d.Ssthresh)
	}
}

func TestUndo(t *testing.T) {
	h := hand(t, nil)
	h.Ack(30*mss, 0)
	h.Enter(cong.CARecovery, 0)
	if d := h.Exit(cong.FlagUndo); d.Cwnd != 40*mss || d.Ssthresh != cong.InfiniteSsthresh {
		t.Errorf("undo: %+v", d)
	}
	h.Timeout()
	h.Flags = cong.FlagUndo
	h.CA = cong.CAOpen
	if d := h.Ack(0, cong.FlagUndo|cong.FlagExit); d.Cwnd != 40*mss || d.Ssthresh != cong.InfiniteSsthresh {
		t.Errorf("undo of a timeout: %+v", d)
	}
}

func TestIdle(t *testing.T) {
	for _, on := range []string{"true", "false"} {
		h := hand(t, plugins.Params{"slow_start_after_idle": on})
		h.Ack(90*mss, 0)
		h.Now = h.Now.Add(time.Minute)
		want := uint32(10 * mss)
		if on == "false" {
			want = 100 * mss
		}
		if d := h.Send(cong.KindRestart); d.Cwnd != want {
			t.Errorf("slow_start_after_idle %s: cwnd %d, want %d", on, d.Cwnd, want)
		}
	}
}

// Mathis et al.: window·√p = √(3/2) = 1.22 with periodic loss and an acknowledgement for each segment.
func TestResponseFunction(t *testing.T) {
	for _, every := range []uint64{300, 1000, 10_000} {
		m, _ := New(nil, 0)
		const rtt = 100 * time.Millisecond
		s := congtest.NewSim(congtest.Path{RTT: rtt, MSS: mss, LossEvery: every}, m)
		s.Run(100 * time.Second)
		d := s.Delivered()
		const rounds = 10_000
		s.Run(rounds * rtt)
		w := float64(s.Delivered()-d) / mss / rounds
		c := w / math.Sqrt(float64(every))
		t.Logf("1/p %d: window %.1f segments, C %.3f", every, w, c)
		if math.Abs(c-1.2247) > 0.12247 {
			t.Errorf("1/p %d: C = %.3f, want 1.22 ± 10 %%", every, c)
		}
		if s.Stats.Timeouts != 0 {
			t.Errorf("%d timeouts", s.Stats.Timeouts)
		}
	}
}

// The sawtooth: between two losses the window rises by one segment per round trip from half of its peak.
func TestSawtooth(t *testing.T) {
	m, _ := New(nil, 0)
	const rtt = 50 * time.Millisecond
	s := congtest.NewSim(congtest.Path{RTT: rtt, MSS: mss, LossEvery: 2000}, m)
	s.Run(200 * time.Second)
	var starts []plugins.Time
	var peaks, floors []uint32
	last := s.Decision().Cwnd
	s.OnSample = func(in *cong.Sample, d *cong.Decision) {
		if in.Has(cong.FlagEnter) {
			peaks = append(peaks, last)
			starts = append(starts, in.Now)
		}
		if in.Has(cong.FlagExit) {
			floors = append(floors, d.Cwnd)
		}
		last = d.Cwnd
	}
	s.Run(100 * time.Second)
	if len(peaks) < 10 {
		t.Fatalf("%d reductions", len(peaks))
	}
	// W²·3/8 segments per period: W = √(8/3·2000) = 73.
	for i := 1; i < len(peaks)-1; i++ {
		if w := float64(peaks[i]) / mss; math.Abs(w-73) > 7.3 {
			t.Errorf("peak of %.1f segments, want 73 ± 10 %%", w)
		}
		if r := float64(floors[i]) / float64(peaks[i]); math.Abs(r-0.5) > 0.02 {
			t.Errorf("a reduction leaves %.3f of the peak", r)
		}
		rounds := float64(starts[i+1].Sub(starts[i]))/float64(rtt) - 1 // one round trip of recovery
		rise := float64(peaks[i+1]-floors[i]) / mss
		if math.Abs(rise-rounds) > 2 {
			t.Errorf("the window rose by %.1f segments in %.1f round trips", rise, rounds)
		}
	}
}

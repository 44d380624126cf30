package dctcp

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
	h.SRTT, h.MinRTT = time.Millisecond, time.Millisecond
	h.Cwnd, h.Ssthresh = 100*mss, 100*mss
	h.Send(cong.KindOpen)
	return h
}

func TestConformance(t *testing.T) {
	congtest.Run(t, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

func TestBoundsOfParameters(t *testing.T) {
	for _, p := range []plugins.Params{{"shift_g": "1", "alpha_on_init": "0"}, {"shift_g": "10", "slow_start_after_idle": "false"}} {
		congtest.Bounds(t, func(seed uint64) (cong.Module, error) { return New(p, seed) })
	}
}

func BenchmarkSample(b *testing.B) {
	congtest.Bench(b, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

func TestParams(t *testing.T) {
	for _, p := range []plugins.Params{{"shift_g": "0"}, {"alpha_on_init": "1025"}, {"slow_start_after_idle": ""}, {"g": "1"}} {
		_, err := New(p, 0)
		for name := range p {
			if err == nil || !strings.Contains(err.Error(), "dctcp: "+name) {
				t.Errorf("%v: error %v", p, err)
			}
		}
	}
}

// RFC 8257, 3.3: alpha = (1-g)·alpha + g·M once per window, with g = 1/16 and 1 at first.
func TestAlpha(t *testing.T) {
	h := hand(t, nil)
	want := 1.0
	for i, marked := range []uint32{0, 0, 50, 100, 0, 25, 100, 100, 0} {
		h.Marked = marked * mss
		d := h.Ack(100*mss, 0)
		h.Delivered += uint64(h.InFlight) // the window is over
		want = want*15/16 + float64(marked)/100/16
		if i == 0 {
			want = 1*15.0/16 + 0
		}
		if got := float64(d.Aux[0]) / shownUnit; math.Abs(got-want) > 0.002 {
			t.Errorf("window %d: alpha %.4f, want %.4f", i, got, want)
		}
	}
	h.Marked = 10 * mss
	h.Delivered -= uint64(100 * mss) // within the window
	if d := h.Ack(20*mss, 0); Describe(d.Aux, &d) == "" || d.Aux[1] != 10*mss || d.Aux[2] != 20*mss {
		t.Errorf("within a window: %s", Describe(d.Aux, &d))
	}
}

// Without marks alpha falls to 0.
func TestAlphaFallsToZero(t *testing.T) {
	h := hand(t, nil)
	var d cong.Decision
	for range 400 {
		d = h.Ack(h.Cwnd, 0)
		h.Delivered += uint64(h.InFlight)
	}
	if d.Aux[0] != 0 {
		t.Errorf("alpha %d/1024", d.Aux[0])
	}
}

// RFC 8257, 3.3: cwnd·(1 - alpha/2) for marks; 3.4: half for a loss; once per window, as the engine says.
func TestReduction(t *testing.T) {
	for alpha, want := range map[string]uint32{"1024": 50, "512": 75, "0": 100} {
		h := hand(t, plugins.Params{"alpha_on_init": alpha})
		if d := h.Enter(cong.CACWR, cong.FlagECE); d.Cwnd != want*mss || d.Ssthresh != want*mss || d.Flags&cong.WantsPRR == 0 {
			t.Errorf("alpha %s/1024: %+v", alpha, d)
		}
		if d := h.Ack(10*mss, cong.FlagECE); d.Cwnd != want*mss {
			t.Errorf("in CWR: %d", d.Cwnd)
		}
		if d := h.Exit(0); d.Cwnd != want*mss {
			t.Errorf("after CWR: %d", d.Cwnd)
		}
		h = hand(t, plugins.Params{"alpha_on_init": alpha})
		if d := h.Enter(cong.CARecovery, 0); d.Cwnd != 50*mss {
			t.Errorf("loss with alpha %s/1024: %d", alpha, d.Cwnd)
		}
		if d := h.Exit(cong.FlagUndo); d.Cwnd != 100*mss {
			t.Errorf("undone: %d", d.Cwnd)
		}
	}
	h := hand(t, nil)
	if d := h.Timeout(); d.Cwnd != mss || d.Ssthresh != 50*mss {
		t.Errorf("timeout: %+v", d)
	}
}

// Alizadeh et al., SIGCOMM 2010, 3.3, for one flow: alpha = √(2/W) with W = (C·RTT+K) in segments, and a queue between
// K + 1 and that less (W+1)·alpha/2. Marks are known exactly.
func TestSteadyState(t *testing.T) {
	const (
		rate = 125_000_000 // 1 Gbit/s
		rtt  = time.Millisecond
		seg  = 1448
		k    = 60 * seg
	)
	s := congtest.NewSim(congtest.Path{Rate: rate, RTT: rtt, Buffer: 1 << 20, MarkAbove: k}, newModule(t, nil))
	s.Run(500 * time.Millisecond)
	d := s.Delivered()
	least, most, alpha, n := uint64(1<<62), uint64(0), 0.0, 0
	for range 20_000 {
		s.Run(50 * time.Microsecond)
		q := s.Queue()
		least, most = min(least, q), max(most, q)
		alpha += float64(s.Decision().Aux[0]) / shownUnit
		n++
	}
	w := float64(rate/1000+k) / seg
	wantAlpha := math.Sqrt(2 / w)
	wantLeast := k/seg + 1 - (w+1)*wantAlpha/2
	t.Logf("alpha %.3f, want %.3f; queue %d … %d segments, want %.0f … %d", alpha/float64(n), wantAlpha, least/seg, most/seg, wantLeast, k/seg+1)
	if a := alpha / float64(n); math.Abs(a-wantAlpha) > wantAlpha/4 {
		t.Errorf("alpha %.3f, want %.3f", a, wantAlpha)
	}
	if float64(least)/seg < wantLeast-5 || most > k+5*seg {
		t.Errorf("queue from %d to %d segments", least/seg, most/seg)
	}
	if got := s.Delivered() - d; got < rate*995/1000 || s.Stats.Lost > 0 {
		t.Errorf("%d bytes in a second, %d lost", got, s.Stats.Lost)
	}
}

package cdg

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const mss = 1000

func newModule(t testing.TB, p plugins.Params, seed uint64) cong.Module {
	m, err := New(p, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hand(t testing.TB, p plugins.Params) *congtest.Hand {
	h := congtest.NewHand(t, newModule(t, p, 1), mss)
	h.SRTT, h.MinRTT = 100*time.Millisecond, 100*time.Millisecond
	return h
}

func TestParams(t *testing.T) {
	for _, p := range []plugins.Params{{"window": "0"}, {"window": "12"}, {"window": "512"}, {"backoff_beta": "1025"}, {"backoff_factor": "0"},
		{"hystart_detect": "4"}, {"use_ineff": "-1"}, {"use_shadow": "2"}, {"use_tolerance": ""}, {"G": "3"}} {
		_, err := New(p, 0)
		for name := range p {
			if err == nil || !strings.Contains(err.Error(), "cdg: "+name) {
				t.Errorf("%v: error %v", p, err)
			}
		}
	}
}

func TestNegExp(t *testing.T) {
	for ux := uint64(0); ux < 1<<expBits; ux += 1 + ux/64 {
		want := math.Exp(-float64(ux)/expUnit) * (1 << 32)
		if got := float64(negExp(ux)); math.Abs(got-want) > 2 {
			t.Fatalf("exp(-%d/1e6)·2^32 = %.0f, want %.1f", ux, got, want)
		}
	}
	for _, ux := range []uint64{1 << expBits, 1<<expBits + 1, math.MaxUint64} {
		if negExp(ux) != 0 {
			t.Errorf("exp(-%d/1e6) is not 0", ux)
		}
	}
}

// rtts is a round's least and largest RTT in µs, and what the module must make of them: the windows' sums and the gradient.
type rtts struct {
	min, max   uint32
	gmin, gmax int64
	grad       int64
}

// The gradients of exact sequences, by hand: sums of differences over the window, extrapolated until it has filled.
func TestGradients(t *testing.T) {
	for name, c := range map[string]struct {
		window string
		rounds []rtts
	}{
		"rising": {"4", []rtts{
			{1000, 2000, 0, 0, 0},            // nothing before
			{1010, 2030, 10, 30, 10 * 4},     // 1 of 4 rounds: ·4/1
			{1020, 2060, 20, 60, 20 * 4 / 2}, //
			{1040, 2060, 40, 60, 40 * 4 / 3},
			{1050, 2060, 50, 60, 50}, // filled
			{1060, 2060, 50, 30, 50}, // the first gradients, 10 and 30, leave
			{1060, 2060, 40, 0, 40},
			{1060, 2060, 20, 0, 20},
			{1060, 2060, 10, 0, 10},
			{1060, 2060, 0, 0, 0},
		}},
		"the maximum counts when the minimum does not grow": {"2", []rtts{
			{1000, 1500, 0, 0, 0},
			{1000, 1600, 0, 100, 200},
			{900, 1700, -100, 200, 200},
			{900, 1600, -100, 0, 0},
			{900, 1500, 0, -200, -200},
		}},
		"window of one": {"1", []rtts{
			{1000, 1000, 0, 0, 0},
			{1100, 1200, 100, 200, 100},
			{1000, 1300, -100, 100, 100},
		}},
	} {
		m, err := configure(plugins.Params{"window": c.window}, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &state{}
		for i, r := range c.rounds {
			s.rtt = span{r.min, r.max}
			grad := m.endRound(s, &cong.Sample{})
			if s.sum != (gradient{r.gmin, r.gmax}) || grad != r.grad {
				t.Errorf("%s, round %d: sums %+v, gradient %d, want %+v", name, i, s.sum, grad, r)
			}
		}
	}
}

// Facts 2.2: P(back-off) = 1 - exp(-Σ·42e-6), Σ the sum of gradients in µs.
func TestBackoffProbability(t *testing.T) {
	m, _ := configure(plugins.Params{"use_ineff": "0"}, 0)
	for _, grad := range []uint64{10, 1000, 5000, 24_000, 60_000} {
		s := &state{rand: rng.Rand(grad)}
		const draws = 40_000
		n := 0
		for range draws {
			out := &cong.Decision{Cwnd: 100 * mss}
			if m.backOff(s, &cong.Sample{}, out, grad, mss) {
				n++
			}
		}
		p := 1 - math.Exp(-float64(grad)*42e-6)
		sigma := math.Sqrt(draws * p * (1 - p))
		if math.Abs(float64(n)-draws*p) > 4*sigma+1 {
			t.Errorf("gradient %d: %d back-offs of %d, want %.0f ± %.0f", grad, n, draws, draws*p, 4*sigma)
		}
	}
}

// certain is a gradient that always causes a back-off.
const certain = 1_000_000

func TestBackoff(t *testing.T) {
	m, _ := configure(nil, 0)
	s := &state{shadow: 80 * mss}
	out := &cong.Decision{Cwnd: 100 * mss, Ssthresh: 90 * mss}
	if !m.backOff(s, &cong.Sample{}, out, certain, mss) {
		t.Fatal("no back-off")
	}
	if want := uint32(100 * mss * 724 / 1024); out.Cwnd != want || out.Ssthresh != want {
		t.Errorf("cwnd %d, ssthresh %d, want %d", out.Cwnd, out.Ssthresh, want)
	}
	if s.shadow != 100*mss || s.queue != backoff || s.total != 1 {
		t.Errorf("%+v", s)
	}
	out.Cwnd = 2 * mss
	if m.backOff(s, &cong.Sample{}, out, certain, mss); out.Cwnd != 2*mss {
		t.Errorf("floor: %d", out.Cwnd)
	}
}

// After 5 back-offs in a row delay is ignored until a sum of gradients falls to -32 µs.
func TestIneffectualBackoffs(t *testing.T) {
	m, _ := configure(nil, 0)
	s := &state{}
	try := func() bool {
		return m.backOff(s, &cong.Sample{}, &cong.Decision{Cwnd: 100 * mss}, certain, mss)
	}
	for i := range 10 {
		if got := try(); got != (i < 5) {
			t.Errorf("back-off %d: %v", i+1, got)
		}
	}
	s.prev = span{1000, 2000}
	s.rtt = span{1000, 1969}
	m.endRound(s, &cong.Sample{}) // -31: not yet
	if try() {
		t.Error("a gradient of -31 µs counts as an effect")
	}
	s.rtt = span{1000, 1968}
	m.endRound(s, &cong.Sample{}) // the sum is -32
	if !try() {
		t.Error("a gradient of -32 µs does not count as an effect")
	}
}

// A back-off is asked for until the engine reduces; its reduction is not taken for a loss.
func TestAsksUntilTheEngineReduces(t *testing.T) {
	h := hand(t, plugins.Params{"backoff_factor": "1000000", "hystart_detect": "0"})
	h.Ssthresh = 10 * mss
	h.Cwnd = 100 * mss
	h.Send(cong.KindResume)
	var d cong.Decision
	for i := range 10 {
		h.RTT = 100*time.Millisecond + time.Duration(i)*time.Millisecond
		if d = h.Ack(h.Cwnd, cong.FlagRTTValid|cong.FlagSacked); d.Flags&cong.EnterCWR != 0 {
			break
		}
	}
	want := d.Ssthresh
	if d.Flags != cong.EnterCWR|cong.WantsPRR || d.Cwnd != want {
		t.Fatalf("no back-off: %+v", d)
	}
	for range 3 { // the engine has not seen it yet
		h.InFlight = 200 * mss
		if d = h.Ack(mss, 0); d.Flags&cong.EnterCWR == 0 || d.Cwnd != want {
			t.Fatalf("not asked again: %+v", d)
		}
	}
	if d = h.Enter(cong.CACWR, 0); d.Flags&cong.EnterCWR != 0 || d.Ssthresh != want || d.Cwnd != want {
		t.Fatalf("the engine reduces: %+v", d)
	}
	if d = h.Exit(0); d.Cwnd != want || d.Ssthresh != want || d.Flags&cong.EnterCWR != 0 {
		t.Fatalf("the engine has reduced: %+v", d)
	}
}

// An engine that does not reduce is not asked for ever.
func TestStopsAsking(t *testing.T) {
	h := hand(t, plugins.Params{"backoff_factor": "1000000", "hystart_detect": "0"})
	h.Ssthresh, h.Cwnd = 10*mss, 100*mss
	h.Send(cong.KindResume)
	asked := 0
	for i := range 60 {
		h.RTT = 100*time.Millisecond + time.Duration(min(i, 3))*time.Millisecond
		if d := h.Ack(h.Cwnd, cong.FlagRTTValid|cong.FlagSacked); d.Flags&cong.EnterCWR != 0 {
			asked++
		} else if asked > 0 {
			break
		}
	}
	if asked < 2 || asked > 2*askRounds {
		t.Errorf("asked %d times", asked)
	}
}

// A loss halves the shadow window, and leaves the larger of it and half the window, at most the window.
func TestLossAndShadowWindow(t *testing.T) {
	for _, c := range []struct {
		cwnd, shadow uint32
		use          string
		want, after  uint32 // ssthresh, shadow window
	}{
		{100, 100, "true", 50, 50},
		{60, 100, "true", 50, 50},  // backed off for delay before: regains
		{40, 100, "true", 40, 40},  // at most the window
		{60, 100, "false", 30, 50}, // without the shadow window
		{3, 3, "true", 2, 1},       // at least 2 segments
	} {
		m, _ := configure(plugins.Params{"use_shadow": c.use}, 0)
		s := &state{shadow: c.shadow * mss}
		out := &cong.Decision{Cwnd: c.cwnd * mss}
		if m.loss(s, out, mss); out.Ssthresh != c.want*mss || out.Cwnd != c.want*mss || s.shadow/mss != c.after {
			t.Errorf("%+v: ssthresh %d, shadow %d", c, out.Ssthresh, s.shadow)
		}
	}
}

// Facts 2.1 and 2.2: the queue is full when the minimum grows and the maximum does not; sums below 32 µs are taken as 0.
func TestQueueStateAndTolerance(t *testing.T) {
	for _, c := range []struct {
		gmin, gmax int64
		want       queueState
	}{
		{100, 0, full}, {100, -100, full}, {100, 31, full}, {100, 32, nonFull}, {100, 100, nonFull},
		{0, -100, nonFull}, {-100, -100, nonFull}, {31, 0, unknown}, {0, 0, unknown}, {0, 100, unknown}, {-100, -31, unknown},
	} {
		s := &state{sum: gradient{c.gmin, c.gmax}}
		if s.judgeQueue(); s.queue != c.want {
			t.Errorf("%d, %d: %s, want %s", c.gmin, c.gmax, queueNames[s.queue], queueNames[c.want])
		}
	}
	for tolerance, want := range map[string]uint32{"true": 100, "false": 50} {
		m, _ := configure(plugins.Params{"use_tolerance": tolerance}, 0)
		out := &cong.Decision{Cwnd: 100 * mss}
		if m.loss(&state{queue: nonFull, shadow: 100 * mss}, out, mss); out.Ssthresh != want*mss {
			t.Errorf("tolerance %s: a loss with the queue not full leaves %d", tolerance, out.Ssthresh)
		}
		out = &cong.Decision{Cwnd: 100 * mss}
		if m.loss(&state{queue: full, shadow: 100 * mss}, out, mss); out.Ssthresh != 50*mss {
			t.Errorf("tolerance %s: a loss with the queue full leaves %d", tolerance, out.Ssthresh)
		}
	}
}

// The filter for delayed acknowledgements.
func TestDelayedAckFilter(t *testing.T) {
	s := &state{}
	take := func(rtt, acked uint32, flags uint16) span {
		s.takeRTT(rtt, &cong.Sample{Acked: acked, Flags: flags}, mss)
		return s.rtt
	}
	for i, c := range []struct {
		rtt, acked uint32
		flags      uint16
		want       span
		delack     uint8
	}{
		{100, mss, 0, span{100, 100}, 0},                  // no evidence yet
		{120, 2 * mss, 0, span{100, 120}, 1},              // covers two
		{160, mss, 0, span{100, 120}, 0},                  // may be delayed: does not raise the maximum
		{90, 2 * mss, 0, span{90, 120}, 1},                //
		{80, mss, 0, span{80, 120}, 0},                    // but it may lower the minimum
		{200, 2 * mss, cong.FlagSacked, span{80, 200}, 0}, // out of order: no evidence
	} {
		if got := take(c.rtt, c.acked, c.flags); got != c.want || s.delack != c.delack {
			t.Errorf("step %d: %+v, delack %d, want %+v, %d", i, got, s.delack, c.want, c.delack)
		}
	}
	for range 9 {
		take(100, 3*mss, 0)
	}
	if s.delack != 5 {
		t.Errorf("evidence %d, want 5 at most", s.delack)
	}
	s.rtt = span{}
	if got := take(100, mss, 0); got != (span{}) {
		t.Errorf("a delayed acknowledgement begins a round: %+v", got)
	}
}

// The gradients of a reduction are skipped: the round that ends with it is only the next one's reference.
func TestCompleteCWR(t *testing.T) {
	s := &state{queue: backoff, rtt: span{5, 6}, prev: span{1, 2}}
	s.completeCWR(&cong.Sample{Delivered: 100, InFlight: 7})
	if s.queue != unknown || s.prev != (span{5, 6}) || s.rtt != (span{}) || s.roundEnd != 107 || s.sum != (gradient{}) {
		t.Errorf("%+v", s)
	}
}

// After a take-over the first round's RTTs are those of the other algorithm's sending: gradients begin a round later.
func TestResumeSkipsForeignRound(t *testing.T) {
	for kind, want := range map[uint8][]int32{
		cong.KindOpen:   {0, 1000, 2000, 3000},
		cong.KindResume: {0, 0, 1000, 2000},
	} {
		h := hand(t, plugins.Params{"backoff_factor": "1", "hystart_detect": "0"})
		h.Ssthresh, h.Cwnd = 10*mss, 100*mss
		h.Send(kind)
		var sums []int32
		for i := range want {
			h.RTT = 100*time.Millisecond + time.Duration(i)*time.Millisecond
			d := h.Ack(h.Cwnd+mss, cong.FlagRTTValid|cong.FlagSacked)
			sums = append(sums, int32(d.Aux[0]))
		}
		if !slices.Equal(sums, want) {
			t.Errorf("kind %d: sums %v, want %v", kind, sums, want)
		}
	}
}

// The shadow window grows as the window does, and shrinks to a window that is not used.
func TestShadowFollows(t *testing.T) {
	h := hand(t, plugins.Params{"hystart_detect": "0"})
	h.Send(cong.KindOpen)
	shadow := func(d cong.Decision) uint32 { return uint32(d.Aux[1]) }
	if d := h.Ack(10*mss, 0); d.Cwnd != 20*mss || shadow(d) != 20*mss {
		t.Errorf("slow start: cwnd %d, shadow %d", d.Cwnd, shadow(d))
	}
	m, _ := configure(nil, 0)
	s := &state{shadow: 50 * mss}
	out := &cong.Decision{Cwnd: 30 * mss, Ssthresh: 20 * mss}
	m.avoid(s, &cong.Sample{Acked: 30 * mss, Flags: cong.FlagCwndLimited}, out, mss)
	if out.Cwnd != 31*mss || s.shadow != 51*mss {
		t.Errorf("congestion avoidance: cwnd %d, shadow %d", out.Cwnd, s.shadow)
	}
	m.avoid(s, &cong.Sample{Acked: 30 * mss}, out, mss)
	if out.Cwnd != 31*mss || s.shadow != 31*mss {
		t.Errorf("unused: cwnd %d, shadow %d", out.Cwnd, s.shadow)
	}
}

// In a loss episode the engine does not enter CWR, so there is no back-off.
func TestNoBackoffInLoss(t *testing.T) {
	for ca, want := range map[uint8]bool{cong.CAOpen: true, cong.CADisorder: true, cong.CALoss: false} {
		m, _ := configure(plugins.Params{"backoff_factor": "1000000", "hystart_detect": "0"}, 0)
		s := &state{rtt: span{2000, 3000}, prev: span{1000, 1000}}
		out := &cong.Decision{Cwnd: 30 * mss, Ssthresh: 20 * mss}
		m.avoid(s, &cong.Sample{CA: ca, Acked: mss, Delivered: 1, Flags: cong.FlagCwndLimited}, out, mss)
		if got := s.asked > 0; got != want {
			t.Errorf("state %d: backs off: %v", ca, got)
		}
	}
}

func TestUndo(t *testing.T) {
	h := hand(t, nil)
	h.Ssthresh, h.Cwnd = 80*mss, 100*mss
	h.Send(cong.KindResume)
	if d := h.Enter(cong.CARecovery, 0); d.Ssthresh != 50*mss {
		t.Fatalf("loss: %+v", d)
	}
	if d := h.Exit(cong.FlagUndo); d.Cwnd != 100*mss || d.Ssthresh != 80*mss {
		t.Errorf("undo: %+v", d)
	}
}

func TestIdleForgetsGradients(t *testing.T) {
	h := hand(t, plugins.Params{"backoff_factor": "1"})
	h.Ssthresh, h.Cwnd = 10*mss, 100*mss
	h.Send(cong.KindResume)
	var d cong.Decision
	for i := range 5 {
		h.RTT = 100*time.Millisecond + time.Duration(i)*time.Millisecond
		d = h.Ack(h.Cwnd, cong.FlagRTTValid|cong.FlagSacked)
	}
	if d.Aux[0] == 0 {
		t.Fatal("no gradients")
	}
	h.InFlight = 0
	h.Now = h.Now.Add(200 * time.Millisecond)
	if d = h.Send(cong.KindRestart); d.Aux[0] == 0 {
		t.Error("a short idle time forgets the gradients")
	}
	h.Now = h.Now.Add(10 * time.Second)
	if d = h.Send(cong.KindRestart); d.Aux[0] != 0 || d.Cwnd != 10*mss || uint32(d.Aux[1]) != 10*mss {
		t.Errorf("after idle: cwnd %d, %s", d.Cwnd, Describe(d.Aux, &d))
	}
}

func TestDescribe(t *testing.T) {
	s := state{sum: gradient{-5, 77}, shadow: 12345, total: 9, backoffs: 2, queue: nonFull}
	var d cong.Decision
	s.publish(&d)
	if got, want := Describe(d.Aux, &d), "cdg:(gmin:-5,gmax:77,queue:NONFULL,backoffs:9,ineff:2,shadow:12345)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

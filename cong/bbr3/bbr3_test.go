package bbr3

import (
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

func TestParams(t *testing.T) {
	for _, p := range []plugins.Params{{"startup_gain": "100"}, {"drain_gain": "0"}, {"down_gain": "101"}, {"up_gain": "100"}, {"cwnd_gain": "99"},
		{"up_cwnd_gain": "0"}, {"probe_rtt_cwnd_gain": "101"}, {"loss_thresh": "51"}, {"beta": "100"}, {"headroom": "51"}, {"startup_loss_ranges": "0"},
		{"min_rtt_win_sec": "0"}, {"probe_rtt_interval_ms": "1"}, {"probe_rtt_mode_ms": "0"}, {"probe_wait_ms": "0"}, {"probe_wait_rand_ms": "-1"},
		{"pacing_margin_percent": "51"}, {"ecn_max_rtt_us": "x"}, {"gain": "1"}} {
		_, err := New(p, 0)
		for name := range p {
			if err == nil || !strings.Contains(err.Error(), "bbr3: "+name) {
				t.Errorf("%v: error %v", p, err)
			}
		}
	}
}

func defaults(t testing.TB) *module {
	m, err := newModule(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Facts 1.3: the constants.
func TestConstants(t *testing.T) {
	want := module{seed: 1, startupGain: 277, drainGain: 50, downGain: 90, upGain: 125, cwndGain: 200, upCwndGain: 225, probeRTTGain: 50,
		lossThresh: 2, beta: 70, headroom: 15, startupLossRanges: 6, minRTTWin: 10 * time.Second, probeRTTInterval: 5 * time.Second,
		probeRTT: 200 * time.Millisecond, probeWait: 2 * time.Second, probeWaitRand: time.Second, marginPercent: 99, ecnMaxRTT: 5 * time.Millisecond}
	if m := defaults(t); *m != want {
		t.Errorf("%+v", *m)
	}
}

// The first rate is 2.77 windows per RTT, of 1 ms while that is not known.
func TestInitialRate(t *testing.T) {
	h := congtest.NewHand(t, make3(t, nil, 0), mss)
	if d := h.Send(cong.KindOpen); d.Rate != 10*mss*1000*277/100 || modeOf(&d) != startup || d.Flags&cong.WantsPRR != 0 {
		t.Errorf("%+v", d)
	}
	h.SRTT = 100 * time.Millisecond
	if d := h.Ack(0, 0); d.Rate != 10*mss*10*277/100 {
		t.Errorf("with an RTT: %d", d.Rate)
	}
}

// Quantum: 1 ms of the rate within 2 segments and 64 KB. The window has room for three, for 4 segments, and for 2 more in UP.
func TestQuantize(t *testing.T) {
	for rate, want := range map[uint64]uint32{1: 2 * mss, 12_500_000: 12_500, 1 << 40: 64 << 10} {
		if got := quantum(rate, mss); got != want {
			t.Errorf("quantum at %d: %d, want %d", rate, got, want)
		}
	}
	m, s, out := defaults(t), &state{minRTT: rtt100}, &cong.Decision{Rate: 12_500_000}
	for _, c := range []struct {
		bytes uint64
		mode  mode
		want  uint32
	}{{0, cruise, 37_500}, {40_000, cruise, 40_000}, {40_000, up, 40_000 + 2*mss}, {1 << 40, up, 1 << 30}} {
		s.mode = c.mode
		if got := m.quantize(s, out, c.bytes, mss); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if got := m.bdp(s, rate100, 50, mss); got != bdp100/2 {
		t.Errorf("half the BDP: %d", got)
	}
	s.minRTT = 0
	if got := m.bdp(s, rate100, 100, mss); got != 10*mss {
		t.Errorf("BDP without an RTT: %d", got)
	}
}

// Headroom: 15 % of the bound, a segment at least; never below 4 segments.
func TestHeadroom(t *testing.T) {
	m := defaults(t)
	for bound, want := range map[uint32]uint32{unset: unset, 1_000_000: 850_000, 6 * mss: 5 * mss, 4 * mss: 4 * mss} {
		if got := m.inflightWithHeadroom(&state{inflightLongTerm: bound}, mss); got != want {
			t.Errorf("of %d: %d, want %d", bound, got, want)
		}
	}
}

// The bound rises by 1, 2, 4, 8 … segments per round trip of UP.
func TestRaiseSlope(t *testing.T) {
	m := defaults(t)
	const cwnd = 64 * mss
	s := &state{mode: up, rate: 1, inflightLongTerm: cwnd}
	out := &cong.Decision{Cwnd: cwnd}
	s.raiseSlope(out, mss)
	in := &cong.Sample{Flags: cong.FlagCwndLimited, Acked: cwnd}
	for _, want := range []uint32{1, 2, 4, 8, 16, 32, 64, 64} {
		s.inflightLongTerm = cwnd
		s.roundStart = true
		if m.probeUpward(s, in, out, mss); s.inflightLongTerm-cwnd != want*mss {
			t.Errorf("raised by %d segments, want %d", (s.inflightLongTerm-cwnd)/mss, want)
		}
	}
	in.Flags, s.inflightLongTerm = 0, cwnd
	if m.probeUpward(s, in, out, mss); s.inflightLongTerm != cwnd {
		t.Error("raised without being limited by the window")
	}
	in.Flags, s.inflightLongTerm = cong.FlagCwndLimited, cwnd+1
	if m.probeUpward(s, in, out, mss); s.inflightLongTerm != cwnd+1 {
		t.Error("raised with a window below the bound")
	}
}

// Facts 1.4: the volume at which the lost share passed 2 %: of 100 in flight 10 lost, 9 of them in the last range of 10: before it
// (0.02·90 - 0)/0.98 = 1.83 of the range could be lost.
func TestInflightAtLoss(t *testing.T) {
	m := defaults(t)
	for _, c := range []struct{ flight, since, size, want uint32 }{
		{100_000, 10_000, 10_000, 91_836}, {100_000, 3_000, 1_000, 98_980}, {1_000, 1_000, 1_000, 0}, {500, 2_000, 1_000, 0},
	} {
		got := m.inflightAtLoss(&cong.Sample{TxInFlight: c.flight, LostSinceSend: c.since, Lost: c.size})
		if got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestLossTooHigh(t *testing.T) {
	m := defaults(t)
	for _, c := range []struct {
		lost  uint32
		flags uint16
		want  bool
	}{{2000, 0, false}, {2001, 0, true}, {1, cong.FlagNoSACK, true}, {0, cong.FlagNoSACK, false}} {
		if got := m.lossTooHigh(&cong.Sample{TxInFlight: 100_000, LostSinceSend: c.lost, Flags: c.flags}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A flow probes after 2 to 3 s, or after as many round trips as its window has segments, 62 or 63 at most.
func TestTimeToProbe(t *testing.T) {
	m := defaults(t)
	s := &state{rand: 1, minRTT: rtt100, bw: rate100}
	out := &cong.Decision{Cwnd: 1 << 30}
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		m.startDown(s, &cong.Sample{})
		least, most = min(least, s.probe.wait), max(most, s.probe.wait)
		if s.probe.roundsSinceUp > 1 {
			t.Fatalf("starts at round %d", s.probe.roundsSinceUp)
		}
	}
	if least < 2*time.Second || least > 2100*time.Millisecond || most < 2900*time.Millisecond || most > 3*time.Second {
		t.Errorf("waits from %v to %v", least, most)
	}
	for _, c := range []struct {
		after  time.Duration
		rounds uint32
		cwnd   uint32
		want   bool
	}{{s.probe.wait, 62, 1 << 30, false}, {s.probe.wait + 1, 0, 1 << 30, true}, {0, 63, 1 << 30, true}, {0, 9, 10 * mss, false}, {0, 10, 10 * mss, true}} {
		s.probe.roundsSinceUp, out.Cwnd = c.rounds, c.cwnd
		if got := m.timeToProbe(s, &cong.Sample{Now: plugins.Time(c.after)}, out, mss); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// DOWN ends in CRUISE when both the headroom is free and the queue is gone; in REFILL when the wait is over before.
func TestDownEnds(t *testing.T) {
	m := defaults(t)
	for _, c := range []struct {
		inFlight, longTerm uint32
		waited             bool
		want               mode
	}{
		{bdp100, unset, false, cruise}, {bdp100 + 1, unset, false, down},
		{bdp100, bdp100, false, down}, {bdp100 * 85 / 100, bdp100, false, cruise},
		{bdp100 + 1, 2 * bdp100, false, down}, {bdp100 + 1, unset, true, refill},
	} {
		s := &state{mode: down, full: fullPipe{reached: true}, minRTT: rtt100, bw: rate100, inflightLongTerm: c.longTerm}
		s.maxBW[1] = rate100
		s.probe.wait = time.Second
		in := &cong.Sample{InFlight: c.inFlight}
		if c.waited {
			in.Now = plugins.Time(time.Second + 1)
		}
		if m.updateCycle(s, in, &cong.Decision{Cwnd: bdp100, Rate: rate100}, mss); s.mode != c.want {
			t.Errorf("%+v: %s", c, modeNames[s.mode])
		}
	}
}

// Facts 1.4: time-to-go-down.
func TestUpEnds(t *testing.T) {
	m := defaults(t)
	out := &cong.Decision{Cwnd: bdp100}
	s := &state{mode: up, inflightLongTerm: bdp100, full: fullPipe{now: true, count: 3}}
	if !m.timeToGoDown(s, &cong.Sample{}, out) {
		t.Error("a full pipe does not end UP")
	}
	if m.timeToGoDown(s, &cong.Sample{Flags: cong.FlagCwndLimited}, out) || s.full.now || s.full.count != 0 {
		t.Error("a flow that its bound limits takes the pipe for full")
	}
	s.probe.tooHigh = true
	if !m.timeToGoDown(s, &cong.Sample{InFlight: bdp100}, out) || !s.probe.precautionary {
		t.Error("the bound of the probe before does not end UP")
	}
}

// live is a flow in PROBE_BW: 12.5 MB/s, 100 ms.
func live(t *testing.T) *congtest.Hand {
	h := congtest.NewHand(t, make3(t, nil, 1), mss)
	h.SRTT, h.MinRTT = rtt100, rtt100
	h.Cwnd, h.Ssthresh, h.InFlight = 1728*mss, 888*mss, 864*mss
	h.Delivered, h.PriorDelivered, h.Interval = 101_250_000, 100_000_000, rtt100
	if d := h.Send(cong.KindResume); modeOf(&d) != down || bwOf(&d) != rate100 || pacingGainOf(&d) != 90 {
		t.Fatalf("resume: %s", Describe(d.Aux, &d))
	}
	ack(h, 10*mss)
	return h
}

// ack sends a valid rate sample of the path's rate, for a packet sent a BDP before.
func ack(h *congtest.Hand, n uint32) cong.Decision {
	h.Now = h.Now.Add(time.Duration(n) * time.Second / rate100)
	h.Delivered += uint64(n)
	h.PriorDelivered, h.Interval, h.TxInFlight, h.LostSinceSend = h.Delivered-bdp100, rtt100, bdp100, 0
	h.Acked = n
	h.Flags |= cong.FlagRateValid
	return h.Send(cong.KindAck)
}

// lose sends a lost range of n bytes.
func lose(h *congtest.Hand, n uint32) cong.Decision {
	h.Lost, h.TxInFlight, h.LostSinceSend = n, bdp100, n
	return h.Send(cong.KindLost)
}

// A.18, A.19 (draft-ietf-ccwg-bbr-06): losses in CRUISE and DOWN lower the short-term bounds by 30 % per round at most; a spurious recovery and a spurious timeout
// restore bounds and window.
func TestSpuriousRestores(t *testing.T) {
	for _, timeout := range []bool{false, true} {
		h := live(t)
		prior := h.Cwnd
		lose(h, 20*mss)
		if timeout {
			if d := h.Timeout(); d.Cwnd != mss {
				t.Fatalf("window of %d at a timeout", d.Cwnd)
			}
			h.InFlight = 4 * mss
		} else {
			h.CA, h.Flags = cong.CARecovery, cong.FlagEnter
			ack(h, 2*mss)
		}
		var d cong.Decision
		acks := 70 // a round and more
		if timeout {
			acks = 10 // slow start
		}
		for range acks {
			d = ack(h, 20*mss)
		}
		if !timeout && shortTermOf(&d) == 0 || h.Cwnd > prior*8/10 {
			t.Errorf("timeout %v: %s, window %d, before %d", timeout, Describe(d.Aux, &d), h.Cwnd, prior)
		}
		h.CA, h.Flags = cong.CAOpen, cong.FlagExit|cong.FlagUndo
		if d = ack(h, 2*mss); shortTermOf(&d) != 0 || h.Cwnd < prior {
			t.Errorf("timeout %v, undone: %s, window %d, before %d", timeout, Describe(d.Aux, &d), h.Cwnd, prior)
		}
	}
}

// A real recovery ends with the window of before, within the bounds that the loss set.
func TestRecoveryEnds(t *testing.T) {
	h := live(t)
	lose(h, 20*mss)
	h.CA, h.Flags = cong.CARecovery, cong.FlagEnter
	for range 70 {
		ack(h, 20*mss)
	}
	h.CA, h.Flags = cong.CAOpen, cong.FlagExit
	if d := ack(h, 2*mss); shortTermOf(&d) == 0 || uint64(h.Cwnd) > shortTermOf(&d) {
		t.Errorf("window %d: %s", h.Cwnd, Describe(d.Aux, &d))
	}
}

// A.18, A.19: a spurious loss that ended STARTUP or UP leads back to it.
func TestSpuriousGoesBack(t *testing.T) {
	m := defaults(t)
	for _, c := range []struct{ left, now, want mode }{
		{startup, drain, startup}, {startup, probeRTT, probeRTT}, {up, down, refill}, {up, cruise, refill}, {up, probeRTT, probeRTT},
	} {
		s := &state{mode: c.now, full: fullPipe{reached: true}, inflightLongTerm: 5}
		s.undo = undoState{valid: true, left: true, mode: c.left, inflightLongTerm: unset}
		m.spurious(s, &cong.Sample{}, &cong.Decision{})
		if s.mode != c.want || s.full.reached != (c.left != startup) || s.inflightLongTerm != unset || s.undo.valid {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// Restart after idle paces at the bandwidth, whatever the phase.
func TestIdleRestart(t *testing.T) {
	h := live(t)
	h.Now = h.Now.Add(time.Second)
	h.InFlight = 0
	if d := h.Send(cong.KindRestart); d.Rate != rate100*99/100 {
		t.Errorf("rate %d", d.Rate)
	}
}

// Marks on a short path: alpha is their mean share with gain 1/16, and a round of CRUISE with marks cuts by alpha/3.
func TestAlpha(t *testing.T) {
	m := defaults(t)
	s := &state{mode: cruise, minRTT: time.Millisecond, inflightShortTerm: unset, bwShortTerm: unsetBW}
	out := &cong.Decision{Cwnd: 300_000}
	round := func(marked uint32) {
		s.roundStart, s.latest.roundStart = true, true
		m.updateMarks(s, &cong.Sample{Acked: 1600, Marked: marked})
		m.adaptShortTerm(s, out)
		s.ecn.inRound = false
	}
	round(1600)
	if s.ecn.alpha != alphaUnit || s.inflightShortTerm != 200_000 || s.bwShortTerm != unsetBW {
		t.Errorf("all marked: %+v, inflight_shortterm %d", s.ecn, s.inflightShortTerm)
	}
	round(0)
	if s.ecn.alpha != alphaUnit*15/16 || s.inflightShortTerm != 200_000 {
		t.Errorf("none marked: %+v, inflight_shortterm %d", s.ecn, s.inflightShortTerm)
	}
	round(400)
	if want := uint32(alphaUnit*15/16*15/16 + alphaUnit/4/16); s.ecn.alpha != want || s.inflightShortTerm != 140_364 { // 200 000·(1 - 0.8945/3)
		t.Errorf("a quarter marked: %+v, want %d, inflight_shortterm %d", s.ecn, want, s.inflightShortTerm)
	}
}

// A queue that marks: nothing is lost, the link is used, and the queue stays near the threshold, on short and on long paths.
func TestMarkingQueue(t *testing.T) {
	for _, rtt := range []time.Duration{2 * time.Millisecond, 40 * time.Millisecond} {
		bdp := uint64(rate100) * uint64(rtt) / uint64(time.Second)
		s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt, Buffer: 4*bdp + 200_000, MarkAbove: bdp/4 + 20_000}, make3(t, nil, 1))
		s.Run(3 * time.Second)
		d, marks := s.Delivered(), s.Stats.Marks
		queue := uint64(0)
		for range 1000 {
			s.Run(10 * time.Millisecond)
			queue += s.Queue() / 1000
		}
		t.Logf("RTT %v: %d ‰, mean queue %d of %d, %d marks", rtt, (s.Delivered()-d)*100/rate100, queue, bdp/4+20_000, s.Stats.Marks-marks)
		if s.Stats.Lost > 0 || s.Stats.Marks == marks || queue > bdp/4+20_000 {
			t.Errorf("RTT %v: %d lost, %d marks, mean queue %d", rtt, s.Stats.Lost, s.Stats.Marks-marks, queue)
		}
		if got := s.Delivered() - d; got < 10*rate100*85/100 {
			t.Errorf("RTT %v: %d bytes/s", rtt, got/10)
		}
	}
}

func TestDescribe(t *testing.T) {
	s := &state{mode: up, bw: rate100, minRTT: 40_500 * time.Microsecond, pacingGain: 125, cwndGain: 225, inflightLongTerm: 1 << 30, inflightShortTerm: unset}
	var d cong.Decision
	s.publish(&d)
	if got, want := Describe(d.Aux, &d), "bbr3:(bw:100000000bps,mrtt:40.5,pacing_gain:1.25,cwnd_gain:2.25,mode:PROBE_BW_UP,inflight_longterm:1073741824)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.inflightShortTerm, s.ecn.alpha = 5000, alphaUnit/4
	s.publish(&d)
	if got := Describe(d.Aux, &d); !strings.HasSuffix(got, ",inflight_shortterm:5000,ecn_alpha:0.25)") {
		t.Error(got)
	}
	if got := Describe([3]uint64{2: 15}, nil); !strings.Contains(got, "mode:?") {
		t.Error(got)
	}
}

// That a loss was spurious may turn out after recovery: then, too, the bounds of before it come back; but not those of an episode
// before the last.
func TestLateUndo(t *testing.T) {
	h := live(t)
	lose(h, 20*mss)
	h.CA, h.Flags = cong.CARecovery, cong.FlagEnter
	for range 70 {
		ack(h, 20*mss)
	}
	h.CA, h.Flags = cong.CAOpen, cong.FlagExit
	first := ack(h, 2*mss)
	lose(h, 20*mss)
	h.CA, h.Flags = cong.CARecovery, cong.FlagEnter
	for range 70 {
		ack(h, 20*mss)
	}
	h.CA, h.Flags = cong.CAOpen, cong.FlagExit
	ack(h, 2*mss)
	h.Flags = cong.FlagUndo
	if d := ack(h, 2*mss); shortTermOf(&first) == 0 || shortTermOf(&d) != shortTermOf(&first) {
		t.Errorf("undone: %s; after the first loss: %s", Describe(d.Aux, &d), Describe(first.Aux, &first))
	}
}

// Marks that end a probe, and STARTUP: on a short path rounds with half of their bytes marked, one or two in a row; on a long path,
// where a mark is a loss, a round with more than 2 % of them.
func TestMarksTooHigh(t *testing.T) {
	m := defaults(t)
	for _, c := range []struct {
		rtt                time.Duration
		marked             []uint32 // of 1000, per round
		tooHigh, startHigh bool
	}{
		{time.Millisecond, []uint32{499}, false, false}, {time.Millisecond, []uint32{500}, true, false},
		{time.Millisecond, []uint32{500, 500}, true, true}, {time.Millisecond, []uint32{500, 499, 500}, true, false},
		{20 * time.Millisecond, []uint32{20}, false, false}, {20 * time.Millisecond, []uint32{21}, true, true},
	} {
		s := &state{mode: up, minRTT: c.rtt}
		for _, marked := range c.marked {
			s.roundStart = true
			m.updateMarks(s, &cong.Sample{Acked: 1000, Marked: marked})
		}
		if s.ecn.tooHigh != c.tooHigh || s.ecn.startHigh != c.startHigh || s.latest.lossInRound != (c.rtt > m.ecnMaxRTT) {
			t.Errorf("%+v: %+v, as a loss: %v", c, s.ecn, s.latest.lossInRound)
		}
	}
	// The probe ends once, with the bound that it found.
	s := &state{mode: up, minRTT: time.Millisecond, bw: rate100, inflightLongTerm: unset, full: fullPipe{reached: true}}
	s.probe.sample, s.ecn.tooHigh = true, true
	in := &cong.Sample{TxInFlight: 30_000}
	if m.updateCycle(s, in, &cong.Decision{Cwnd: 40_000}, mss); s.mode != down || s.inflightLongTerm != 30_000 || s.probe.sample || !s.probe.tooHigh {
		t.Errorf("%+v", s)
	}
}

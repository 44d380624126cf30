package bbr

import (
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const mss = 1448

func newModule(t testing.TB, p plugins.Params, seed uint64) cong.Module {
	m, err := New(p, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func modeOf(d cong.Decision) mode       { return mode(d.Aux[2] & 0xff) }
func pacingGain(d cong.Decision) uint64 { return d.Aux[2] >> 8 & 0xffffff }

func within(t *testing.T, what string, got, want, permille uint64) {
	t.Helper()
	if d := max(got, want) - min(got, want); d*1000 > want*permille {
		t.Errorf("%s: %d, want %d ± %d ‰", what, got, want, permille)
	}
}

func TestParams(t *testing.T) {
	for _, p := range []plugins.Params{{"high_gain": "256"}, {"cwnd_gain": "0"}, {"bw_rtts": "1"}, {"min_rtt_win_sec": "0"},
		{"probe_rtt_mode_ms": "0"}, {"pacing_margin_percent": "51"}, {"extra_acked_gain": "-1"}, {"lt_bw": ""}, {"gain": "1"}} {
		_, err := New(p, 0)
		for name := range p {
			if err == nil || !strings.Contains(err.Error(), "bbr: "+name) {
				t.Errorf("%v: error %v", p, err)
			}
		}
	}
}

// Facts 1.2: drain gain 1/2.885 is 88/256.
func TestGains(t *testing.T) {
	m := &module{highGain: 739}
	if m.drainGain = unit * unit / m.highGain; m.drainGain != 88 {
		t.Errorf("drain gain %d/256, want 88", m.drainGain)
	}
}

// Pacing: gain × bw × 0.99; TSO goal 1 ms of it, 2 segments at least, 1 below 1.2 Mbit/s, 64 KB at most.
func TestPacingAndTSOGoal(t *testing.T) {
	m := &module{marginPercent: 99}
	for _, c := range []struct {
		bw   uint64
		gain uint32
		want uint64
	}{
		{100_000_000, 256, 99_000_000}, {100_000_000, 320, 123_750_000}, {1_000_000, 739, 2_857_851},
		{0, 256, 1}, {1, 256, 1}, {12_500_000_000_000, 739, 35_723_144_531_250}, // 100 Tbit/s: 64 bits hold
	} {
		if got := m.paced(c.bw, c.gain); got != c.want {
			t.Errorf("%d B/s × %d/256: %d, want %d", c.bw, c.gain, got, c.want)
		}
	}
	for rate, want := range map[uint64]uint32{1: 1, 149_999: 1, 150_000: 2, 3_000_000: 2, 12_500_000: 8, 125_000_000: 45, plugins.Unlimited: 45} {
		if got := tsoSegs(rate, mss); got != want {
			t.Errorf("TSO goal at %d B/s: %d segments, want %d", rate, got, want)
		}
	}
	if got := tsoSegs(1<<40, 88); got != 127 {
		t.Errorf("TSO goal of small segments: %d, want 127", got)
	}
}

// Facts 1.2: bdp = ⌈bw·min_rtt·gain⌉ segments, 10 before the RTT is known; quantize adds 3 TSO goals, rounds up to even, and
// adds 2 in the probing phase.
func TestQuantize(t *testing.T) {
	m := &module{}
	s := &state{}
	out := &cong.Decision{Rate: 12_500_000} // goal 8 segments
	if got := m.bdp(s, 1e9, unit, mss); got != 10*mss {
		t.Errorf("without an RTT: %d", got)
	}
	s.minRTT = 100 * time.Millisecond
	if got := m.bdp(s, 12_500_000, unit, mss); got != 864*mss { // 863.26
		t.Errorf("BDP %d segments, want 864", got/mss)
	}
	if got := m.bdp(s, 12_500_000, 2*unit, mss); got != 1727*mss {
		t.Errorf("twice the BDP %d segments, want 1727", got/mss)
	}
	if got := m.quantize(s, out, 864*mss, mss); got != 888*mss {
		t.Errorf("quantised: %d segments, want 888", got/mss)
	}
	if got := m.quantize(s, out, 863*mss, mss); got != 888*mss {
		t.Errorf("quantised odd: %d segments, want 888", got/mss)
	}
	s.mode = probeBW
	if got := m.quantize(s, out, 864*mss, mss); got != 890*mss {
		t.Errorf("quantised in the probing phase: %d segments, want 890", got/mss)
	}
}

// Init: high_gain × cwnd / srtt × 0.99, with 1 ms for an RTT that is not known; once it is, the same again.
func TestInitialRate(t *testing.T) {
	h := congtest.NewHand(t, newModule(t, nil, 0), mss)
	d := h.Send(cong.KindOpen)
	if want := uint64(10*mss*1000) * 739 * 99 / 25600; d.Rate != want || modeOf(d) != startup {
		t.Errorf("without an RTT: %d, want %d", d.Rate, want)
	}
	if d.Flags&cong.WantsPRR != 0 {
		t.Error("wants PRR")
	}
	h.SRTT = 100 * time.Millisecond
	h.InFlight = 10 * mss
	d = h.Ack(0, 0)
	if want := uint64(10*mss*10) * 739 * 99 / 25600; d.Rate != want {
		t.Errorf("with the first RTT: %d, want %d", d.Rate, want)
	}
	rate := d.Rate
	h.SRTT = 200 * time.Millisecond
	if d = h.Ack(0, 0); d.Rate != rate {
		t.Errorf("recomputed twice: %d", d.Rate)
	}
}

// The start phase of PROBE_BW is any but the draining one.
func TestCycleStart(t *testing.T) {
	m := &module{}
	var seen [cycleLen]int
	s := &state{rand: 1}
	for range 7000 {
		m.enterProbeBW(s)
		seen[s.cycle]++
	}
	for i, n := range seen {
		if i == 1 && n != 0 || i != 1 && (n < 850 || n > 1150) {
			t.Errorf("phase %d was first %d times of 7000", i, n)
		}
	}
}

// live is a flow in PROBE_BW: 12.5 MB/s, 100 ms.
func live(t *testing.T, m cong.Module) *congtest.Hand {
	h := congtest.NewHand(t, m, mss)
	h.SRTT, h.MinRTT = 100*time.Millisecond, 100*time.Millisecond
	h.Cwnd, h.Ssthresh, h.InFlight = 1728*mss, 888*mss, 864*mss
	h.Delivered, h.PriorDelivered, h.Interval = 101_250_000, 100_000_000, 100*time.Millisecond
	if d := h.Send(cong.KindResume); modeOf(d) != probeBW || d.Aux[0] != 12_500_000 {
		t.Fatalf("resume: %s", Describe(d.Aux, &d))
	}
	return h
}

// ack sends a valid rate sample of the path's rate.
func ack(h *congtest.Hand, n uint32, flags uint16) cong.Decision {
	h.Now = h.Now.Add(time.Duration(n) * time.Second / 12_500_000)
	h.Delivered += uint64(n)
	h.PriorDelivered, h.Interval = h.Delivered-1_250_000, 100*time.Millisecond
	h.Acked = n
	h.Flags = h.Flags | flags | cong.FlagRateValid
	return h.Send(cong.KindAck)
}

// Entering recovery: packet conservation for a round; leaving it: the prior window.
func TestRecovery(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	ack(h, 10*mss, 0)
	prior := h.Cwnd
	h.CA, h.InFlight, h.Lost = cong.CARecovery, 500*mss, 20*mss
	if d := ack(h, 2*mss, cong.FlagEnter); d.Cwnd != 502*mss {
		t.Errorf("entry: cwnd %d, want in flight + acked", d.Cwnd/mss)
	}
	h.InFlight = 505 * mss
	if d := ack(h, 3*mss, 0); d.Cwnd != 508*mss {
		t.Errorf("conservation: cwnd %d, want 508", d.Cwnd/mss)
	}
	h.PriorDelivered = h.Delivered // a packet sent in recovery: a round has passed
	h.Lost, h.Acked, h.Flags = 5*mss, 2*mss, cong.FlagRateValid
	h.Delivered += 2 * mss
	if d := h.Send(cong.KindAck); d.Cwnd != 505*mss { // 508 - 5 + 2
		t.Errorf("second round: cwnd %d, want 505", d.Cwnd/mss)
	}
	h.CA = cong.CAOpen
	if d := ack(h, mss, cong.FlagExit); d.Cwnd < prior {
		t.Errorf("exit: cwnd %d, was %d", d.Cwnd/mss, prior/mss)
	}
}

func TestTimeoutRestoresWindow(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	ack(h, 10*mss, 0)
	prior := h.Cwnd
	if d := h.Timeout(); d.Cwnd != mss {
		t.Fatalf("timeout: cwnd %d", d.Cwnd)
	}
	h.InFlight = mss
	if d := ack(h, mss, 0); d.Cwnd != minCwndSegs*mss {
		t.Errorf("first acknowledgement: cwnd %d, want the floor of 4 segments", d.Cwnd)
	}
	h.CA = cong.CAOpen
	if d := ack(h, mss, cong.FlagExit); d.Cwnd < prior || d.Aux[0] != 12_500_000 {
		t.Errorf("after the loss episode: cwnd %d, was %d; %s", d.Cwnd/mss, prior/mss, Describe(d.Aux, &d))
	}
}

// Idle restart: pace at the estimate in PROBE_BW, whatever the phase, until data is acknowledged.
func TestIdleRestart(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	for pacingGain(ack(h, 10*mss, 0)) != 320 {
	}
	h.Now = h.Now.Add(5 * time.Second)
	h.InFlight = 0
	if d := h.Send(cong.KindRestart); d.Rate != 12_375_000 {
		t.Errorf("rate %d after idle, want 0.99 of 12 500 000", d.Rate)
	}
}

// A.11 of the draft's appendix: PROBE_RTT is skipped when the flow comes back from idle: the queue is empty anyway.
func TestNoProbeRTTAfterIdle(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	ack(h, 10*mss, 0)
	h.Now = h.Now.Add(30 * time.Second)
	h.InFlight = 0
	h.Send(cong.KindRestart)
	h.RTT = 100 * time.Millisecond
	if d := ack(h, 2*mss, cong.FlagRTTValid); modeOf(d) != probeBW {
		t.Errorf("%s", Describe(d.Aux, &d))
	}
	// Without idle time it is not.
	h = live(t, newModule(t, nil, 1))
	h.Now = h.Now.Add(10*time.Second + 1)
	h.RTT = 120 * time.Millisecond
	d := ack(h, 2*mss, cong.FlagRTTValid)
	if modeOf(d) != probeRTT || d.Flags&cong.MarkAppLimited == 0 || d.Cwnd != 4*mss {
		t.Errorf("%s, cwnd %d", Describe(d.Aux, &d), d.Cwnd/mss)
	}
	if got := time.Duration(d.Aux[1]); got != 120*time.Millisecond {
		t.Errorf("expired minimum RTT not replaced: %v", got)
	}
}

func TestMinRTTFilter(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	for _, c := range []struct {
		rtt   time.Duration
		after time.Duration
		flags uint16
		want  time.Duration
	}{
		{99 * time.Millisecond, 0, 0, 99 * time.Millisecond},
		{101 * time.Millisecond, 0, 0, 99 * time.Millisecond},
		{98 * time.Millisecond, 0, cong.FlagAckDelayed, 98 * time.Millisecond},
		{110 * time.Millisecond, 11 * time.Second, cong.FlagAckDelayed, 98 * time.Millisecond}, // expired, but delayed
		{110 * time.Millisecond, 0, 0, 110 * time.Millisecond},
	} {
		h.Now = h.Now.Add(c.after)
		h.RTT = c.rtt
		if d := ack(h, mss, cong.FlagRTTValid|c.flags); time.Duration(d.Aux[1]) != c.want {
			t.Errorf("after %v: minimum %v, want %v", c.rtt, time.Duration(d.Aux[1]), c.want)
		}
	}
}

// A.22: a rate sample that the application limited does not lower the estimate, and one that is higher raises it.
func TestAppLimitedSamples(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	for range 100 {
		h.Now = h.Now.Add(100 * time.Millisecond)
		h.Delivered += 10 * mss
		h.PriorDelivered, h.Interval = h.Delivered-10*mss, 100*time.Millisecond
		h.Acked, h.Flags = 10*mss, cong.FlagRateValid|cong.FlagAppLimited
		h.Send(cong.KindAck)
	}
	d := ack(h, mss, cong.FlagAppLimited)
	if d.Aux[0] != 12_500_000 {
		t.Errorf("bandwidth %d after app-limited rounds", d.Aux[0])
	}
	h.Delivered += mss
	h.PriorDelivered, h.Interval = h.Delivered-2_500_000, 100*time.Millisecond
	h.Acked, h.Flags = mss, cong.FlagRateValid|cong.FlagAppLimited
	if d = h.Send(cong.KindAck); d.Aux[0] != 25_000_000 {
		t.Errorf("bandwidth %d, want the higher app-limited sample", d.Aux[0])
	}
}

// Resume: with a finite threshold PROBE_BW at the snapshot's rate, without one STARTUP from it.
func TestResume(t *testing.T) {
	h := live(t, newModule(t, nil, 1))
	if h.Cwnd != 1728*mss {
		t.Errorf("cwnd %d, want the snapshot's", h.Cwnd/mss)
	}
	h = congtest.NewHand(t, newModule(t, nil, 1), mss)
	h.SRTT, h.MinRTT = 100*time.Millisecond, 100*time.Millisecond
	h.Delivered, h.PriorDelivered, h.Interval = 1_250_000, 0, 100*time.Millisecond
	if d := h.Send(cong.KindResume); modeOf(d) != startup || d.Aux[0] != 12_500_000 || d.Rate != 12_500_000*739*99/25600 {
		t.Errorf("%s, rate %d", Describe(d.Aux, &d), d.Rate)
	}
	// No rate known: half a window per round trip.
	h = congtest.NewHand(t, newModule(t, nil, 1), mss)
	h.SRTT, h.MinRTT, h.Ssthresh = 100*time.Millisecond, 100*time.Millisecond, 20*mss
	if d := h.Send(cong.KindResume); modeOf(d) != probeBW || d.Aux[0] != 5*mss*10 {
		t.Errorf("%s", Describe(d.Aux, &d))
	}
}

func TestDescribe(t *testing.T) {
	aux := [3]uint64{808_528, uint64(145_200 * time.Microsecond), uint64(startup) | 739<<8 | 739<<32}
	want := "bbr:(bw:6468224bps,mrtt:145.2,pacing_gain:2.88672,cwnd_gain:2.88672,mode:STARTUP)"
	if got := Describe(aux, &cong.Decision{}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	aux = [3]uint64{1, uint64(time.Millisecond), uint64(probeBW) | 88<<8 | 512<<32}
	want = "bbr:(bw:8bps,mrtt:1,pacing_gain:0.34375,cwnd_gain:2,mode:PROBE_BW)"
	if got := Describe(aux, &cong.Decision{}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

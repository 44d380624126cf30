package bbr

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// The pipe is full after three rounds in which the bandwidth grew by less than a quarter; app-limited rounds and samples
// within a round do not count.
func TestFullPipe(t *testing.T) {
	m := &module{}
	s := &state{roundStart: true}
	step := func(bw uint64, flags uint16) (uint8, bool) {
		s.bw.reset(0, bw)
		m.checkFullPipe(s, &cong.Sample{Flags: flags})
		return s.fullCnt, s.pipeFull
	}
	for i, c := range []struct {
		bw    uint64
		flags uint16
		cnt   uint8
		full  bool
	}{
		{1000, 0, 0, false},
		{1249, 0, 1, false},
		{1250, 0, 0, false}, // exactly a quarter: the new base
		{1562, cong.FlagAppLimited, 0, false},
		{1561, 0, 1, false}, // 1250·1.25 = 1562.5
		{1561, 0, 2, false},
		{1562, 0, 0, false}, // the bound is rounded down
		{1562, 0, 1, false},
		{1562, 0, 2, false},
		{1562, 0, 3, true},
	} {
		if cnt, full := step(c.bw, c.flags); cnt != c.cnt || full != c.full {
			t.Errorf("step %d: %d rounds, full %v, want %d, %v", i, cnt, full, c.cnt, c.full)
		}
	}
	s = &state{}
	for range 5 {
		if cnt, _ := step(1, 0); cnt != 0 {
			t.Error("counts within a round")
		}
	}
}

// policed runs intervals of the given deliveries and losses, 5 rounds of 100 ms each.
func policed(m *module, s *state, delivered, lost uint64) {
	for i := range 5 {
		s.deliveredAt = s.deliveredAt.Add(100 * time.Millisecond)
		s.delivered += delivered / 5
		s.lost += lost / 5
		s.roundStart = true
		m.samplePolicer(s, i == 4, false)
	}
}

// Two intervals in a row with losses of 50/256 or more and rates within 1/8, or 500 B/s, are a policer.
func TestPolicerIntervals(t *testing.T) {
	for _, c := range []struct {
		first, second, lost uint64 // per 500 ms
		use                 bool
		bw                  uint64
	}{
		{500_000, 500_000, 100_000, true, 1_000_000},
		{500_000, 560_000, 120_000, true, 1_060_000}, // 12 %
		{500_000, 565_000, 120_000, false, 1_130_000},
		{500_000, 440_000, 120_000, true, 940_000},
		{500_000, 435_000, 120_000, false, 870_000},
		{500_000, 500_000, 97_000, false, 0}, // 19.4 % lost
		{500, 740, 200, true, 1240},          // 480 B/s apart
		{500, 760, 200, false, 1520},
	} {
		m := &module{detectPolicer: true}
		s := &state{}
		m.samplePolicer(s, true, false) // the first loss starts it
		policed(m, s, c.first, c.lost)
		policed(m, s, c.second, c.lost)
		if p := s.police; p.use != c.use || p.bw != c.bw {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

func TestPolicerIntervalLength(t *testing.T) {
	m := &module{detectPolicer: true}
	s := &state{}
	m.samplePolicer(s, true, false)
	for i := range 17 { // more than 16 rounds say nothing
		s.deliveredAt = s.deliveredAt.Add(100 * time.Millisecond)
		s.delivered += 1000
		s.roundStart = true
		if !s.police.sampling {
			t.Fatalf("gives up after %d rounds", i)
		}
		m.samplePolicer(s, false, false)
	}
	if s.police.sampling {
		t.Error("an interval of more than 16 rounds goes on")
	}
	m.samplePolicer(s, true, false)
	if m.samplePolicer(s, false, true); s.police.sampling {
		t.Error("an app-limited sample does not end the interval")
	}
}

// The rate is held for 48 rounds of PROBE_BW.
func TestPolicerUse(t *testing.T) {
	m := &module{detectPolicer: true}
	s := &state{mode: probeBW, roundStart: true, police: policer{use: true, bw: 1}}
	for i := range 48 {
		if !s.police.use {
			t.Fatalf("held for %d rounds", i)
		}
		m.samplePolicer(s, true, false)
	}
	if s.police.use || s.police.bw != 0 {
		t.Errorf("held for longer: %+v", s.police)
	}
}

// The allowance is what came beyond bandwidth × time in an epoch, the larger of two bins of 5 rounds, at most 100 ms worth.
func TestAggregationEstimate(t *testing.T) {
	m := &module{extraGain: unit}
	s := &state{rateValid: true, pipeFull: true}
	s.bw.reset(0, 1_000_000)
	out := &cong.Decision{Cwnd: 80_000}
	burst := func(after time.Duration, acked uint32, round bool) uint64 {
		s.deliveredAt = s.deliveredAt.Add(after)
		s.roundStart = round
		m.updateAggregation(s, &cong.Sample{Acked: acked}, out, 1000)
		return m.extraCwnd(s)
	}
	if got := burst(0, 30_000, false); got != 30_000 {
		t.Errorf("first burst: %d", got)
	}
	if got := burst(10*time.Millisecond, 15_000, false); got != 35_000 { // 45 000 in 10 ms
		t.Errorf("second burst: %d", got)
	}
	if got := burst(60*time.Millisecond, 1000, false); got != 35_000 { // a new epoch: 45 000 ≤ 70 000
		t.Errorf("after a pause: %d", got)
	}
	if s.extra.acked != 1000 {
		t.Errorf("epoch holds %d bytes", s.extra.acked)
	}
	for i := range 10 {
		got := burst(time.Second, 1000, true)
		if want := uint64(35_000); i < 8 && got != want {
			t.Errorf("round %d: %d, want %d", i+1, got, want)
		} else if i == 9 && got != 1000 {
			t.Errorf("round %d: %d, want it forgotten", i+1, got)
		}
	}
	if got := burst(0, 200_000, false); got != 80_000 { // at most the window
		t.Errorf("large burst: %d, want the window", got)
	}
	out.Cwnd = 1_000_000
	if got := burst(0, 200_000, false); got != 100_000 { // at most 100 ms
		t.Errorf("large burst: %d, want 100 ms worth", got)
	}
	s.pipeFull = false
	if got := m.extraCwnd(s); got != 0 {
		t.Errorf("before the pipe is full: %d", got)
	}
}

// Phases of PROBE_BW.
func TestPhaseOver(t *testing.T) {
	m := &module{}
	out := &cong.Decision{Rate: 1_000_000} // goal 2 segments: quantised BDP 100+6
	const short, long = 99 * time.Millisecond, 101 * time.Millisecond
	for _, c := range []struct {
		cycle    uint8
		elapsed  time.Duration
		inFlight uint32
		lost     uint32
		want     bool
	}{
		{2, short, 0, 0, false}, {2, 100 * time.Millisecond, 0, 0, false}, {2, long, 500, 0, true},
		{0, long, 100, 0, false},  // not filled to 1.25 BDP yet
		{0, long, 131, 0, false},  // 125+6 up to even, +2 = 134, less the next burst of 2 = 132
		{0, long, 132, 0, true},   //
		{0, short, 200, 9, false}, // not a round trip yet
		{0, long, 100, 1, true},   // losses: no more to be had
		{1, short, 107, 0, false}, // the queue is not drained
		{1, short, 106, 0, true}, {1, long, 200, 0, true},
	} {
		s := &state{mode: probeBW, cycle: c.cycle, pacingGain: cycleGains[c.cycle], minRTT: 100 * time.Millisecond}
		s.bw.reset(0, 1_000_000)
		s.deliveredAt = plugins.Time(c.elapsed)
		in := &cong.Sample{PriorInFlight: c.inFlight * 1000, Lost: c.lost}
		if got := m.phaseOver(s, in, out, 1000); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

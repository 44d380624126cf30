package bbr3

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const (
	maxProbeRounds = 63 // round trips after which a flow probes, whatever its window: Reno's, of 62 to 63 segments
	maxUpRounds    = 30
)

// probing is the state of PROBE_BW.
type probing struct {
	sample        bool // is_bw_probe_sample: acknowledgements tell of a probe
	tooHigh       bool // prev_probe_too_high
	precautionary bool // prev_probe_precautionary
	roundsSinceUp uint32
	upRounds      uint8
	upAcked       uint64
	upPerInc      uint32 // probe_up_acked_per_inc
	wait          time.Duration
	cycleStamp    plugins.Time
}

// startDown is BBRStartProbeBW_DOWN.
func (m *module) startDown(s *state, in *cong.Sample) {
	s.resetCongestionSignals()
	p := &s.probe
	p.upPerInc = unset
	// Random waits keep flows from probing in step.
	p.roundsSinceUp = s.rand.N(2)
	p.wait = m.probeWait + time.Duration(s.rand.N(uint32(m.probeWaitRand/time.Microsecond)+1))*time.Microsecond
	p.cycleStamp = in.Now
	s.ackPhase = acksProbeStopping
	s.startRound(in)
	s.mode, s.pacingGain, s.cwndGain = down, m.downGain, m.cwndGain
}

// startCruise is BBRStartProbeBW_CRUISE.
func (m *module) startCruise(s *state) {
	s.mode, s.pacingGain, s.cwndGain = cruise, percent, m.cwndGain
}

// startRefill is BBRStartProbeBW_REFILL.
func (m *module) startRefill(s *state, in *cong.Sample) {
	s.resetShortTerm()
	s.probe.upRounds, s.probe.upAcked = 0, 0
	s.probe.precautionary = false
	s.ackPhase = acksRefilling
	s.startRound(in)
	s.mode, s.pacingGain, s.cwndGain = refill, percent, m.cwndGain
}

// startUp is BBRStartProbeBW_UP.
func (m *module) startUp(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	s.ackPhase = acksProbeStarting
	s.startRound(in)
	s.full.reset(s.rate)
	s.mode, s.pacingGain, s.cwndGain = up, m.upGain, m.upCwndGain
	s.raiseSlope(out, mss)
}

// updateCycle is BBRUpdateProbeBWCyclePhase.
func (m *module) updateCycle(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if !s.full.reached {
		return
	}
	if m.adaptLongTerm(s, in, out, mss) {
		return
	}
	switch s.mode {
	case down:
		if m.timeToProbe(s, in, out, mss) {
			m.startRefill(s, in)
		} else if in.InFlight <= m.inflightWithHeadroom(s, mss) && in.InFlight <= m.inflight(s, out, s.filteredBW(), percent, mss) {
			m.startCruise(s)
		}
	case cruise:
		if m.timeToProbe(s, in, out, mss) {
			m.startRefill(s, in)
		}
	case refill:
		if s.roundStart {
			s.probe.sample = true
			m.startUp(s, in, out, mss)
		}
	case up:
		if m.timeToGoDown(s, in, out) {
			s.probe.tooHigh = false
			m.startDown(s, in)
		}
	}
}

// timeToProbe is BBRIsTimeToProbeBW: by the clock, or after as many round trips as Reno would need to regain its window.
func (m *module) timeToProbe(s *state, in *cong.Sample, out *cong.Decision, mss uint32) bool {
	return in.Now > s.probe.cycleStamp.Add(s.probe.wait) ||
		s.probe.roundsSinceUp >= min(max(m.targetInflight(s, out, mss)/mss, 1), maxProbeRounds)
}

// timeToGoDown is BBRIsTimeToGoDown.
func (m *module) timeToGoDown(s *state, in *cong.Sample, out *cong.Decision) bool {
	switch {
	case s.probe.tooHigh && in.InFlight >= s.inflightLongTerm:
		s.probe.precautionary = true
		return true
	case in.Has(cong.FlagCwndLimited) && out.Cwnd >= s.inflightLongTerm:
		s.full.reset(s.rate) // the bound, not the path, keeps the rate from growing
		return false
	}
	return s.full.now
}

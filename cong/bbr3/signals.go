package bbr3

import (
	"github.com/fastpath-tcp/fastpath/cong"
)

// signals are the figures of the last round, counted from the first loss of a round on.
type signals struct {
	bw             uint64 // bw_latest
	inflight       uint64 // inflight_latest
	roundDelivered uint64 // loss_round_delivered
	roundStart     bool   // loss_round_start
	lossInRound    bool
	lossRanges     uint32 // in this round
}

// updateRound is BBRUpdateRound.
func (s *state) updateRound(in *cong.Sample) {
	s.roundStart = false
	if s.rate > 0 && in.PriorDelivered >= s.nextRoundDelivered {
		s.startRound(in)
		s.rounds++
		s.probe.roundsSinceUp = min(s.probe.roundsSinceUp+1, maxProbeRounds)
		s.roundStart = true
	}
}

func (s *state) startRound(in *cong.Sample) { s.nextRoundDelivered = in.Delivered }

// updateLatestSignals is BBRUpdateLatestDeliverySignals.
func (s *state) updateLatestSignals(in *cong.Sample) {
	s.rate = min(in.Rate(), maxBW)
	if in.Delivered < in.PriorDelivered {
		s.rate = 0
	}
	l := &s.latest
	l.roundStart = false
	if s.rate == 0 {
		return
	}
	l.bw = max(l.bw, s.rate)
	l.inflight = max(l.inflight, in.Delivered-in.PriorDelivered)
	if in.PriorDelivered >= l.roundDelivered {
		l.roundDelivered = in.Delivered
		l.roundStart = true
	}
}

// advanceLatestSignals is BBRAdvanceLatestDeliverySignals.
func (s *state) advanceLatestSignals(in *cong.Sample) {
	if s.latest.roundStart {
		s.latest.bw, s.latest.inflight = s.rate, in.Delivered-in.PriorDelivered
		s.latest.lossRanges = 0
	}
}

// resetCongestionSignals is BBRResetCongestionSignals.
func (s *state) resetCongestionSignals() {
	s.latest.lossInRound, s.latest.bw, s.latest.inflight = false, 0, 0
	s.ecn.inRound = false
}

// updateCongestionSignals takes in the bandwidth, and lets what was lost or marked in a round lower the short-term bounds.
func (m *module) updateCongestionSignals(s *state, in *cong.Sample, out *cong.Decision) {
	s.updateRound(in)
	s.updateMaxBW(in)
	m.updateMarks(s, in)
	if !s.latest.roundStart {
		return
	}
	m.adaptShortTerm(s, out)
	s.latest.lossInRound, s.ecn.inRound = false, false
}

// updateMaxBW is BBRUpdateMaxBw. A rate that the application limited tells nothing, unless it is higher than what is believed.
func (s *state) updateMaxBW(in *cong.Sample) {
	if s.rate > 0 && (s.rate >= s.filteredBW() || !in.Has(cong.FlagAppLimited)) {
		s.maxBW[1] = max(s.maxBW[1], s.rate)
	}
}

func (s *state) filteredBW() uint64 { return max(s.maxBW[0], s.maxBW[1]) }

// advanceMaxBW begins a cycle of the filter; one without a sample is not passed on.
func (s *state) advanceMaxBW() {
	if s.maxBW[1] != 0 {
		s.maxBW[0], s.maxBW[1] = s.maxBW[1], 0
	}
}

func (s *state) boundBW() { s.bw = min(s.filteredBW(), s.bwShortTerm) }

// adaptShortTerm is BBRAdaptLowerBoundsFromCongestion: in a round with losses the bounds fall to what was delivered, but by 30 %
// at most. A flow that probes does not: it looks for the bound.
func (m *module) adaptShortTerm(s *state, out *cong.Decision) {
	if s.mode == startup || s.mode == refill || s.mode == up {
		return
	}
	if s.ecn.inRound && s.inflightShortTerm == unset {
		s.inflightShortTerm = out.Cwnd
	}
	if s.ecn.inRound {
		s.inflightShortTerm = m.cutByAlpha(s.inflightShortTerm, s.ecn.alpha)
	}
	if !s.latest.lossInRound {
		return
	}
	if s.bwShortTerm == unsetBW {
		s.bwShortTerm = s.filteredBW()
	}
	if s.inflightShortTerm == unset {
		s.inflightShortTerm = out.Cwnd
	}
	s.bwShortTerm = max(s.latest.bw, s.bwShortTerm*m.beta/percent)
	s.inflightShortTerm = uint32(min(max(s.latest.inflight, uint64(s.inflightShortTerm)*m.beta/percent), unset-1))
}

// resetShortTerm is BBRResetShortTermModel.
func (s *state) resetShortTerm() { s.bwShortTerm, s.inflightShortTerm = unsetBW, unset }

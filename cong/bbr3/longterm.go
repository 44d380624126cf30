package bbr3

import (
	"github.com/fastpath-tcp/fastpath/cong"
)

// adaptLongTerm is BBRAdaptLongTermModel. It tells whether it began a phase.
func (m *module) adaptLongTerm(s *state, in *cong.Sample, out *cong.Decision, mss uint32) bool {
	if s.ackPhase == acksProbeStarting && s.roundStart {
		s.ackPhase = acksProbeFeedback
	}
	if s.ackPhase == acksProbeStopping && s.roundStart {
		s.probe.sample = false
		s.ackPhase = acksInit
		if s.mode.probesBW() && !in.Has(cong.FlagAppLimited) {
			s.advanceMaxBW()
		}
		if s.mode.probesBW() && s.probe.precautionary && !s.probe.tooHigh {
			m.startRefill(s, in)
			return true
		}
	}
	if s.ecn.tooHigh && s.probe.sample {
		before := s.mode
		m.handleTooHigh(s, in, out, in.TxInFlight, mss)
		return s.mode != before
	}
	if s.rate == 0 || m.lossTooHigh(in) || s.ecn.tooHigh || s.inflightLongTerm == unset {
		return false
	}
	s.inflightLongTerm = max(s.inflightLongTerm, min(in.TxInFlight, unset-1))
	if s.mode == up {
		m.probeUpward(s, in, out, mss)
	}
	return false
}

// probeUpward is BBRProbeInflightLongtermUpward: slowly at first, doubling each round trip.
func (m *module) probeUpward(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if !in.Has(cong.FlagCwndLimited) || out.Cwnd < s.inflightLongTerm {
		return
	}
	p := &s.probe
	p.upAcked += uint64(in.Acked)
	if per := uint64(p.upPerInc); p.upAcked >= per {
		n := p.upAcked / per
		p.upAcked -= n * per
		s.inflightLongTerm = uint32(min(uint64(s.inflightLongTerm)+n*uint64(mss), unset-1))
	}
	if s.roundStart {
		s.raiseSlope(out, mss)
	}
}

// raiseSlope is BBRRaiseInflightLongtermSlope.
func (s *state) raiseSlope(out *cong.Decision, mss uint32) {
	growth := uint32(1) << s.probe.upRounds
	s.probe.upRounds = min(s.probe.upRounds+1, maxUpRounds)
	s.probe.upPerInc = max(out.Cwnd/growth, mss)
}

// lost is BBRHandleLostPacket, for a lost range.
func (m *module) lost(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	s.noteLoss(in)
	s.save()
	s.latest.lossInRound = true
	s.latest.lossRanges++
	if !s.probe.sample || !m.lossTooHigh(in) {
		return
	}
	m.handleTooHigh(s, in, out, m.inflightAtLoss(in), mss)
}

// noteLoss begins a round of losses with the first of it.
func (s *state) noteLoss(in *cong.Sample) {
	if !s.latest.lossInRound {
		s.latest.roundDelivered = in.Delivered
	}
}

// lossTooHigh is IsInflightTooHigh: more was lost since the sampled packet was sent than a share of what was in flight then.
func (m *module) lossTooHigh(in *cong.Sample) bool {
	if in.Has(cong.FlagNoSACK) {
		return in.LostSinceSend > 0
	}
	return uint64(in.LostSinceSend)*percent > uint64(in.TxInFlight)*m.lossThresh
}

// inflightAtLoss is BBRInflightAtLoss: where within the lost range the loss became too high.
func (m *module) inflightAtLoss(in *cong.Sample) uint32 {
	size := in.Lost
	before := int64(in.TxInFlight) - int64(min(size, in.TxInFlight))
	lost := int64(in.LostSinceSend) - int64(min(size, in.LostSinceSend))
	thresh := int64(m.lossThresh)
	prefix := (thresh*before - percent*lost) / (percent - thresh)
	return uint32(min(max(before+prefix, 0), unset-1))
}

// handleTooHigh is BBRHandleInflightTooHigh: the probe found the bound.
func (m *module) handleTooHigh(s *state, in *cong.Sample, out *cong.Decision, inflight, mss uint32) {
	s.probe.tooHigh = true
	s.probe.sample = false // one reaction per probe
	if !in.Has(cong.FlagAppLimited) {
		s.inflightLongTerm = max(min(inflight, unset-1), uint32(uint64(m.targetInflight(s, out, mss))*m.beta/percent))
	}
	if s.mode == up {
		s.leftByLoss()
		m.startDown(s, in)
	}
}

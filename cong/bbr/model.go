package bbr

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
)

// cycleGains are the pacing gains of the phases of PROBE_BW: probe for more, drain what that queued, cruise.
var cycleGains = [cycleLen]uint32{unit * 5 / 4, unit * 3 / 4, unit, unit, unit, unit, unit, unit}

// updateBW counts rounds and takes the sample's delivery rate into the bandwidth filter.
func (m *module) updateBW(s *state, in *cong.Sample) {
	s.roundStart = false
	s.rateValid = in.Has(cong.FlagRateValid) && in.Interval > 0 && in.Delivered >= in.PriorDelivered
	if !s.rateValid {
		return
	}
	if in.PriorDelivered >= s.nextRoundDelivered {
		s.nextRoundDelivered = in.Delivered
		s.rounds++
		s.roundStart = true
		s.conservation = false
	}
	m.samplePolicer(s, in.Lost > 0, in.Has(cong.FlagAppLimited))
	// A rate that the application limited tells nothing, unless it is higher than what is believed.
	bw := min(in.Rate(), maxBW)
	if !in.Has(cong.FlagAppLimited) || bw >= s.bw.get() {
		s.bw.add(m.bwRounds, s.rounds, bw)
	}
}

// checkFullPipe: the pipe is full when three rounds with enough data did not raise the bandwidth by a quarter.
func (m *module) checkFullPipe(s *state, in *cong.Sample) {
	if s.pipeFull || !s.roundStart || in.Has(cong.FlagAppLimited) {
		return
	}
	if bw := s.bw.get(); bw >= s.fullBW*5/4 {
		s.fullBW, s.fullCnt = bw, 0
		return
	}
	s.fullCnt++
	s.pipeFull = s.fullCnt >= 3
}

// checkDrain goes from STARTUP to DRAIN when the pipe is full, and on to PROBE_BW when the queue is gone.
func (m *module) checkDrain(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if s.mode == startup && s.pipeFull {
		s.mode = drain
		out.Ssthresh = m.inflight(s, out, s.bw.get(), unit, mss) // for information: the pipe is known to be full
	}
	if s.mode == drain && s.atDeparture(in.InFlight, out, mss) <= m.inflight(s, out, s.bw.get(), unit, mss) {
		m.enterProbeBW(s)
	}
}

// enterProbeBW starts in any phase but the one that drains.
func (m *module) enterProbeBW(s *state) {
	s.mode = probeBW
	s.cycle = uint8(cycleLen - 1 - s.rand.N(cycleLen-1))
	s.advanceCycle()
}

func (s *state) advanceCycle() {
	s.cycle = (s.cycle + 1) % cycleLen
	s.cycleAt = s.deliveredAt
}

func (m *module) updateCycle(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if s.mode == probeBW && m.phaseOver(s, in, out, mss) {
		s.advanceCycle()
	}
}

// phaseOver tells whether the present phase of PROBE_BW has done its work.
func (m *module) phaseOver(s *state, in *cong.Sample, out *cong.Decision, mss uint32) bool {
	fullLength := s.deliveredAt.Sub(s.cycleAt) > s.minRTT
	if s.pacingGain == unit {
		return fullLength
	}
	inFlight := s.atDeparture(in.PriorInFlight, out, mss)
	if s.pacingGain > unit {
		// Probe until the path holds gain·BDP, or shows by losses that it cannot.
		return fullLength && (in.Lost > 0 || inFlight >= m.inflight(s, out, s.bw.get(), s.pacingGain, mss))
	}
	return fullLength || inFlight <= m.inflight(s, out, s.bw.get(), unit, mss)
}

// atDeparture is what will be in the network when the next bytes depart, from what is in flight now. In this stack bytes are
// in flight from their departure on, never ahead of it, so only the next burst is added, when the rate is to grow.
func (s *state) atDeparture(inFlight uint32, out *cong.Decision, mss uint32) uint32 {
	if s.pacingGain > unit {
		inFlight += tsoSegs(out.Rate, mss) * mss
	}
	return inFlight
}

// updateMinRTT keeps the windowed minimum of the RTT and runs PROBE_RTT.
func (m *module) updateMinRTT(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	expired := in.Now > s.minRTTAt.Add(m.minRTTWin)
	if in.Has(cong.FlagRTTValid) && in.RTT > 0 &&
		(s.minRTT == 0 || in.RTT <= s.minRTT || expired && !in.Has(cong.FlagAckDelayed)) {
		s.minRTT, s.minRTTAt = in.RTT, in.Now
	}
	if expired && !s.idleRestart && s.mode != probeRTT {
		s.mode = probeRTT
		s.saveCwnd(out)
		s.probeRTTDone = 0
	}
	if s.mode == probeRTT {
		m.runProbeRTT(s, in, out, mss)
	}
	if in.Acked > 0 { // restart after idle ends with the first data acknowledged
		s.idleRestart = false
	}
}

func (m *module) runProbeRTT(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	out.Flags |= cong.MarkAppLimited // the low rate of this mode is our own doing
	if s.probeRTTDone == 0 {
		if in.InFlight <= minCwndSegs*mss {
			s.probeRTTDone = in.Now.Add(m.probeRTT)
			s.probeRTTRoundDone = false
			s.nextRoundDelivered = in.Delivered
		}
		return
	}
	if s.roundStart {
		s.probeRTTRoundDone = true
	}
	if s.probeRTTRoundDone {
		m.checkProbeRTTDone(s, in, out)
	}
}

func (m *module) checkProbeRTTDone(s *state, in *cong.Sample, out *cong.Decision) {
	if s.probeRTTDone == 0 || in.Now <= s.probeRTTDone {
		return
	}
	s.minRTTAt = in.Now // wait a window until the next PROBE_RTT
	out.Cwnd = max(out.Cwnd, s.priorCwnd)
	if s.pipeFull {
		m.enterProbeBW(s)
	} else {
		s.mode = startup
	}
}

func (m *module) setGains(s *state) {
	switch s.mode {
	case startup:
		s.pacingGain, s.cwndGain = m.highGain, m.highGain
	case drain:
		s.pacingGain, s.cwndGain = m.drainGain, m.highGain
	case probeBW:
		s.pacingGain, s.cwndGain = cycleGains[s.cycle], m.cwndGain
		if s.police.use {
			s.pacingGain = unit
		}
	case probeRTT:
		s.pacingGain, s.cwndGain = unit, unit
	}
}

// initRate paces by window and RTT, 1 ms if that is not known yet, until there is a bandwidth.
func (m *module) initRate(s *state, in *cong.Sample, out *cong.Decision) {
	rtt := time.Millisecond
	if in.SRTT > 0 {
		rtt = in.SRTT
		s.hasRTT = true
	}
	bw := min(cong.MulDiv(uint64(out.Cwnd), uint64(time.Second), uint64(rtt)), maxBW)
	out.Rate = m.paced(bw, m.highGain)
}

// setRate paces at gain times the bandwidth; before the pipe is full the rate only rises.
func (m *module) setRate(s *state, out *cong.Decision, gain uint32) {
	rate := m.paced(s.bandwidth(), gain)
	if s.pipeFull || rate > out.Rate {
		out.Rate = rate
	}
}

// paced is the pacing rate for a bandwidth and gain: a margin below it, so that no queue is built by small errors.
func (m *module) paced(bw uint64, gain uint32) uint64 {
	return max(cong.MulDiv(bw*uint64(gain), m.marginPercent, 100*unit), 1)
}

package bbr3

import "github.com/fastpath-tcp/fastpath/cong"

const (
	fullBWGrowth   = 125 // percent: less growth in a round counts towards a full pipe
	fullBWRounds   = 3
	maxDrainRounds = 3
)

// fullPipe notices that sending faster does not deliver faster.
type fullPipe struct {
	bw                uint64
	count             uint8
	now               bool // full_bw_now: in this STARTUP or UP
	reached           bool // full_bw_reached: ever
	recoveryDelivered uint64
}

// reset is BBRResetFullBW, with the rate to compare to.
func (f *fullPipe) reset(bw uint64) { f.bw, f.count, f.now = bw, 0, false }

// checkFullPipe is BBRCheckFullBWReached.
func (s *state) checkFullPipe(in *cong.Sample) {
	f := &s.full
	if f.now || !s.roundStart || in.Has(cong.FlagAppLimited) {
		return
	}
	if s.rate*percent >= f.bw*fullBWGrowth {
		f.reset(s.rate)
		return
	}
	if f.count++; f.count >= fullBWRounds {
		f.now, f.reached = true, true
	}
}

func (m *module) enterStartup(s *state) {
	s.mode, s.pacingGain, s.cwndGain = startup, m.startupGain, m.cwndGain
}

// checkStartupDone ends STARTUP when the pipe is full, or when it loses too much.
func (m *module) checkStartupDone(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if s.mode != startup {
		return
	}
	m.checkStartupLoss(s, in, mss)
	if !s.full.reached {
		return
	}
	s.mode, s.pacingGain, s.cwndGain = drain, m.drainGain, m.cwndGain
	s.drainStartRound = s.rounds
	out.Ssthresh = m.inflight(s, out, s.filteredBW(), percent, mss) // for information: the pipe is known to be full
}

// checkStartupLoss is BBRCheckStartupHighLoss: loss in recovery for a round trip, above the threshold, in several places.
// Without SACK any loss in recovery will do.
func (m *module) checkStartupLoss(s *state, in *cong.Sample, mss uint32) {
	if s.full.reached {
		return
	}
	recovering := in.CA == cong.CARecovery
	lossy := recovering && in.Has(cong.FlagNoSACK) && in.Lost > 0 ||
		recovering && s.latest.roundStart && in.PriorDelivered >= s.full.recoveryDelivered &&
			s.latest.lossRanges >= m.startupLossRanges && m.lossTooHigh(in)
	if !lossy && !s.ecn.startHigh {
		return
	}
	s.leftByLoss()
	s.full.reached = true
	s.inflightLongTerm = uint32(min(max(uint64(m.bdp(s, s.filteredBW(), percent, mss)), s.latest.inflight), unset-1))
}

// checkDrainDone is BBRCheckDrainDone.
func (m *module) checkDrainDone(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if s.mode == drain && (in.InFlight <= m.inflight(s, out, s.bw, percent, mss) || s.rounds > s.drainStartRound+maxDrainRounds) {
		m.startDown(s, in)
	}
}

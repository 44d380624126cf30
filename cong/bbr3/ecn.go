package bbr3

import "github.com/fastpath-tcp/fastpath/cong"

// Constants of Google's code.
const (
	alphaUnit     = 1 << 15 // an alpha of 1
	alphaGain     = 16      // inverse of the gain
	alphaFactor   = 3       // alpha/3 is cut
	ecnFullRounds = 2       // rounds with half of their bytes marked end STARTUP
)

// marks is what congestion marks (ECN) say, by rounds.
type marks struct {
	seen      bool   // there was a mark
	alpha     uint32 // mean share of marked bytes, of alphaUnit
	acked     uint64 // in this round
	marked    uint64
	inRound   bool  // marks in this loss round, to be answered by alpha
	hot       uint8 // rounds in a row with half of their bytes marked
	tooHigh   bool  // the round that ended at this sample had too many marks
	startHigh bool  // … and it was the last that STARTUP stands
}

// updateMarks counts marks and judges each round that ends.
func (m *module) updateMarks(s *state, in *cong.Sample) {
	e := &s.ecn
	e.tooHigh, e.startHigh = false, false
	if in.Marked > 0 && !e.seen {
		e.seen, e.alpha = true, alphaUnit
	}
	if !e.seen {
		return
	}
	e.acked += uint64(in.Acked)
	e.marked += uint64(min(in.Marked, in.Acked))
	early := s.minRTT > 0 && s.minRTT <= m.ecnMaxRTT
	if in.Marked > 0 {
		if early {
			e.inRound = true
		} else {
			s.noteLoss(in) // the draft: a mark is congestion
			s.latest.lossInRound = true
		}
	}
	if !s.roundStart || e.acked == 0 {
		return
	}
	ratio := uint32(cong.MulDiv(e.marked, alphaUnit, e.acked))
	e.alpha = (e.alpha*(alphaGain-1) + ratio) / alphaGain
	e.hot++
	if e.marked*2 < e.acked || e.marked == 0 {
		e.hot = 0
	}
	if early {
		e.tooHigh = e.hot > 0
		e.startHigh = e.hot >= ecnFullRounds
	} else {
		e.tooHigh = e.marked*percent > e.acked*m.lossThresh
		e.startHigh = e.tooHigh
	}
	e.hot = min(e.hot, ecnFullRounds)
	e.acked, e.marked = 0, 0
}

// cutByAlpha is the code's bbr_ecn_inflight_lo cut.
func (m *module) cutByAlpha(bound, alpha uint32) uint32 {
	return uint32(uint64(bound) * (alphaFactor*alphaUnit - uint64(alpha)) / (alphaFactor * alphaUnit))
}

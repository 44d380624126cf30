package bbr

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const (
	policerMinRounds = 4  // least rounds per interval
	policerMaxRounds = 16 // an interval that is longer says nothing
	policerLoss      = 50 // of 256: least share lost in an interval
	policerRatio     = 8  // two rates are the same if they differ by at most 1/8 …
	policerDiff      = 500
	policerUseRounds = 48 // how long the rate is held, in rounds of PROBE_BW
)

// policer detects a token-bucket policer: two intervals in a row, both with heavy loss, that delivered the same rate. That
// rate is then held for a while.
type policer struct {
	sampling  bool
	use       bool
	rounds    uint32
	bw        uint64       // rate of the interval before, or the one held
	delivered uint64       // at the start of the interval
	lost      uint64       // the same
	since     plugins.Time // the same
}

// restart starts an interval.
func (p *policer) restart(s *state) {
	p.since, p.delivered, p.lost, p.rounds = s.deliveredAt, s.delivered, s.lost, 0
}

func (p *policer) reset(s *state) {
	p.bw, p.use, p.sampling = 0, false, false
	p.restart(s)
}

// samplePolicer takes in one rate sample.
func (m *module) samplePolicer(s *state, losses, appLimited bool) {
	p := &s.police
	if !m.detectPolicer {
		return
	}
	if p.use {
		if s.mode == probeBW && s.roundStart {
			if p.rounds++; p.rounds >= policerUseRounds {
				p.reset(s)
				m.enterProbeBW(s)
			}
		}
		return
	}
	if !p.sampling {
		// Start with the first loss: by then a policer's tokens are used up.
		if !losses {
			return
		}
		p.restart(s)
		p.sampling = true
	}
	if appLimited { // would underestimate
		p.reset(s)
		return
	}
	if s.roundStart {
		p.rounds++
	}
	if p.rounds < policerMinRounds {
		return
	}
	if p.rounds > policerMaxRounds {
		p.reset(s)
		return
	}
	if losses { // an interval ends with a loss
		p.interval(s)
	}
}

// interval ends an interval, if it lost enough.
func (p *policer) interval(s *state) {
	delivered, lost := s.delivered-p.delivered, s.lost-p.lost
	if delivered == 0 || lost*256 < policerLoss*delivered {
		return
	}
	t := s.deliveredAt.Sub(p.since)
	if t < time.Millisecond {
		return
	}
	bw := min(cong.MulDiv(delivered, uint64(time.Second), uint64(t)), maxBW)
	if p.bw > 0 {
		diff := max(bw, p.bw) - min(bw, p.bw)
		if diff*policerRatio <= p.bw || diff <= policerDiff {
			p.bw = (bw + p.bw) / 2
			p.use = true
			p.rounds = 0
			s.pacingGain = unit // avoid drops at once
			return
		}
	}
	p.bw = bw
	p.restart(s)
}

package bbr3

import "github.com/fastpath-tcp/fastpath/cong"

// undoState is the model at the start of a loss episode, in case that the loss turns out to be none.
type undoState struct {
	valid             bool // of the last episode, and not undone yet
	episode           bool // there is one
	left              bool // the loss ended mode
	mode              mode // STARTUP or UP
	bwShortTerm       uint64
	inflightShortTerm uint32
	inflightLongTerm  uint32
}

// save is BBRSaveStateUponLoss, once per episode.
func (s *state) save() {
	if s.undo.episode {
		return
	}
	s.undo = undoState{valid: true, episode: true, bwShortTerm: s.bwShortTerm, inflightShortTerm: s.inflightShortTerm, inflightLongTerm: s.inflightLongTerm}
}

// spurious is BBRHandleSpuriousLossDetection: the bounds go back to at least what they were, and a mode that the loss ended
// goes on.
func (m *module) spurious(s *state, in *cong.Sample, out *cong.Decision) {
	out.Cwnd = max(out.Cwnd, s.priorCwnd)
	s.latest.lossInRound = false
	s.full.reset(0)
	if !s.undo.valid {
		return
	}
	u := s.undo
	s.undo.left, s.undo.valid = false, false
	s.bwShortTerm = max(s.bwShortTerm, u.bwShortTerm)
	s.inflightShortTerm = max(s.inflightShortTerm, u.inflightShortTerm)
	s.inflightLongTerm = max(s.inflightLongTerm, u.inflightLongTerm)
	if !u.left {
		return
	}
	if u.mode == startup {
		s.full.reached = false
	}
	switch {
	case s.mode == probeRTT || s.mode == u.mode:
	case u.mode == startup:
		m.enterStartup(s)
	default:
		m.startRefill(s, in)
	}
}

// leftByLoss notes that a loss ended the present mode.
func (s *state) leftByLoss() { s.undo.left, s.undo.mode = true, s.mode }

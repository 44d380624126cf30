package rtx

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// recover runs the congestion state machine on an acknowledgement (Linux tcp_fastretrans_alert). The states are Open; Disorder: something
// is SACKed or was sent again; Recovery; and Loss: after a timeout. CWR is the engine's.
func (m *module) recover(f *flow, b *batch, a *ackState) {
	if a.advanced {
		f.set(flowReneging, f.q.head != nil && f.q.head.is(segSacked))
		if f.has(flowReneging) {
			return // the shortened RTO decides
		}
	}
	if f.ca == CARecovery && seq.AfterEq(f.una, f.highSeq) {
		if f.has(flowNoSACK) {
			m.resetDuplicates(f)
		}
		if m.recovered(f, b, a) {
			return
		}
	}
	switch f.ca {
	case CARecovery:
		if !m.inRecovery(f, b, a) {
			return
		}
	case CALoss:
		m.inLoss(f, b, a)
		m.findLosses(f, b, a)
		if f.ca == CALoss && !a.lostRetrans {
			return
		}
	default:
		if f.has(flowNoSACK) {
			if a.advanced {
				m.resetDuplicates(f)
			}
			m.countDuplicate(f, b, a)
		}
		m.undoByDsack(f, b, a)
		m.findLosses(f, b, a)
	}
	if f.lostOut == 0 {
		m.keepOpen(f, b)
		return
	}
	m.enterRecovery(f, b)
}

// inRecovery handles an acknowledgement within recovery. It reports whether the state was left and must be looked at again.
func (m *module) inRecovery(f *flow, b *batch, a *ackState) bool {
	if !a.advanced {
		m.countDuplicate(f, b, a)
	} else if f.has(flowUndo) && m.delayed(f, a) {
		// The hole was filled by the delayed original: reordering, not loss (Linux tcp_try_undo_partial).
		f.bits |= flowReordering
		if f.retransOut > 0 {
			return false
		}
		m.undo(f, b, a)
		m.keepOpen(f, b)
	}
	m.undoByDsack(f, b, a)
	m.findLosses(f, b, a)
	return f.ca < CARecovery
}

// inLoss handles an acknowledgement after a timeout (Linux tcp_process_loss; F-RTO is RFC 5682, 3.1).
func (m *module) inLoss(f *flow, b *batch, a *ackState) {
	recovered := seq.AfterEq(f.una, f.highSeq)
	if a.advanced && f.has(flowUndo) && m.mayUndo(f, a) {
		m.undoLoss(f, b, a, !f.has(flowNoSACK))
		return
	}
	if f.has(flowFRTO) {
		if a.origAcked { // step 3b: data that was sent once arrived, so the timeout was spurious
			f.timeouts = 0
			m.forgetRack(f, a)
			m.undoLoss(f, b, a, true)
			return
		}
		if seq.After(f.nxt, f.highSeq) {
			if a.sacked || a.dup {
				f.bits &^= flowFRTO // step 3a: the loss is real
			}
		} else if a.advanced && !recovered {
			f.highSeq = f.nxt
			b.flags |= FlagSendNew // step 2b
			return
		}
	}
	if recovered {
		m.recovered(f, b, a)
		return
	}
	if f.has(flowNoSACK) {
		if seq.After(f.nxt, f.highSeq) {
			m.countDuplicate(f, b, a)
		} else if a.advanced {
			m.resetDuplicates(f)
		}
	}
}

// forgetRack voids RACK.segment when F-RTO has shown that originals arrived: the acknowledgement of the segment that was sent again was not
// for its last copy, so that what was sent before that is not late.
func (m *module) forgetRack(f *flow, a *ackState) {
	f.bits &^= flowRack
	f.q.before = nil
	a.rack = false
}

// undoLoss undoes a timeout that was spurious, and ends its recovery if sure says that no old duplicates can come.
func (m *module) undoLoss(f *flow, b *batch, a *ackState, sure bool) {
	m.undo(f, b, a)
	if sure && !(f.has(flowNoSACK) && f.una == f.highSeq) {
		m.leave(f, b)
	}
}

// recovered ends recovery when SND.UNA has reached highSeq, with an undo if all of it was spurious. It reports whether the state is held:
// without SACK, until something above highSeq is acknowledged, lest old duplicates start another recovery (RFC 6582, 4).
func (m *module) recovered(f *flow, b *batch, a *ackState) (held bool) {
	if f.has(flowUndo) && (m.mayUndo(f, a) || !f.has(flowUndoSent)) {
		m.undo(f, b, a)
	} else if f.reoPersist > 0 {
		if f.reoPersist--; f.reoPersist == 0 {
			f.reoSteps = 1 // RFC 8985, 6.2 step 4
		}
	}
	if f.has(flowNoSACK) && f.una == f.highSeq {
		return true
	}
	m.leave(f, b)
	return false
}

// leave returns to Open.
func (m *module) leave(f *flow, b *batch) {
	if f.ca >= CARecovery {
		b.flags |= FlagExit
	}
	f.ca = CAOpen
	f.bits &^= flowFRTO | flowReneged
}

// keepOpen settles on Open or Disorder.
func (m *module) keepOpen(f *flow, b *batch) {
	m.leave(f, b)
	resent := f.retransOut > 0 || f.q.head != nil && f.q.head.is(segEverRetrans)
	if !resent {
		f.bits &^= flowStamp
	}
	if resent || f.sackedOut > 0 || f.lostOut > 0 {
		f.ca = CADisorder
	}
}

// enterRecovery starts a reduction: something is lost.
func (m *module) enterRecovery(f *flow, b *batch) {
	f.ca = CARecovery
	m.startEpisode(f, b)
}

// startEpisode starts a reduction that a later acknowledgement may show to be spurious.
func (m *module) startEpisode(f *flow, b *batch) {
	f.highSeq = f.nxt
	f.undoMarker = f.una
	f.undoRetrans = f.retransOut
	f.bits |= flowUndo
	f.set(flowUndoSent, f.retransOut > 0)
	f.bits &^= flowProbeOut | flowProbeCopy // RFC 8985, 7.1
	b.flags |= FlagEnter
}

// findLosses marks what this acknowledgement shows to be lost.
func (m *module) findLosses(f *flow, b *batch, a *ackState) {
	if f.has(flowNoSACK) {
		m.newReno(f, b, a)
	} else if a.rack || a.undone {
		a.lostRetrans = m.rackDetect(f, b, a.now) || a.lostRetrans
	}
}

// delayed reports whether the peer echoes a time before the episode's first retransmission: its acknowledgement is for an original
// (Eifel, RFC 3522).
func (m *module) delayed(f *flow, a *ackState) bool {
	return f.has(flowStamp) && a.echo != 0 && a.echo+m.cfg.tsTick <= f.retransStamp
}

// mayUndo reports whether the episode was spurious: all that it sent again was reported as duplicates, or Eifel says so.
func (m *module) mayUndo(f *flow, a *ackState) bool {
	return f.has(flowUndoSent) && f.undoRetrans == 0 || m.delayed(f, a)
}

// undoByDsack undoes the episode, which may be over, when D-SACKs have reported all that it sent again.
func (m *module) undoByDsack(f *flow, b *batch, a *ackState) {
	if !f.has(flowUndo|flowUndoSent) || f.undoRetrans > 0 {
		return
	}
	if f.reoPersist < m.cfg.reoPersist {
		f.reoPersist++
	}
	m.undo(f, b, a)
	m.keepOpen(f, b)
}

// undo takes the last reduction and all loss marks back. RACK looks at the segments again.
func (m *module) undo(f *flow, b *batch, a *ackState) {
	b.flags |= FlagUndo
	f.bits &^= flowUndo
	a.undone = true
	q := f.q
	if f.lostOut == 0 {
		return
	}
	for g := q.lhead; g != nil; g = g.xnext {
		f.lostOut -= g.len()
		g.flags &^= segLost
		m.pool.visits++
	}
	// The rest was sent again: it is among the last that were sent.
	for g := q.xtail; g != nil && f.lostOut > 0; g = g.xprev {
		if g.is(segLost) {
			f.lostOut -= g.len()
			g.flags &^= segLost
		}
		m.pool.visits++
	}
	q.restore(&m.pool)
	m.command(f, CmdNotLost)
	b.lostCmd = 0
}

// timeout handles the retransmission timeout (RFC 6298, 5.4 to 5.6; Linux tcp_enter_loss). It doubles each time (RFC 9293, MUST-19).
func (m *module) timeout(f *flow, b *batch, now plugins.Time) {
	fresh := f.ca < CARecovery || !seq.After(f.highSeq, f.una) || f.ca == CALoss && f.timeouts == 0
	frto := m.cfg.frto && (f.ca < CARecovery || f.timeouts > 0)
	reneged := f.q.head.is(segSacked)
	switch {
	case reneged:
		m.renege(f, b)
	case f.has(flowNoSACK):
		m.resetDuplicates(f)
		m.loseAll(f, b)
	default:
		m.loseOld(f, b, now)
	}
	f.ca = CALoss
	if fresh {
		m.startEpisode(f, b)
	}
	f.highSeq = f.nxt
	f.bits &^= flowProbeOut | flowProbeCopy | flowReneging
	f.set(flowFRTO, frto && !reneged)
	f.set(flowReneged, reneged)
	if reneged {
		f.bits &^= flowUndo
	}
	f.timeouts += min(1, 255-f.timeouts)
	f.rtt.backoff += min(1, 255-f.rtt.backoff)
	f.rtoBase = now
	b.flags |= FlagTimeout
}

// loseOld marks the head, and what had an RTT to be acknowledged; what was sent since stays (RFC 8985, 6.3).
func (m *module) loseOld(f *flow, b *batch, now plugins.Time) {
	q := f.q
	for g := q.xhead; g != nil && (int64(now-g.sent) >= f.rackRTT || g == q.head); g = q.xhead {
		m.markLost(f, b, g)
	}
	if !q.head.waiting() {
		m.markLost(f, b, q.head)
	}
}

// loseAll marks everything that is not SACKed as lost.
func (m *module) loseAll(f *flow, b *batch) {
	for g := f.q.head; g != nil; g = g.next {
		m.pool.visits++
		if !g.waiting() && !g.is(segSacked) {
			m.markLost(f, b, g)
		}
	}
}

// renege handles a peer that has dropped what it had SACKed (RFC 2018, 8): all marks are void, everything is lost.
func (m *module) renege(f *flow, b *batch) {
	m.command(f, CmdReneged)
	b.sackCmd, b.lostCmd = 0, 0
	q := f.q
	q.seen = [MaxSack]seq.Range{}
	for g := q.head; g != nil; g = g.next {
		m.pool.visits++
		if g.is(segSacked) {
			g.flags = g.flags&^segSacked | segEverRetrans // its acknowledgement will be ambiguous
			q.pushSent(g)
		}
	}
	f.sackedOut, f.sackedPkts = 0, 0
	m.loseAll(f, b)
}

package rtx

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// plausible reports whether an acknowledgement of g, which was sent more than once, is for its last copy (RFC 8985, 6.2 step 2). Echoed
// times are rounded down to a tick of the timestamp clock. They tell nothing of what is selectively acknowledged: the peer goes on
// echoing the last segment that came in order (RFC 7323, 4.3).
func (m *module) plausible(a *ackState, g *segment) bool {
	if !a.selective && a.echo != 0 && a.echo+m.cfg.tsTick <= g.sent {
		return false // the peer echoes an earlier copy
	}
	return a.now-g.sent >= a.minRTT
}

// roundTrip takes the acknowledgement's RTT sample (RFC 6298, 3, and Linux tcp_clean_rtx_queue): of the earliest segment that was sent
// once for SRTT, of the latest for congestion control and the minimum.
func (m *module) roundTrip(f *flow, b *batch, a *ackState) {
	rtt, latest := int64(-1), int64(-1)
	delayed := false
	if a.hasAck && !a.retransAcked { // Karn's rule (RFC 9293, MUST-18)
		rtt, latest = int64(a.now-a.firstAck), int64(a.now-a.lastAck)
		// A lone packet smaller than the MSS, all that was in flight: its receiver had reason to wait (Linux FLAG_ACK_MAYBE_DELAYED).
		s := &a.sample
		delayed = a.pkts == 1 && a.bytes < f.mss && s.txInFlight == a.bytes && f.sackedOut == 0 && s.priorDelivered+uint64(a.bytes) == f.delivered
	}
	if a.hasSack {
		latest = int64(a.now - a.lastSack)
		if rtt < 0 {
			rtt = int64(a.now - a.firstSack)
		}
	}
	if rtt < 0 && a.echo != 0 && a.bytes > 0 { // RFC 7323, 4
		rtt = int64(a.now - a.echo)
		latest = rtt
	}
	if rtt < 0 || latest < 0 {
		return
	}
	latest = plausibleRTT(latest)
	if delayed {
		b.flags |= FlagAckDelayed
	} else {
		b.flags &^= FlagAckDelayed
	}
	if !delayed || latest <= f.minRTT.get() {
		f.minRTT.update(m.cfg.minRTTWindow, a.now, latest)
	}
	f.rtt.sample(&m.cfg, rtt, f.una, f.nxt)
	f.bits |= flowProbeOK
	b.rtt = latest
	b.flags |= FlagRTTValid
}

// rackUpdate takes what was delivered into RACK.segment and the reordering window (RFC 8985, 6.2 steps 2 to 4).
func (m *module) rackUpdate(f *flow, a *ackState) {
	if a.rack {
		f.rackRTT = plausibleRTT(int64(a.now - a.rackSent))
		if !f.has(flowRack) || seq.After(a.rackTx, f.rackTx) {
			f.bits |= flowRack
			f.rackTx = a.rackTx
		}
	}
	if a.reordered {
		f.bits |= flowReordering
	}
	if f.has(flowDsackRound) && seq.AfterEq(f.una, f.dsackRound) {
		f.bits &^= flowDsackRound
	}
	// As in Linux, a D-SACK counts only if reordering was seen and it is not a probe's.
	if a.dsack && !a.dsackProbe && f.bits&(flowDsackRound|flowReordering) == flowReordering {
		f.bits |= flowDsackRound
		f.dsackRound = f.nxt
		if f.reoSteps < m.cfg.reoSteps {
			f.reoSteps++
		}
		f.reoPersist = m.cfg.reoPersist
	}
}

// reoWnd is the time that reordered segments are given to arrive (RFC 8985, 6.2 step 4).
func (m *module) reoWnd(f *flow) int64 {
	if !f.has(flowReordering) && (f.ca >= CARecovery || f.sackedPkts >= m.cfg.dupThresh) {
		return 0
	}
	return min(f.minRTT.get()/m.cfg.reoWndDiv*int64(f.reoSteps), f.rtt.srtt())
}

// rackDetect marks as lost what was sent before RACK.segment and had its time (RFC 8985, 6.2 step 5). It looks at segments in order of
// transmission and stops at the first that may still arrive. It reports whether a retransmission was among them.
func (m *module) rackDetect(f *flow, b *batch, now plugins.Time) (lostRetrans bool) {
	q := f.q
	if q == nil || !f.has(flowRack) {
		return false
	}
	g := q.xhead
	if q.before != nil {
		g = q.before.xnext
	}
	for ; g != nil && seq.Before(g.txid, f.rackTx); g = g.xnext {
		q.before = g
		m.pool.visits++
	}
	wait := f.rackRTT + m.reoWnd(f)
	for q.before != nil {
		g := q.xhead
		m.pool.visits++
		if int64(now-g.sent) < wait {
			break
		}
		lostRetrans = m.markLost(f, b, g) || lostRetrans
	}
	return lostRetrans
}

// reorderDeadline is when the last of what was sent before RACK.segment has had its time.
func (m *module) reorderDeadline(f *flow) plugins.Time {
	return f.q.before.sent + plugins.Time(f.rackRTT+m.reoWnd(f))
}

// markLost marks g, which is in the order of transmission, as lost. It reports whether that was a retransmission.
func (m *module) markLost(f *flow, b *batch, g *segment) (retrans bool) {
	n := g.len()
	f.q.leave(g)
	if !g.is(segLost) {
		g.flags |= segLost
		f.lostOut += n
	}
	if g.is(segRetrans) {
		g.flags &^= segRetrans
		f.retransOut -= n
		retrans = true
	}
	f.q.pushLost(g)
	f.lost += uint64(n)
	b.lost += n
	m.tellLost(f, b, g)
	return retrans
}

// probeAcked ends a tail-loss probe that is answered (RFC 8985, 7.4).
func (m *module) probeAcked(f *flow, b *batch, a *ackState) {
	if !f.has(flowProbeOut) || seq.Before(f.una, f.tlpEnd) {
		return
	}
	switch {
	case !f.has(flowProbeCopy): // new data
	case a.dsackProbe: // original and probe arrived: nothing was lost
		b.flags |= FlagSpuriousProbe
	case seq.After(f.una, f.tlpEnd): // the probe repaired a loss
		b.flags |= FlagTLPLoss
	case !a.advanced && !a.sacked && a.dup: // both arrived, and the peer has no D-SACK
		b.flags |= FlagSpuriousProbe
	default:
		return
	}
	f.bits &^= flowProbeOut | flowProbeCopy
}

// nextTimer is the flow's timer: one of reordering, probe and retransmission.
func (m *module) nextTimer(f *flow) (kind uint8, at plugins.Time) {
	if f.q == nil {
		return TimerNone, plugins.Never
	}
	kind, at = TimerRTO, m.rtoDeadline(f)
	if f.q.before != nil {
		if t := m.reorderDeadline(f).Add(m.cfg.slack); t < at {
			kind, at = TimerReorder, t
		}
		return kind, at
	}
	if m.probeAllowed(f) {
		kind, at = TimerTLP, min(f.ptoBase.Add(m.pto(f)), at) // RFC 8985, 7.2: not after the RTO
	}
	return kind, at
}

func (m *module) rtoDeadline(f *flow) plugins.Time {
	if f.has(flowReneging) { // Linux tcp_check_sack_reneging
		return f.rtoBase.Add(max(time.Duration(f.rtt.srtt()/2), 10*time.Millisecond))
	}
	return f.rtoBase.Add(f.rtt.rto(&m.cfg))
}

// probeAllowed reports whether the tail may be probed: no recovery, nothing SACKed, no probe out, and an RTT sample since the last one.
func (m *module) probeAllowed(f *flow) bool {
	return m.cfg.tlp && f.ca == CAOpen && f.bits&(flowNoSACK|flowProbeOut|flowProbeOK|flowReneging) == flowProbeOK && f.sackedOut == 0
}

// pto is the probe time-out (RFC 8985, 7.2, with Linux' slack).
func (m *module) pto(f *flow) time.Duration {
	if f.rtt.srtt8 == 0 {
		return m.cfg.rtoInit
	}
	d := time.Duration(2 * f.rtt.srtt())
	if f.q.n == 1 && f.q.head.packets() == 1 {
		return d + m.cfg.maxAckDelay
	}
	return d + m.cfg.slack
}

// timer takes a timer's expiry. One that events have moved meanwhile is ignored: the next Status sets it again.
func (m *module) timer(f *flow, b *batch, ev *Event) {
	kind, at := m.nextTimer(f)
	if kind != ev.Timer || at > ev.Time {
		return
	}
	switch kind {
	case TimerReorder:
		m.rackDetect(f, b, ev.Time)
		if f.lostOut > 0 && f.ca < CARecovery {
			m.enterRecovery(f, b)
		}
	case TimerTLP:
		m.command(f, CmdProbe)
		f.bits &^= flowProbeOK
		f.rtoBase = ev.Time // RFC 8985, 7.3: the RTO is armed next
	case TimerRTO:
		m.timeout(f, b, ev.Time)
	}
}

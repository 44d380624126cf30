package tcp

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// applyPace takes a flow's pacing line.
func (e *Engine) applyPace(index int, l *pace.Line) {
	if e.shadow != nil {
		e.shadow.observe(plugins.Pace, index, l.Flow, 0, l.Rate)
	}
	c := e.conn(l.Flow)
	if c == nil || int(c.mod[plugins.Pace]) != index || !c.isOpen {
		return
	}
	if l.Rate == 0 || l.Horizon <= 0 || l.Credit > pace.CreditOne {
		e.Stats.BadCommands++
		return
	}
	// What leaves at once takes half a round trip at most. A departure further ahead than one was set by a rate much lower than usual.
	if l.Rate != c.line.Rate && c.clk.Depart(c.line, e.now).Sub(e.now) > c.stat.srtt {
		c.clk.Rerate(c.line.Rate, l.Rate, e.now)
	}
	switch {
	case l.Rate == plugins.Unlimited:
		c.line = &unpaced
	case c.line == &unpaced:
		c.line = new(pace.Line)
		fallthrough
	default:
		*c.line = *l
	}
	if c.refused && !c.clk.Refused(c.line, e.now) {
		e.admitWriter(c)
	}
	c.stopTimer(timerPace)
	e.makeReady(c)
}

// maxWindow bounds what a module may ask for.
const maxWindow = 1 << 30

// applyCong takes a congestion-control decision.
func (e *Engine) applyCong(index int, d *cong.Decision) {
	if e.shadow != nil {
		e.shadow.observe(plugins.Cong, index, d.Flow, d.Cwnd, d.Rate)
	}
	c := e.conn(d.Flow)
	if c == nil || int(c.mod[plugins.Cong]) != index || !c.isOpen {
		return
	}
	if d.AsOf < c.barrier {
		e.Stats.StaleDecisions++
		return
	}
	if d.Cwnd == 0 || d.AsOf > e.event {
		e.Stats.BadCommands++
		return
	}
	c.decided = true
	c.aux = d.Aux
	c.tsoGoal = uint16(min(d.TSOGoal, maxBurst-1))
	c.wantsPRR = d.Flags&cong.WantsPRR != 0
	c.ssthresh = max(d.Ssthresh, 2*c.mss)
	cwnd := min(max(d.Cwnd, c.mss), maxWindow)
	if d.Flags&cong.EnterCWR != 0 && c.caState() < cong.CACWR {
		c.cwr, c.cwrEnd, c.tellCWR = true, c.sndNxt, true
		c.reduce(0)
	}
	if d.Flags&cong.MarkAppLimited != 0 {
		c.appLimited = max(c.stat.delivered+uint64(c.inFlight()), 1)
	}
	if !c.wantsPRR {
		c.stopReducing()
	}
	changed := d.Rate != c.rate
	c.rate = d.Rate
	if !c.out.prr.on {
		if cwnd != c.cwnd {
			changed = true
			c.setCwnd(cwnd)
		}
	}
	if changed || d.Rate == 0 && uint32(c.stat.srtt/1000) != c.pacedSRTT {
		c.pacedSRTT = uint32(c.stat.srtt / 1000)
		e.tellPace(c, pace.EvUpdate)
	}
	e.makeReady(c)
}

// applyRtx takes a command of an rtx module.
func (e *Engine) applyRtx(index int, m *rtx.Command) {
	c := e.conn(m.Flow)
	if c == nil || int(c.mod[plugins.Rtx]) != index || !c.isOpen {
		return
	}
	if m.AsOf > e.event {
		e.Stats.BadCommands++
		return
	}
	switch m.Kind {
	case rtx.CmdStatus:
		e.status(c, m)
	case rtx.CmdSacked:
		if early := c.out.log.sack(m.Range()); early != 0 {
			c.reordered(early, m.AsOf)
		}
	case rtx.CmdLost:
		e.markLost(c, m)
	case rtx.CmdReneged:
		if c.out != &nothing {
			c.out.log.renege()
			c.out.heard.Reset()
		}
	case rtx.CmdNotLost:
		if c.out != &nothing {
			c.out.notLost()
		}
	case rtx.CmdProbe:
		c.wantProbe = true
		e.makeReady(c)
	default:
		e.Stats.BadCommands++
	}
}

func (e *Engine) markLost(c *Conn, m *rtx.Command) {
	if c.path() != nil && e.probeLost(c, m) {
		return
	}
	r := m.Range()
	before := c.out.log.lost
	n := c.out.log.lose(r, m.TxID, c.mss)
	if n == 0 {
		return
	}
	e.Stats.LostSegs += uint64(n)
	c.count.LostSegs += n
	c.out.lost.add(r)
	c.stat.lost += uint64(c.out.log.lost - before)
	s := e.newSample(c, cong.KindLost)
	s.Lost = c.out.log.lost - before
	s.TxInFlight, s.LostSinceSend, s.PriorDelivered, s.SendTime = m.TxInFlight, m.LostSinceSend, m.PriorDelivered, m.SendTime
	if m.Flags&rtx.FlagCmdAppLimited != 0 {
		s.Flags |= cong.FlagAppLimited
	}
	e.makeReady(c)
}

// status takes the flow's absolute state from its rtx module, keeps what the engine needs, and makes the sample for cong.
func (e *Engine) status(c *Conn, m *rtx.Command) {
	if m.RTT < 0 || m.SRTT < 0 || m.MinRTT < 0 || m.Interval < 0 || m.CA > rtx.CALoss || m.Delivered < c.stat.delivered {
		e.Stats.BadCommands++
		return
	}
	if p := c.path(); p != nil && p.quiet != loud {
		p.hush(m)
	}
	st := &c.stat
	st.srtt, st.minRTT, st.rto = m.SRTT, m.MinRTT, m.RTOUsec
	st.rttvar, st.backoff = m.RTTVarUsec, m.Backoff
	if m.Delivered > st.delivered {
		st.delivered, st.deliveredTime = m.Delivered, e.now
		if c.appLimited != 0 && st.delivered > c.appLimited {
			c.appLimited = 0 // the bubble has left the pipe
		}
	}
	if m.Flags&rtx.FlagRateValid != 0 && m.Delivered >= m.PriorDelivered {
		st.rateDelivered, st.rateInterval = m.Delivered-m.PriorDelivered, m.Interval
		st.rateAppLimited = m.Flags&rtx.FlagCmdAppLimited != 0
		st.firstSent = m.SendTime
	}
	c.ca = m.CA
	if !c.sackOK && c.out != &nothing {
		c.out.dups = m.SackedOut
	}
	c.holdLost = false
	if m.Flags&rtx.FlagSendNew != 0 {
		c.sendNew = 2
	}
	if m.Flags&rtx.FlagSackLimited != 0 {
		e.Stats.SackLimited++
	}
	c.rtxTimer = m.Timer
	if m.Timer == rtx.TimerNone || c.out.log.n == 0 {
		c.stopTimer(timerRtx)
	} else {
		c.setTimer(timerRtx, m.TimerAt())
	}
	if m.AsOf == c.lastEvent {
		c.setBackstop(e.stallEnd(c)) // nothing else is its business now
	}
	exit := m.Flags&rtx.FlagExit != 0
	if c.cwr && (c.ca >= cong.CARecovery || c.cwrOver()) {
		c.cwr = false
		exit = exit || c.ca < cong.CARecovery
	}
	e.recoveryFlags(c, m)
	if c.ecn() != nil && c.ecn().beyond && m.NewlyAcked > 0 && c.caState() < cong.CACWR {
		e.enterCWR(c, m)
	}
	if c.out != &nothing {
		c.out.prr.una = c.sndUna
	}
	const news = rtx.FlagEnter | rtx.FlagExit | rtx.FlagUndo | rtx.FlagTimeout | rtx.FlagTLPLoss
	if m.NewlyAcked == 0 && m.NewlyLost == 0 && m.Flags&news == 0 && !exit {
		return
	}
	e.ackSample(c, m, exit)
	e.makeReady(c)
}

// recoveryFlags follows the module's congestion state in PRR and the counters.
func (e *Engine) recoveryFlags(c *Conn, m *rtx.Command) {
	if m.Flags&rtx.FlagTimeout != 0 {
		e.Stats.RTOs++
		c.stopReducing()
		c.reduced()
		if c.stallSince == 0 {
			c.stallSince = e.now
		}
		e.pathTimeout(c, m.Backoff)
		// Until congestion control has answered: one segment more than what is in flight.
		c.cwnd = c.inFlight() + c.mss
	}
	if m.Flags&rtx.FlagEnter != 0 && m.CA == rtx.CARecovery || m.Flags&rtx.FlagTLPLoss != 0 {
		e.Stats.Recoveries++
		c.reduce(m.NewlyAcked)
	}
	if m.Flags&rtx.FlagTLPLoss != 0 {
		c.cwr, c.cwrEnd = true, c.sndNxt
	}
	if m.Flags&rtx.FlagUndo != 0 {
		e.Stats.Undos++
		c.stopReducing()
		if c.ecn() != nil {
			c.ecn().cwr = false // there was no reduction to tell of
		}
	}
	if m.Flags&rtx.FlagExit != 0 || !c.cwr && c.ca < cong.CARecovery {
		if c.out.prr.on {
			c.stopReducing()
			c.cwnd = max(min(c.cwnd, c.ssthresh), c.mss)
		}
	}
	if c.out.prr.on {
		c.out.prr.acked(m.NewlyAcked, m.NewlyLost, c.sndUna)
	}
}

func (e *Engine) ackSample(c *Conn, m *rtx.Command, exit bool) {
	kind := cong.KindAck
	if m.Flags&rtx.FlagTimeout != 0 {
		kind = cong.KindTimeout
	}
	s := e.newSample(c, kind)
	s.Acked, s.Lost = m.NewlyAcked, m.NewlyLost
	s.LostSinceSend, s.TxInFlight = m.LostSinceSend, m.TxInFlight
	s.PriorInFlight = s.InFlight + m.NewlyAcked + m.NewlyLost
	s.Interval, s.RTT, s.SendTime = m.Interval, m.RTT, m.SendTime
	s.Delivered = m.Delivered
	if m.Flags&rtx.FlagRateValid != 0 {
		s.PriorDelivered = min(m.PriorDelivered, m.Delivered)
		s.Flags |= cong.FlagRateValid
	}
	for _, f := range [...]struct {
		from uint32
		to   uint16
	}{
		{rtx.FlagRTTValid, cong.FlagRTTValid}, {rtx.FlagCmdAppLimited, cong.FlagAppLimited}, {rtx.FlagAckDelayed, cong.FlagAckDelayed},
		{rtx.FlagEnter, cong.FlagEnter}, {rtx.FlagTLPLoss, cong.FlagEnter}, {rtx.FlagExit, cong.FlagExit}, {rtx.FlagUndo, cong.FlagUndo},
	} {
		if m.Flags&f.from != 0 {
			s.Flags |= f.to
		}
	}
	if exit {
		s.Flags |= cong.FlagExit
	}
	if c.tellCWR { // the reduction that congestion control asked for has begun
		c.tellCWR = false
		s.Flags |= cong.FlagEnter
	}
	entered := c.ecn() != nil && c.ecn().hit && m.NewlyAcked > 0 && c.ecn().report(s)
	if m.Flags&(rtx.FlagEnter|rtx.FlagTimeout|rtx.FlagUndo|rtx.FlagTLPLoss) != 0 || entered {
		c.setBarrier(s.ID)
	}
}

// reduce starts a proportional rate reduction; newly is what this batch delivered.
func (c *Conn) reduce(newly uint32) {
	c.reduced()
	if c.out != &nothing {
		c.out.prr.enter(c.sndNxt - c.sndUna - c.out.log.sacked + newly)
	}
}

func (c *Conn) stopReducing() {
	if c.out != &nothing {
		c.out.prr.on = false
	}
}

// setBarrier drops decisions that are older than event id.
func (c *Conn) setBarrier(id uint64) { c.barrier, c.decided = id, false }

// effectiveCwnd is the congestion window that output obeys now.
func (c *Conn) effectiveCwnd() uint32 {
	if !c.out.prr.on {
		return c.cwnd
	}
	if c.out.prr.pending {
		if !c.decided {
			// No decision of this episode yet: conserve packets.
			c.cwnd = c.inFlight() + max(c.out.prr.newly, boolTo(c.out.prr.out == 0, c.mss))
			c.out.prr.delivered += uint64(c.out.prr.newly)
			c.out.prr.newly, c.out.prr.pending = 0, false
		} else {
			c.cwnd = max(c.out.prr.window(c.inFlight(), c.ssthresh, c.mss), c.mss)
		}
	}
	return c.cwnd
}

func boolTo(b bool, v uint32) uint32 {
	if b {
		return v
	}
	return 0
}

package tcp

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// resumesPerTurn bounds the Resume events, and the log entries, of one turn.
const resumesPerTurn = 256

// Modules runs the three kinds in order: what rtx says makes cong's samples, and what cong says makes pace's events.
func (e *Engine) Modules() {
	if e.remotes > 0 {
		e.watch()
	}
	e.resumeSome()
	e.rtx.run(e.now)
	if e.shadow != nil {
		e.mirror(plugins.Cong)
	}
	e.cong.run(e.now)
	if e.shadow != nil {
		e.mirror(plugins.Pace)
	}
	e.pace.run(e.now)
	e.endAckMerging()
}

// watch moves flows away from modules that are late or dead, and back when they answer again.
func (e *Engine) watch() {
	watchKind(e, &e.rtx, plugins.Rtx)
	watchKind(e, &e.cong, plugins.Cong)
	watchKind(e, &e.pace, plugins.Pace)
}

func watchKind[E, C any](e *Engine, k *kind[E, C], which plugins.Kind) {
	for i, in := range k.insts {
		if in == nil || in.remote == nil || i == k.fallback {
			continue
		}
		ok := in.remote.State() == plugins.Ready
		switch {
		case !ok && !in.demoted:
			in.demoted = true
			in.in = in.in[:0]
			e.flee(which, i)
		case ok && in.demoted:
			in.demoted = false
			e.comeHome(which, i)
		}
		if !ok {
			continue
		}
		e.dropped = in.remote.Dropped(e.dropped[:0])
		for _, f := range e.dropped {
			if c := e.conn(f); c != nil && int(c.mod[which]) == i {
				e.needResume(c, which)
			}
		}
	}
}

// conn returns the connection that f names, or nil.
func (e *Engine) conn(f plugins.Flow) *Conn {
	if f.Slot >= uint32(len(e.slots)) {
		return nil
	}
	if s := &e.slots[f.Slot]; s.gen == f.Gen {
		return s.conn
	}
	return nil
}

// rehome makes module to the owner of c. The old owner's answers count no more from here on; the new one gets a Resume before the
// flow's next event.
func (e *Engine) rehome(c *Conn, k plugins.Kind, to int) {
	e.tellClose(c, k)
	e.of(c, k).flows--
	c.mod[k] = uint8(to)
	e.of(c, k).flows++
	e.needResume(c, k)
}

// needResume queues a Resume of c for its module of kind k.
func (e *Engine) needResume(c *Conn, k plugins.Kind) {
	if k == plugins.Rtx {
		c.replay = replayNothing
	}
	if k == plugins.Cong {
		e.event++
		c.setBarrier(e.event)
	}
	if !c.resume[k] {
		c.resume[k] = true
		if !c.resumeQueued {
			c.resumeQueued = true
			e.resuming = append(e.resuming, c)
		}
	}
}

// resumeSome sends queued Resumes, a bounded number per turn.
func (e *Engine) resumeSome() {
	budget := resumesPerTurn
	for budget > 0 && len(e.resuming) > 0 {
		c := e.resuming[len(e.resuming)-1]
		if e.slots[c.slot].conn == c && e.slots[c.slot].gen == c.gen {
			budget -= e.resumeOne(c, budget)
			if c.resume[plugins.Rtx] {
				return // its log goes on next turn
			}
		}
		c.resumeQueued = false
		e.resuming[len(e.resuming)-1] = nil
		e.resuming = e.resuming[:len(e.resuming)-1]
	}
}

func (e *Engine) resumeOne(c *Conn, budget int) (used int) {
	if c.resume[plugins.Cong] {
		e.resumeCong(c)
		used++
	}
	if c.resume[plugins.Pace] {
		c.resume[plugins.Pace] = false
		e.tellPace(c, pace.EvResume)
		used++
	}
	if c.resume[plugins.Rtx] {
		used += e.resumeRtx(c, budget-used)
	}
	return max(used, 1)
}

// resumed counts a flow that is handed to its module of kind k while alive.
func (e *Engine) resumed(c *Conn, k plugins.Kind) {
	e.Stats.Resumes++
	e.of(c, k).resumes++
}

// resumeCong sends the Resume of a flow to its congestion control, with the flow's present state.
func (e *Engine) resumeCong(c *Conn) {
	c.resume[plugins.Cong] = false
	e.resumed(c, plugins.Cong)
	s := e.newSample(c, cong.KindResume)
	c.fillResume(s)
	c.setBarrier(s.ID)
}

// fillResume adds what only a Resume says.
func (c *Conn) fillResume(s *cong.Sample) {
	s.Delivered = c.stat.delivered
	s.PriorDelivered = c.stat.delivered - min(c.stat.rateDelivered, c.stat.delivered)
	s.Interval = c.stat.rateInterval
	if c.stat.rateInterval > 0 {
		s.Flags |= cong.FlagRateValid
	}
	if c.stat.rateAppLimited {
		s.Flags |= cong.FlagAppLimited
	}
}

func (c *Conn) rtxFlags() (f uint8) {
	if !c.sackOK {
		f |= rtx.FlagNoSACK
	}
	if !c.tsOK {
		f |= rtx.FlagNoTS
	}
	return f
}

// rtxEvent returns a fresh event for the flow's rtx module.
func (e *Engine) rtxEvent(c *Conn, kind uint8) *rtx.Event {
	e.event++
	ev := e.rtx.push(c.mod[plugins.Rtx])
	*ev = rtx.Event{Flow: c.flow(), ID: e.event, Time: e.now, Kind: kind}
	c.lastEvent = e.event
	return ev
}

// newSample returns a fresh sample for the flow's congestion control.
func (e *Engine) newSample(c *Conn, kind uint8) *cong.Sample {
	if c.resume[plugins.Cong] && kind != cong.KindResume && kind != cong.KindClose {
		e.resumeCong(c)
	}
	e.event++
	s := e.cong.push(c.mod[plugins.Cong])
	e.fillSample(s, c, kind)
	return s
}

// fillSample makes a sample with the flow's present state, as the latest event.
func (e *Engine) fillSample(s *cong.Sample, c *Conn, kind uint8) {
	*s = cong.Sample{
		Flow: c.flow(), ID: e.event, Now: e.now, Kind: kind, CA: c.caState(), MSS: c.mss,
		InFlight: c.inFlight(), PriorInFlight: c.inFlight(), Cwnd: c.cwnd, Ssthresh: c.ssthresh, Delivered: c.stat.delivered,
		PriorDelivered: c.stat.delivered, SRTT: c.stat.srtt, MinRTT: c.stat.minRTT, SndNxt: c.sndNxt,
	}
	if !c.sackOK {
		s.Flags |= cong.FlagNoSACK
	}
	if c.out.log.sacked > 0 {
		s.Flags |= cong.FlagSacked
	}
	if c.line.Rate != plugins.Unlimited {
		s.Flags |= cong.FlagPaced
	}
	if c.isCwndLimited() {
		s.Flags |= cong.FlagCwndLimited
	}
}

// isCwndLimited tells whether the window may grow: it was used up in the last round, or, in slow start, at least half of it was.
func (c *Conn) isCwndLimited() bool {
	return c.cwndLimited || c.cwnd < c.ssthresh && uint64(c.cwnd) < 2*uint64(c.maxFlight)
}

// tellPace sends the flow's pacing inputs to its module.
func (e *Engine) tellPace(c *Conn, kind uint8) {
	if c.resume[plugins.Pace] { // the Resume holds the same fields
		kind = pace.EvResume
		c.resume[plugins.Pace] = false
	}
	if kind == pace.EvResume {
		e.resumed(c, plugins.Pace)
	}
	e.event++
	e.fillPace(e.pace.push(c.mod[plugins.Pace]), c, kind)
}

// fillPace makes a pacing event with the flow's present state, as the latest event.
func (e *Engine) fillPace(ev *pace.Event, c *Conn, kind uint8) {
	*ev = pace.Event{
		Flow: c.flow(), ID: e.event, Time: e.now, Kind: kind, MSS: c.mss, Cwnd: max(c.cwnd, c.sndNxt-c.sndUna),
		Ssthresh: c.ssthresh, Rate: c.rate, MaxRate: c.Tuned().maxRate(), SRTT: c.stat.srtt,
	}
}

// tellClose ends the flow at its present module of kind k.
func (e *Engine) tellClose(c *Conn, k plugins.Kind) {
	switch k {
	case plugins.Rtx:
		e.rtxEvent(c, rtx.EvClose)
	case plugins.Pace:
		e.event++
		*e.pace.push(c.mod[k]) = pace.Event{Flow: c.flow(), ID: e.event, Time: e.now, Kind: pace.EvClose}
	case plugins.Cong:
		e.newSample(c, cong.KindClose)
	}
}

// openModules gives a flow that has just been established to its modules.
func (e *Engine) openModules(c *Conn, firstRTTFrom plugins.Time) {
	e.firstModules(c)
	c.isOpen = true
	for k := range plugins.NumKinds {
		e.of(c, k).flows++
	}
	ev := e.rtxEvent(c, rtx.EvOpen)
	ev.Seq, ev.MSS, ev.Echo, ev.Flags = c.sndNxt, c.mss, firstRTTFrom, c.rtxFlags()
	if firstRTTFrom != 0 {
		c.stat.srtt = max(e.now.Sub(firstRTTFrom), 1)
		c.stat.minRTT = c.stat.srtt
	}
	c.stat.deliveredTime, c.stat.firstSent = e.now, e.now
	e.newSample(c, cong.KindOpen)
	e.tellPace(c, pace.EvOpen)
}

// opened reports whether the flow is known to modules.
func (c *Conn) opened() bool { return c.isOpen }

// closeModules takes the flow from its modules.
func (e *Engine) closeModules(c *Conn) {
	if !c.isOpen {
		return
	}
	c.isOpen = false
	for k := range plugins.NumKinds {
		e.tellClose(c, k)
		e.of(c, k).flows--
	}
}

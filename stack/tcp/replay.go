package tcp

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// The segment log is the engine's, with the marks that modules have set by command, so that it survives them. A module that takes a flow
// over gets it by events, a bounded number per turn, rather than by mapping it: entries are cut, grow and are acknowledged at any time,
// which a process that reads them beside the engine would have to be kept from seeing halfway; an event is copied and checked once, on
// the ring that is there anyway; and a built-in module, which has no mapping, gets the same. What the engine cannot leave to marks is
// what the peer has SACKed and no module has told it of: that which arrives during the replay, and what a process was told of before it
// died. It is kept beside the log.

// What of a flow's log its new rtx module has been told.
const (
	replayNothing uint8 = iota
	replayLog           // its Resume; the log is on its way
	replayHeard         // the log; what was SACKed meanwhile is on its way
)

// resumeRtx sends the Resume and the log of a flow to its rtx module, as much as budget allows. Until the log has ended, the flow
// sends nothing new and its acknowledgements only shorten the log.
func (e *Engine) resumeRtx(c *Conn, budget int) (used int) {
	if c.replay == replayNothing {
		e.resumed(c, plugins.Rtx)
		ev := e.rtxEvent(c, rtx.EvResume)
		ev.Seq, ev.End, ev.MSS = c.sndUna, c.sndNxt, c.mss
		ev.Echo = plugins.Time(c.stat.srtt)
		ev.FirstSent = plugins.Time(c.stat.minRTT)
		ev.DeliveredTime = plugins.Time(c.stat.rttvar) * 1000
		ev.Delivered, ev.Lost = c.stat.delivered, c.stat.lost
		ev.Flags = c.rtxFlags()
		ev.TxID = c.txID
		c.replay, used = replayLog, 1
		if c.out.log.n == 0 {
			ev.Flags |= rtx.FlagLast
			e.replayed(c)
			return used
		}
		c.out.told = c.sndUna
	}
	if c.replay == replayLog {
		used += e.replay(c, budget-used)
	}
	if c.replay == replayHeard {
		used += e.replayHeard(c, budget-used)
	}
	return used
}

// replay tells of the log, as far as that has not been done.
func (e *Engine) replay(c *Conn, budget int) (used int) {
	if c.out.log.n == 0 { // everything was acknowledged meanwhile
		e.rtxEvent(c, rtx.EvLog).Flags = rtx.FlagLast
		e.replayed(c)
		return 1
	}
	log := &c.out.log
	for p := log.seek(c.out.told); used < budget; p = log.next(p) {
		s := log.get(p)
		if s == nil {
			return used
		}
		if c.markHeard(s) {
			p = log.seek(s.seq) // it may be in pieces now
			s = log.get(p)
		}
		ev := e.rtxEvent(c, rtx.EvLog)
		ev.Seq, ev.End, ev.TxID, ev.Time, ev.Timer = s.seq, s.end, s.txID+uint32(s.run), s.time, s.mark
		ev.Delivered, ev.DeliveredTime, ev.FirstSent, ev.Lost = s.delivered, s.deliveredTime, s.firstSent, s.lost
		if s.mark&rtx.MarkRetrans != 0 {
			ev.Flags |= rtx.FlagRetrans
		}
		if s.appLimited {
			ev.Flags |= rtx.FlagAppLimited
		}
		c.out.told = s.end
		used++
		if s.end == c.sndNxt {
			ev.Flags |= rtx.FlagLast
			c.replay, c.out.told = replayHeard, c.sndUna
			return used
		}
	}
	return used
}

// replayHeard tells of what the peer has SACKed since the log was told, and before, as acknowledgements.
func (e *Engine) replayHeard(c *Conn, budget int) (used int) {
	for used < budget {
		at := c.off(seq.Max(c.out.told, c.sndUna))
		r := c.out.heard.Next(at)
		if r.Len() == 0 {
			e.replayed(c)
			return used
		}
		ev := e.rtxEvent(c, rtx.EvAck)
		ev.MSS, ev.Seq, ev.End, ev.Wnd = c.mss, c.sndUna, c.sndNxt, c.sndWnd
		for ; r.Len() > 0 && int(ev.NSack) < len(ev.Sack); r = c.out.heard.Next(r.End) {
			ev.Sack[ev.NSack] = seq.Range{Start: c.sndSeq(max(r.Start, at)), End: c.sndSeq(r.End)}
			c.out.told = ev.Sack[ev.NSack].End
			ev.NSack++
		}
		used++
	}
	return used
}

// replayed ends a replay: the module knows what the engine knows.
func (e *Engine) replayed(c *Conn) {
	c.resume[plugins.Rtx] = false
	if e.rtx.insts[c.mod[plugins.Rtx]].remote == nil {
		c.out.heard.Reset()
	}
	e.makeReady(c)
}

// hear keeps what an acknowledgement SACKs.
func (c *Conn) hear(ev *rtx.Event) {
	if c.out == &nothing {
		return
	}
	h := &c.out.heard
	h.SetLimit(heardMost)
	for _, r := range ev.Sack[:ev.NSack] {
		h.Add(c.off(r.Start), c.off(r.End))
	}
}

// sndSeq is the sequence number of offset off of the stream that is sent.
func (c *Conn) sndSeq(off uint64) uint32 { return c.sndUna + uint32(off-c.unaOff) }

// heardMost bounds the ranges that are kept of what was SACKed.
const heardMost = 1 << 16

// markHeard marks what was heard of s, a piece of the log, in whole packets. It reports whether anything was.
func (c *Conn) markHeard(s *segment) (marked bool) {
	if s.mark&rtx.MarkSacked != 0 {
		return false
	}
	first, last, unit := s.seq, s.end, max(uint32(s.unit), 1)
	at, end := c.off(first), c.off(last)
	for r := c.out.heard.Next(at); r.Len() > 0 && r.Start < end; r = c.out.heard.Next(r.End) {
		part := seq.Range{Start: first, End: last}
		if r.Start > at {
			part.Start += (uint32(r.Start-at) + unit - 1) / unit * unit
		}
		if r.End < end {
			part.End = first + uint32(r.End-at)/unit*unit
		}
		if seq.Before(part.Start, part.End) {
			c.out.log.sack(part)
			marked = true
		}
	}
	return marked
}

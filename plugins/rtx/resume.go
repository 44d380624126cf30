package rtx

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// resume starts a live flow from the engine's snapshot. Its log follows, if there is something outstanding.
func (m *module) resume(f *flow, ev *Event) {
	f.nxt = ev.End
	if ev.End-ev.Seq > maxSpan {
		f.nxt = f.una
	}
	f.delivered, f.lost = ev.Delivered, ev.Lost
	if srtt := int64(ev.Echo); srtt > 0 {
		f.rtt.sample(&m.cfg, srtt, f.una, f.nxt)
		f.rtt.mdev4 = min(max(int64(ev.DeliveredTime), 0), 1<<50) << 2 // RTTVar
		f.rtt.rttvar = max(f.rtt.mdev4, int64(m.cfg.rtoMin))
		f.rtt.mdevMax = f.rtt.rttvar
	}
	if least := int64(ev.FirstSent); least > 0 {
		f.minRTT.update(m.cfg.minRTTWindow, ev.Time, plausibleRTT(least))
	}
	f.set(flowReplaying, f.nxt != f.una && ev.Flags&FlagLast == 0)
	if !f.has(flowReplaying) {
		f.una = f.nxt
		f.fack, f.highSeq = f.nxt, f.nxt
	}
}

// replay takes one entry of the log.
func (m *module) replay(f *flow, ev *Event) {
	if !f.has(flowReplaying) {
		return
	}
	at := f.una // where the entry must start
	if f.q != nil {
		at = f.q.tail.end
	}
	if !seq.Before(ev.Seq, ev.End) || seq.Before(ev.Seq, at) || seq.After(ev.End, f.nxt) {
		if ev.Seq == ev.End && ev.Flags&FlagLast != 0 { // everything was acknowledged meanwhile
			m.dropReplayed(f, f.nxt)
		}
	} else {
		if ev.Seq != at { // as was what lies below a gap
			m.dropReplayed(f, ev.Seq)
		}
		m.replayOne(f, ev)
	}
	if ev.Flags&FlagLast != 0 {
		m.endReplay(f, ev.Time)
	}
}

// dropReplayed moves SND.UNA to una during a replay.
func (m *module) dropReplayed(f *flow, una uint32) {
	if f.q != nil {
		m.pool.freeQueue(f.q)
		f.q = nil
	}
	f.sackedOut, f.lostOut, f.retransOut, f.sackedPkts = 0, 0, 0, 0
	f.una = una
}

// replayOne appends one entry of the log to the queue, with its mark as a hint that the next acknowledgements will confirm.
func (m *module) replayOne(f *flow, ev *Event) {
	if f.q == nil {
		f.q = m.pool.newQueue()
	}
	q := f.q
	g := m.pool.get()
	*g = segment{
		seq: ev.Seq, key: ev.Seq, end: ev.End, unit: unit(f.mss), txid: ev.TxID, sent: ev.Time, firstSent: ev.FirstSent,
		delivered: ev.Delivered, deliveredTime: ev.DeliveredTime, lost: uint32(ev.Lost),
	}
	n := g.len()
	mark := ev.Timer
	if ev.Flags&FlagAppLimited != 0 {
		g.flags |= segAppLimited
	}
	if ev.Flags&FlagRetrans != 0 || mark&MarkRetrans != 0 {
		g.flags |= segEverRetrans
		f.dupBudget += min(n, 1<<32-1-f.dupBudget)
	}
	q.append(&m.pool, g)
	switch {
	case mark&MarkSacked != 0 && !f.has(flowNoSACK):
		g.flags |= segSacked
		g.pkts = g.packets()
		f.sackedOut += n
		f.sackedPkts += g.pkts
		f.fack = g.end
		if g.prev != nil && g.prev.is(segSacked) {
			m.join(q, g.prev)
		}
	case mark&MarkLost != 0:
		g.flags |= segLost
		f.lostOut += n
		q.pushLost(g)
	default:
		q.pushSent(g)
	}
	g.txInFlight = f.inFlightOf(q)
}

// inFlightOf is what the replayed part of the queue has in flight.
func (f *flow) inFlightOf(q *queue) uint32 { return q.tail.end - q.head.seq - f.sackedOut - f.lostOut }

// endReplay makes the flow live: its log has ended, or the engine goes on without the rest of it.
func (m *module) endReplay(f *flow, now plugins.Time) {
	f.bits &^= flowReplaying
	if f.q == nil {
		f.una = f.nxt
	} else {
		f.una = f.q.head.seq
		f.nxt = f.q.tail.end
		q := f.q
		list := sortBySending(&m.pool, q.xhead)
		q.xhead, q.xtail = nil, nil
		q.mergeSent(&m.pool, list)
	}
	f.fack = seq.Max(f.fack, f.una)
	f.highSeq = f.nxt
	f.rtt.seq = f.nxt
	switch {
	case f.lostOut > 0: // the engine knows of the loss and has reduced
		f.ca = CARecovery
	case f.sackedOut > 0:
		f.ca = CADisorder
	}
	f.rtoBase, f.ptoBase = now, now
}

package rtx

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// sent takes a transmission: new data, a retransmission, or (from an engine that joined late) both.
func (m *module) sent(f *flow, b *batch, ev *Event) {
	if ev.MSS != 0 {
		f.mss = ev.MSS
	}
	start := seq.Max(ev.Seq, f.una)
	if !seq.Before(start, ev.End) {
		return
	}
	if seq.Before(start, f.nxt) {
		m.resent(f, start, seq.Min(ev.End, f.nxt), ev)
	}
	if seq.After(ev.End, f.nxt) && ev.End-f.una <= maxSpan {
		m.sentNew(f, ev)
	}
}

// sentNew appends what lies between SND.NXT and the event's end.
func (m *module) sentNew(f *flow, ev *Event) {
	if f.q == nil {
		f.q = m.pool.newQueue()
		f.firstSent, f.deliveredTime = ev.Time, ev.Time
		f.rtoBase = ev.Time // RFC 6298, 5.1
	}
	g := m.pool.get()
	*g = segment{seq: f.nxt, key: f.nxt, end: ev.End, unit: unit(f.mss)}
	f.nxt = ev.End
	f.snapshot(g, ev)
	f.q.append(&m.pool, g)
	f.q.pushSent(g)
	f.ptoBase = ev.Time
	if ev.Flags&FlagProbe != 0 {
		m.probed(f, ev.Time, false)
	}
}

func unit(mss uint32) uint16 { return uint16(min(mss, 1<<16-1)) }

// resent finds [start, end) in the queue and stamps it anew. What was sent in one packet becomes one segment.
func (m *module) resent(f *flow, start, end uint32, ev *Event) {
	q, p := f.q, &m.pool
	g := q.find(p, start, q.hint)
	if g != nil && g.seq != start && !g.is(segSacked) {
		g = q.split(p, g, start)
	}
	var last *segment // of this transmission
	for ; g != nil && seq.Before(g.seq, end); g = g.next {
		if g.is(segSacked) {
			continue
		}
		if seq.After(g.end, end) {
			q.split(p, g, end)
		}
		m.resentOne(f, g, ev)
		g.txid -= (end - g.end + uint32(g.unit) - 1) / uint32(g.unit) // of those behind it
		if last != nil && last.next == g && last.flags == g.flags {
			q.leave(g)
			last.txInFlight, last.txid = g.txInFlight, g.txid
			q.absorb(p, last)
			g = last
		}
		last = g
	}
	if last == nil {
		return
	}
	q.hint = last
	if ev.Flags&FlagProbe != 0 {
		m.probed(f, ev.Time, true)
	}
}

// resentOne stamps g, which is not SACKed, with a retransmission.
func (m *module) resentOne(f *flow, g *segment, ev *Event) {
	q := f.q
	q.leave(g)
	n := g.len()
	f.dupBudget += min(n, 1<<32-1-f.dupBudget)
	if ev.Flags&FlagProbe == 0 {
		if !g.is(segRetrans) {
			f.retransOut += n
		}
		g.flags |= segRetrans
		f.undoRetrans += min(n, 1<<32-1-f.undoRetrans)
		f.bits |= flowUndoSent
		if !f.has(flowStamp) {
			f.bits |= flowStamp
			f.retransStamp = ev.Time
		}
		if g == q.head { // Linux: the timer of a retransmitted head starts again
			f.rtoBase = ev.Time
		}
	} else if g.waiting() { // sent, so it waits no longer
		g.flags |= segRetrans
		f.retransOut += n
	}
	g.flags |= segEverRetrans
	g.unit = unit(f.mss)
	f.snapshot(g, ev)
	q.pushSent(g)
}

// probed notes a tail-loss probe (RFC 8985, 7.3): what acknowledges SND.NXT of now answers it.
func (m *module) probed(f *flow, at plugins.Time, isCopy bool) {
	f.bits |= flowProbeOut
	f.set(flowProbeCopy, isCopy)
	f.bits &^= flowProbeOK
	f.tlpEnd = f.nxt
	f.rtoBase = at
}

package rtx

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// ackState is what one acknowledgement brought to light.
type ackState struct {
	now, echo plugins.Time
	minRTT    plugins.Time // before this acknowledgement
	bytes     uint32       // cumulatively acknowledged
	pkts      int          // segments fully acknowledged by SND.UNA, at most 2
	delivered uint32

	advanced, sacked, dup bool
	dsack, dsackProbe     bool // RFC 3708
	retransAcked          bool // SND.UNA passed a segment that was sent again
	origAcked             bool // what was sent once, before the last timeout, is now acknowledged
	reordered             bool
	lostRetrans           bool // a retransmission was lost
	undone                bool // loss marks were taken back: look for losses again
	selective             bool // it is at its SACK blocks

	// Send times of segments that were sent once: the earliest and the latest, cumulatively and selectively acknowledged.
	firstAck, lastAck, firstSack, lastSack plugins.Time
	hasAck, hasSack                        bool

	sample sample

	rackSent plugins.Time
	rackTx   uint32
	rack     bool
}

// ack takes one acknowledgement. The order is that of Linux tcp_ack and of RFC 8985, 6.2.
func (m *module) ack(f *flow, b *batch, ev *Event) {
	if ev.MSS != 0 {
		f.mss = ev.MSS
	}
	a := ackState{now: ev.Time, echo: ev.Echo, minRTT: plugins.Time(f.minRTT.get()), dup: ev.Flags&FlagDup != 0}
	if f.q == nil { // nothing is outstanding, so that it acknowledges nothing; it may say that a probe was not needed
		if !ev.DSack.Empty() {
			m.duplicate(f, &a, ev.DSack)
			m.probeAcked(f, b, &a)
		}
		return
	}
	una := seq.Min(seq.Max(ev.Seq, f.una), f.nxt)
	if una != f.una {
		m.cumulative(f, b, &a, una)
	}
	if f.q != nil && ev.NSack > 0 && !f.has(flowNoSACK) {
		a.selective = true
		m.selective(f, b, &a, ev)
	}
	if !ev.DSack.Empty() {
		m.duplicate(f, &a, ev.DSack)
	}
	if a.sample.valid {
		f.firstSent = a.sample.sent
		if !b.sample.valid || seq.After(a.sample.txid, b.sample.txid) {
			b.sample = a.sample
		}
	}
	m.roundTrip(f, b, &a)
	m.rackUpdate(f, &a)
	m.probeAcked(f, b, &a)
	if a.advanced {
		f.rtoBase, f.ptoBase = a.now, a.now // RFC 6298, 5.3; RFC 8985, 7.2
		f.timeouts = 0
	}
	m.recover(f, b, &a)
	if f.q != nil && f.q.head == nil {
		m.emptied(f)
	}
}

// emptied gives the queue of a flow back that has nothing outstanding.
func (m *module) emptied(f *flow) {
	m.pool.freeQueue(f.q)
	f.q = nil
	f.sackedOut, f.sackedPkts = 0, 0
}

// cumulative moves SND.UNA to una, which is ahead of it and not beyond SND.NXT.
func (m *module) cumulative(f *flow, b *batch, a *ackState, una uint32) {
	a.advanced = true
	a.bytes = una - f.una
	q := f.q
	if q.hint != nil && seq.BeforeEq(q.hint.end, una) {
		q.hint = nil
	}
	var last *segment
	n := 0
	g := m.inOrder(f, a, una, &last, &n)
	for g != nil && seq.BeforeEq(g.end, una) {
		m.acked(f, a, g, g.len())
		if !g.is(segSacked) {
			q.leave(g)
		}
		last, g = g, g.next
		n++
		m.pool.visits++
	}
	if g != nil && seq.Before(g.seq, una) {
		m.acked(f, a, g, una-g.seq)
		g.seq = una
		if g.is(segSacked) {
			left := min(g.pkts, g.packets())
			f.sackedPkts -= g.pkts - left
			g.pkts = left
		}
	}
	if last != nil {
		a.pkts = min(n, 2)
		q.dropFront(&m.pool, last, n)
	}
	f.una = una
	f.fack = seq.Max(f.fack, una)
	if f.has(flowNoSACK) { // the rest of what duplicates stood for remains (Linux tcp_remove_reno_sacks)
		most := a.bytes - min(a.bytes, f.mss) // one packet filled a hole
		f.sackedOut = min(f.sackedOut-min(f.sackedOut, most), f.flight()-f.lostOut)
		f.sackedPkts = (f.sackedOut + f.mss - 1) / f.mss
		counted := min(f.dupCounted, most)
		f.dupCounted -= counted
		a.delivered = a.bytes - counted
		if a.retransAcked {
			a.origAcked = false // without SACK, progress may be due to the retransmission (Linux)
		}
	}
	f.deliver(b, a.now, a.delivered)
}

// inOrder is the short way for what was sent once, in order, and is neither SACKed nor lost: one look at each segment. It returns the
// first segment that it does not fit, and counts the rest.
func (m *module) inOrder(f *flow, a *ackState, una uint32, last **segment, n *int) *segment {
	q := f.q
	first := q.head
	g := first
	var newest *segment
	for g != nil && g == q.xhead && seq.BeforeEq(g.end, una) && !g.is(segSacked|segLost|segRetrans|segEverRetrans) {
		if q.before == g {
			q.before = nil
		}
		q.xhead = g.xnext
		newest = g
		g = g.next
		*n++
	}
	m.pool.visits += uint64(*n)
	if newest == nil {
		return g
	}
	*last = newest
	if q.xhead == nil {
		q.xtail = nil
	} else {
		q.xhead.xprev = nil
	}
	a.delivered += newest.end - first.seq
	m.original(f, a, first)
	if newest != first {
		a.lastAck = newest.sent
	}
	m.newest(a, newest)
	return g
}

// acked accounts for n bytes of g that SND.UNA passes.
func (m *module) acked(f *flow, a *ackState, g *segment, n uint32) {
	if g.is(segSacked) {
		f.sackedOut -= n
		if n == g.len() {
			f.sackedPkts -= g.pkts
		}
		return
	}
	if g.is(segLost) {
		f.lostOut -= n
	}
	if g.is(segRetrans) {
		f.retransOut -= n
	}
	a.delivered += n
	if g.is(segEverRetrans) {
		a.retransAcked = true
	} else {
		m.original(f, a, g)
	}
	m.newest(a, g)
}

// original notes that g, which was sent once, is cumulatively acknowledged.
func (m *module) original(f *flow, a *ackState, g *segment) {
	if !a.hasAck {
		a.hasAck, a.firstAck = true, g.sent
	}
	a.lastAck = g.sent
	if seq.Before(g.end, f.fack) {
		a.reordered = true // RFC 8985, 6.2 step 3
	}
	if seq.BeforeEq(g.end, f.highSeq) {
		a.origAcked = true
	}
}

// newest offers g, which is delivered now, to the rate sampler and to RACK.
func (m *module) newest(a *ackState, g *segment) {
	a.sample.consider(g)
	if a.rack && !seq.After(g.txid, a.rackTx) {
		return
	}
	if g.is(segEverRetrans) && !m.plausible(a, g) {
		return
	}
	a.rack, a.rackTx, a.rackSent = true, g.txid, g.sent
}

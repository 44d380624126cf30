package rtx

import "github.com/fastpath-tcp/fastpath/stack/seq"

// selective takes the SACK blocks of an acknowledgement, in order of sequence so that each search goes on from the last.
func (m *module) selective(f *flow, b *batch, a *ackState, ev *Event) {
	var blocks [MaxSack]seq.Range
	n := 0
	q := f.q
	seen := q.seen
	q.seen = ev.Sack
	for i := int(ev.NSack); i < MaxSack; i++ {
		q.seen[i] = seq.Range{}
	}
	for _, r := range q.seen {
		if r == seen[0] || r == seen[1] || r == seen[2] || r == seen[3] || r.Empty() {
			continue
		}
		r.Start, r.End = seq.Max(r.Start, f.una), seq.Min(r.End, f.nxt)
		if !seq.Before(r.Start, r.End) {
			continue
		}
		i := n
		for ; i > 0 && seq.Before(r.Start, blocks[i-1].Start); i-- {
			blocks[i] = blocks[i-1]
		}
		blocks[i] = r
		n++
	}
	var hint *segment
	for _, r := range blocks[:n] {
		hint = m.block(f, b, a, r, hint)
	}
}

// block marks what one SACK block covers. Runs of SACKed segments are merged, so that it looks only at what it changes and at the
// runs between. It returns a segment near its end.
func (m *module) block(f *flow, b *batch, a *ackState, r seq.Range, hint *segment) *segment {
	q, p := f.q, &m.pool
	g := q.find(p, r.Start, hint)
	for g != nil && seq.Before(g.seq, r.End) {
		if g.is(segSacked) {
			hint = g
			g = g.next
			p.visits++
			continue
		}
		if seq.Before(g.seq, r.Start) || seq.After(g.end, r.End) {
			whole := m.fit(f, b, g, r)
			if whole == nil {
				hint = g
				g = g.next
				continue
			}
			g = whole
		}
		hint = m.sack(f, b, a, g)
		g = hint.next
		p.visits++
	}
	return hint
}

// fit cuts the part of g out that r covers, in whole packets: a block that covers part of a packet says nothing about it, and must not
// cost a segment (Linux tcp_match_skb_to_sack; CVE-2019-11478). It returns nil if no whole packet is covered, or if the
// queue has too many segments to be cut further.
func (m *module) fit(f *flow, b *batch, g *segment, r seq.Range) *segment {
	q, p, unit := f.q, &m.pool, uint32(g.unit)
	from, to := uint32(0), g.len()
	if seq.Before(g.seq, r.Start) {
		from = (r.Start - g.seq + unit - 1) / unit * unit
	}
	if seq.After(g.end, r.End) {
		to = (r.End - g.seq) / unit * unit
	}
	if from >= to {
		return nil
	}
	if f.crowded() {
		b.flags |= FlagSackLimited
		return nil
	}
	start, end := g.seq+from, g.seq+to
	if from > 0 {
		g = q.split(p, g, start)
	}
	if g.end != end {
		q.split(p, g, end)
	}
	return g
}

// SACK blocks cut no segment of a queue that has as many as maxPieces, unless they are larger than pieceBytes on average. That bounds by what is
// outstanding the memory that a peer can demand, and the work, whatever segment size it has announced (CVE-2019-11477, CVE-2019-11479). What
// is not marked for this is sent again, which the peer has itself to thank for.
const (
	maxPieces  = 1024
	pieceBytes = 256
)

// crowded reports whether SACK blocks may cut nothing more.
func (f *flow) crowded() bool { return f.q.n >= maxPieces && uint32(f.q.n) >= f.flight()/pieceBytes }

// sack marks g as selectively acknowledged and merges it with SACKed neighbours. It returns the segment that g is now part of.
func (m *module) sack(f *flow, b *batch, a *ackState, g *segment) *segment {
	q, p := f.q, &m.pool
	n := g.len()
	a.sacked = true
	m.newest(a, g)
	if g.is(segLost) {
		f.lostOut -= n
	}
	if g.is(segRetrans) {
		f.retransOut -= n
	}
	if !g.is(segEverRetrans) {
		m.originalSacked(f, a, g)
	}
	f.fack = seq.Max(f.fack, g.end)
	q.leave(g)
	g.flags = g.flags&^(segLost|segRetrans) | segSacked
	g.pkts = g.packets()
	f.sackedOut += n
	f.sackedPkts += g.pkts
	f.deliver(b, a.now, n)
	m.tellSacked(f, b, g)
	if left := g.prev; left != nil && left.is(segSacked) {
		m.join(q, left)
		g = left
	}
	if right := g.next; right != nil && right.is(segSacked) {
		m.join(q, g)
	}
	p.visits++
	return g
}

// originalSacked notes that g, which was sent once, is selectively acknowledged.
func (m *module) originalSacked(f *flow, a *ackState, g *segment) {
	if !a.hasSack {
		a.hasSack, a.firstSack = true, g.sent
	}
	a.lastSack = g.sent
	if seq.Before(g.end, f.fack) {
		a.reordered = true
	}
	if seq.BeforeEq(g.end, f.highSeq) {
		a.origAcked = true
	}
}

// join merges two SACKed neighbours. The snapshot of the one sent last stays, for the day that the peer reneges.
func (m *module) join(q *queue, g *segment) {
	r := g.next
	g.pkts += r.pkts
	g.flags |= r.flags & (segEverRetrans | segMixed)
	if r.txid-g.txid != r.packets() {
		g.flags |= segMixed
	}
	g.unit = max(g.unit, r.unit)
	if seq.After(r.txid, g.txid) {
		g.txid, g.sent, g.firstSent, g.deliveredTime = r.txid, r.sent, r.firstSent, r.deliveredTime
		g.delivered, g.lost, g.txInFlight = r.delivered, r.lost, r.txInFlight
	}
	q.absorb(&m.pool, g)
}

// duplicate takes a D-SACK (RFC 2883). One for more than was ever sent again is forged, or the network's own duplicate.
func (m *module) duplicate(f *flow, a *ackState, r seq.Range) {
	n := r.Len()
	if n > f.dupBudget {
		return
	}
	f.dupBudget -= n
	if f.has(flowProbeOut|flowProbeCopy) && r.End == f.tlpEnd {
		a.dsackProbe = true
	}
	a.dsack = true
	if f.has(flowUndo) && f.undoRetrans > 0 && seq.After(r.End, f.undoMarker) {
		f.undoRetrans -= min(n, f.undoRetrans)
	}
}

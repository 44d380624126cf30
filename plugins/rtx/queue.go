package rtx

import "github.com/fastpath-tcp/fastpath/stack/seq"

// queue is one flow's retransmit queue: contiguous segments in order of sequence, the same segments in order of transmission, and
// those that wait for retransmission. Short queues are searched by walking; the module btree gives long ones an index.
type queue struct {
	head, tail   *segment // by sequence
	xhead, xtail *segment // by transmission: neither SACKed nor waiting
	lhead, ltail *segment // waiting: lost and not sent again
	// before is the last segment by transmission that was sent before RACK.segment; all from xhead to it were. nil if none was.
	before *segment
	hint   *segment           // the last segment that was retransmitted; nil if it left
	seen   [MaxSack]seq.Range // blocks of the last acknowledgement that had some: most are repeated
	n      int
	idx    *index // nil while the queue is short, and always in the module list
	next   *queue // free list
}

// newQueue takes an empty queue from the pool.
func (p *pool) newQueue() *queue {
	q := p.queues
	if q == nil {
		return new(queue)
	}
	p.queues = q.next
	q.next = nil
	return q
}

// freeQueue gives a queue and all that it holds back.
func (p *pool) freeQueue(q *queue) {
	if q.head != nil {
		p.put(q.head, q.tail, q.n)
	}
	if q.idx != nil {
		p.idx.put(q.idx)
	}
	*q = queue{next: p.queues}
	p.queues = q
}

// append adds g at the end of both orders.
func (q *queue) append(p *pool, g *segment) {
	g.next, g.prev = nil, q.tail
	if q.tail == nil {
		q.head = g
	} else {
		q.tail.next = g
	}
	q.tail = g
	q.n++
	if q.idx != nil {
		q.idx.append(p, g)
	} else if q.n > p.idx.threshold {
		q.buildIndex(p)
	}
}

func (q *queue) buildIndex(p *pool) {
	q.idx = p.idx.get(p)
	for g := q.head; g != nil; g = g.next {
		q.idx.append(p, g)
	}
}

// shrunk drops the index of a queue that has become short. Half of the threshold, so that it does not come and go.
func (q *queue) shrunk(p *pool) {
	if q.idx != nil && q.n <= p.idx.threshold/2 {
		p.idx.put(q.idx)
		q.idx = nil
	}
}

// find returns the segment that holds s, which must lie between the head's start and the tail's end. hint is nil or a segment of the
// queue that s is probably near.
func (q *queue) find(p *pool, s uint32, hint *segment) *segment {
	g := q.head
	if hint != nil && seq.AfterEq(s, hint.seq) {
		g = hint
	}
	if q.idx == nil {
		for g != nil && seq.AfterEq(s, g.end) {
			g = g.next
			p.visits++
		}
		p.visits++
		return g
	}
	for range 3 { // skipping ahead is usually a short way
		p.visits++
		if g == nil || seq.Before(s, g.end) {
			return g
		}
		g = g.next
	}
	return q.idx.find(p, s)
}

// split cuts g at sequence number at, which lies inside it, and returns the new right part.
func (q *queue) split(p *pool, g *segment, at uint32) *segment {
	r := p.get()
	*r = *g
	r.seq, r.key = at, at
	g.end = at
	if !g.is(segMixed) {
		g.txid -= r.packets()
		if x := g.xprev; x != nil && !g.is(segSacked) && !g.waiting() && seq.After(x.txid, g.txid) { // cut inside of packets
			g.txid = x.txid
		}
	}
	r.prev, r.next = g, g.next
	if g.next == nil {
		q.tail = r
	} else {
		g.next.prev = r
	}
	g.next = r
	q.n++
	if q.idx != nil {
		q.idx.insertAfter(p, g, r)
	} else if q.n > p.idx.threshold {
		q.buildIndex(p)
	}
	switch {
	case g.is(segSacked):
	case g.waiting():
		r.xprev, r.xnext = g, g.xnext
		if g.xnext == nil {
			q.ltail = r
		} else {
			g.xnext.xprev = r
		}
		g.xnext = r
	default:
		r.xprev, r.xnext = g, g.xnext
		if g.xnext == nil {
			q.xtail = r
		} else {
			g.xnext.xprev = r
		}
		g.xnext = r
		if q.before == g {
			q.before = r
		}
	}
	return r
}

// absorb merges g's right neighbour into g. Only the order of sequence is left to do: the neighbour is on no other list.
func (q *queue) absorb(p *pool, g *segment) {
	r := g.next
	if q.idx != nil {
		q.idx.remove(p, r)
	}
	g.end = r.end
	g.next = r.next
	if r.next == nil {
		q.tail = g
	} else {
		r.next.prev = g
	}
	if q.hint == r {
		q.hint = g
	}
	q.n--
	p.put(r, r, 1)
	q.shrunk(p)
}

// dropFront removes the first n segments, up to and with last, which are on no other list any more.
func (q *queue) dropFront(p *pool, last *segment, n int) {
	first := q.head
	q.head = last.next
	if q.head == nil {
		q.tail = nil
	} else {
		q.head.prev = nil
	}
	q.n -= n
	if q.idx != nil {
		q.idx.popFront(p, n)
		q.shrunk(p)
	}
	p.put(first, last, n)
}

// pushSent puts g at the end of the order of transmission.
func (q *queue) pushSent(g *segment) {
	g.xnext, g.xprev = nil, q.xtail
	if q.xtail == nil {
		q.xhead = g
	} else {
		q.xtail.xnext = g
	}
	q.xtail = g
}

// pushLost puts g at the end of the waiting segments.
func (q *queue) pushLost(g *segment) {
	g.xnext, g.xprev = nil, q.ltail
	if q.ltail == nil {
		q.lhead = g
	} else {
		q.ltail.xnext = g
	}
	q.ltail = g
}

// leave takes g off the order of transmission or the waiting segments, wherever it is. g must not be SACKed.
func (q *queue) leave(g *segment) {
	head, tail := &q.xhead, &q.xtail
	if g.waiting() {
		head, tail = &q.lhead, &q.ltail
	} else if q.before == g {
		q.before = g.xprev
	}
	if g.xprev == nil {
		*head = g.xnext
	} else {
		g.xprev.xnext = g.xnext
	}
	if g.xnext == nil {
		*tail = g.xprev
	} else {
		g.xnext.xprev = g.xprev
	}
	g.xnext, g.xprev = nil, nil
}

// restore merges the waiting segments back into the order of transmission.
func (q *queue) restore(p *pool) {
	list := sortBySending(p, q.lhead)
	q.lhead, q.ltail = nil, nil
	q.mergeSent(p, list)
}

// mergeSent merges a list linked by xnext, in order of transmission, into the queue's. Lost segments are mostly older than the rest.
func (q *queue) mergeSent(p *pool, list *segment) {
	q.before = nil // found again by the next loss detection
	at := q.xhead
	for list != nil {
		g := list
		list = g.xnext
		for at != nil && seq.Before(at.txid, g.txid) {
			at = at.xnext
			p.visits++
		}
		if at == nil {
			q.pushSent(g)
			continue
		}
		g.xprev, g.xnext = at.xprev, at
		if at.xprev == nil {
			q.xhead = g
		} else {
			at.xprev.xnext = g
		}
		at.xprev = g
	}
}

// sortBySending sorts a list linked by xnext by transmission id, in linear time if it is sorted already.
func sortBySending(p *pool, list *segment) *segment {
	for g := list; ; g = g.xnext {
		if g == nil || g.xnext == nil {
			return list
		}
		p.visits++
		if seq.After(g.txid, g.xnext.txid) {
			break
		}
	}
	// Merge sort: runs of doubling length, held in one slot per power of two.
	var runs [32]*segment
	for list != nil {
		g := list
		list = g.xnext
		g.xnext = nil
		i := 0
		for ; i < len(runs)-1 && runs[i] != nil; i++ {
			g = mergeLists(p, runs[i], g)
			runs[i] = nil
		}
		runs[i] = mergeLists(p, runs[i], g)
	}
	var out *segment
	for _, r := range runs {
		out = mergeLists(p, r, out)
	}
	return out
}

// mergeLists merges two sorted lists; a's segments come first among equals.
func mergeLists(p *pool, a, b *segment) (first *segment) {
	end := &first
	for a != nil && b != nil {
		p.visits++
		if seq.After(a.txid, b.txid) {
			*end, b = b, b.xnext
		} else {
			*end, a = a, a.xnext
		}
		end = &(*end).xnext
	}
	if a == nil {
		a = b
	}
	*end = a
	return first
}

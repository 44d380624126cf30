package tcp

import (
	"sort"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// segment is one entry of the segment log: a range that was sent and is not acknowledged, as it was last sent.
type segment struct {
	seq, end, txID uint32
	mark           uint8 // rtx.MarkSacked, MarkLost, MarkRetrans
	appLimited     bool
	fin            bool
	time           plugins.Time
	delivered      uint64
	deliveredTime  plugins.Time
	firstSent      plugins.Time
	lost           uint64
}

func (s *segment) len() uint32 { return s.end - s.seq }

// segLog is a connection's segment log: a ring of segments, contiguous and in order of sequence. It belongs to the engine, so
// that it survives a module; the module's marks reach it by command. sacked and lost count the bytes with those marks.
type segLog struct {
	ring         []segment
	head, n      uint32
	sacked, lost uint32
}

func (l *segLog) at(i uint32) *segment { return &l.ring[(l.head+i)&uint32(len(l.ring)-1)] }

// push appends an entry to be filled in. Rings come from pool and grow by doubling.
func (l *segLog) push(pool *ringPool) *segment {
	if l.n == uint32(len(l.ring)) {
		bigger := pool.get(max(2*len(l.ring), minRing))
		for i := range l.n {
			bigger[i] = *l.at(i)
		}
		pool.put(l.ring)
		l.ring, l.head = bigger, 0
	}
	l.n++
	return l.at(l.n - 1)
}

// find returns the index of the first entry that ends after s; n if there is none.
func (l *segLog) find(s uint32) uint32 {
	if l.n > 0 && seq.Before(s, l.at(0).end) {
		return 0
	}
	return uint32(sort.Search(int(l.n), func(i int) bool { return seq.After(l.at(uint32(i)).end, s) }))
}

// ack removes what lies below una.
func (l *segLog) ack(una uint32) {
	for l.n > 0 {
		s := l.at(0)
		if !seq.Before(s.seq, una) {
			break
		}
		n := s.len()
		if seq.After(s.end, una) {
			n = una - s.seq
		}
		l.uncount(s, n)
		if n < s.len() {
			s.seq = una
			break
		}
		l.head++
		l.n--
	}
}

func (l *segLog) uncount(s *segment, n uint32) {
	if s.mark&rtx.MarkSacked != 0 {
		l.sacked -= n
	} else if s.mark&rtx.MarkLost != 0 {
		l.lost -= n
	}
}

// sack marks the segments that lie entirely in r as selectively acknowledged.
func (l *segLog) sack(r seq.Range) {
	for i := l.find(r.Start); i < l.n; i++ {
		s := l.at(i)
		if seq.After(s.end, r.End) {
			return
		}
		if seq.Before(s.seq, r.Start) || s.mark&rtx.MarkSacked != 0 {
			continue
		}
		l.uncount(s, s.len())
		s.mark = s.mark&^rtx.MarkLost | rtx.MarkSacked
		l.sacked += s.len()
	}
}

// renege voids all SACK marks.
func (l *segLog) renege() {
	for i := range l.n {
		l.at(i).mark &^= rtx.MarkSacked
	}
	l.sacked = 0
}

// lose marks as lost what lies in r, was sent with a transmission id of at most txID, and is neither SACKed nor lost yet. It
// returns the number of segments marked.
func (l *segLog) lose(r seq.Range, txID uint32) (marked uint32) {
	for i := l.find(r.Start); i < l.n; i++ {
		s := l.at(i)
		if !seq.Before(s.seq, r.End) {
			break
		}
		if s.mark&(rtx.MarkSacked|rtx.MarkLost) != 0 || int32(s.txID-txID) > 0 {
			continue
		}
		s.mark |= rtx.MarkLost
		l.lost += s.len()
		marked++
	}
	return marked
}

// resent records that entry s is sent again.
func (l *segLog) resent(s *segment) {
	if s.mark&rtx.MarkLost != 0 {
		l.lost -= s.len()
	}
	s.mark = s.mark&^rtx.MarkLost | rtx.MarkRetrans
}

// outstanding is what a connection keeps while it has something in flight.
type outstanding struct {
	log  segLog
	lost lostQueue
	prr  prr
	dups uint32 // without SACK: bytes that duplicate acknowledgements say have arrived
}

// notLost voids all lost marks.
func (o *outstanding) notLost() {
	for i := range o.log.n {
		o.log.at(i).mark &^= rtx.MarkLost
	}
	o.log.lost = 0
	o.lost.r = o.lost.r[:0]
}

// nothing is the outstanding of an idle connection. It is never written.
var nothing outstanding

// outPool keeps outstandings that are not in use. One worker owns it.
type outPool struct {
	free  []*outstanding
	rings ringPool
}

// inUse makes sure that c has an outstanding of its own.
func (p *outPool) inUse(c *Conn) {
	if c.out != &nothing {
		return
	}
	if n := len(p.free); n > 0 {
		c.out, p.free = p.free[n-1], p.free[:n-1]
		return
	}
	c.out = new(outstanding)
}

// idle gives c's outstanding back. Its log is empty.
func (p *outPool) idle(c *Conn) {
	o := c.out
	if o == &nothing {
		return
	}
	c.out = &nothing
	o.lost.r = o.lost.r[:0]
	o.prr, o.dups = prr{}, 0
	if len(o.log.ring) > minRing || cap(o.lost.r) > 64 {
		p.rings.put(o.log.ring)
		*o = outstanding{}
	} else {
		o.log = segLog{ring: o.log.ring}
	}
	p.free = append(p.free, o)
}

const minRing = 4

// ringPool keeps the rings of segment logs by size. One worker owns it.
type ringPool struct {
	free   [24][][]segment
	bytes  int64 // held by logs and by the pool
	budget *mem.Budget
}

// charge counts n bytes more, or less. Logs are small beside the bytes that they describe, so they are never refused.
func (p *ringPool) charge(n int64) {
	p.bytes += n
	p.budget.Add(n)
}

// close gives everything up; no log is in use.
func (p *outPool) close() {
	p.rings.charge(-p.rings.bytes)
	*p = outPool{rings: ringPool{budget: p.rings.budget}}
}

const maxPooledRings = 64

func (p *ringPool) get(n int) []segment {
	k := class(n)
	if f := p.free[k]; len(f) > 0 {
		r := f[len(f)-1]
		p.free[k] = f[:len(f)-1]
		return r
	}
	p.charge(int64(n) * segmentSize)
	return make([]segment, n)
}

func (p *ringPool) put(r []segment) {
	if r == nil {
		return
	}
	k := class(len(r))
	if len(p.free[k]) >= maxPooledRings {
		p.charge(-int64(len(r)) * segmentSize)
		return
	}
	p.free[k] = append(p.free[k], r)
}

const segmentSize = 64

func class(n int) (k int) {
	for n > minRing {
		n >>= 1
		k++
	}
	return k
}

// lostQueue holds ranges that hold lost segments, in order of sequence. The marks in the log are the truth; a range here may
// hold segments that were SACKed or sent again since.
type lostQueue struct{ r []seq.Range }

func (q *lostQueue) empty() bool { return len(q.r) == 0 }

// add inserts r, joined with what it touches.
func (q *lostQueue) add(r seq.Range) {
	n := len(q.r)
	if n > 0 && seq.AfterEq(r.Start, q.r[n-1].Start) { // the usual case: at the end
		if last := &q.r[n-1]; seq.BeforeEq(r.Start, last.End) {
			last.End = seq.Max(last.End, r.End)
			return
		}
		q.r = append(q.r, r)
		return
	}
	i := sort.Search(n, func(i int) bool { return seq.AfterEq(q.r[i].End, r.Start) })
	j := i
	for j < n && seq.BeforeEq(q.r[j].Start, r.End) {
		r.Start, r.End = seq.Min(r.Start, q.r[j].Start), seq.Max(r.End, q.r[j].End)
		j++
	}
	if i == j {
		q.r = append(q.r, seq.Range{})
		copy(q.r[i+1:], q.r[i:])
		q.r[i] = r
		return
	}
	q.r[i] = r
	q.r = append(q.r[:i+1], q.r[j:]...)
}

// trim drops everything before s.
func (q *lostQueue) trim(s uint32) {
	i := 0
	for i < len(q.r) && seq.BeforeEq(q.r[i].End, s) {
		i++
	}
	if i > 0 {
		q.r = q.r[:copy(q.r, q.r[i:])]
	}
	if len(q.r) > 0 && seq.Before(q.r[0].Start, s) {
		q.r[0].Start = s
	}
}

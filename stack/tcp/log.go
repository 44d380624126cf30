package tcp

import (
	"sort"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// segment is one entry of the segment log: a range that was sent and is not acknowledged, as it was last sent. It stands for up to
// maxRun packets, which left together and share everything until an acknowledgement or a retransmission tells them apart: then the
// entry is cut into pieces.
type segment struct {
	seq, end      uint32
	txID          uint32 // transmission id of the first packet that left together with it
	cut           uint32 // 1 + index of its pieces in the pool; 0: it is whole. What follows is the pieces' then
	mark          uint8  // rtx.MarkSacked, MarkLost, MarkRetrans
	appLimited    bool
	fin           bool
	run           uint8  // transmission id of its last packet, less txID
	unit          uint16 // bytes of a packet
	push          bool   // its last packet has PSH, whenever it is sent (as in Linux)
	time          plugins.Time
	delivered     uint64
	deliveredTime plugins.Time
	firstSent     plugins.Time
	lost          uint64
}

// maxRun is the most packets that one entry stands for, and the most pieces that it can be cut into.
const maxRun = quantum

// pieces are the parts of an entry that was cut, in order: p[lo:n].
type pieces struct {
	lo, n uint32
	p     [maxRun]segment
}

func (s *segment) len() uint32 { return s.end - s.seq }

// flags are those of its last packet.
func (s *segment) flags() uint16 {
	f := wire.ACK
	if s.fin {
		f |= wire.FIN
	}
	if s.push {
		f |= wire.PSH
	}
	return f
}

// packets is the number of packets of mss bytes that s is sent in; the FIN takes no room.
func (s *segment) packets(mss uint32) uint32 {
	n := s.len()
	if s.fin {
		n--
	}
	return max((n+mss-1)/max(mss, 1), 1)
}

// segLog is a connection's segment log: a ring of segments, contiguous and in order of sequence. It belongs to the engine, so
// that it survives a module; the module's marks reach it by command. sacked and lost count the bytes with those marks.
type segLog struct {
	ring         []segment
	pool         *ringPool
	head, n      uint32
	sacked, lost uint32
	fack         uint32 // end of the highest SACKed byte, if sacked is not 0
}

// place is where a piece, or a whole entry, is in the log. It holds until something is acknowledged or cut before it.
type place struct {
	i uint32 // entry
	j uint32 // piece of it, if it was cut
}

func (l *segLog) at(i uint32) *segment { return &l.ring[(l.head+i)&uint32(len(l.ring)-1)] }

// push appends an entry to be filled in. Rings come from the pool and grow by doubling.
func (l *segLog) push() *segment {
	if l.n == uint32(len(l.ring)) {
		bigger := l.pool.get(max(2*len(l.ring), minRing))
		for i := range l.n {
			bigger[i] = *l.at(i)
		}
		l.pool.put(l.ring)
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

// start is the place of entry i's first piece.
func (l *segLog) start(i uint32) place {
	p := place{i: i}
	if i < l.n {
		if e := l.at(i); e.cut != 0 {
			p.j = l.pool.pieces(e).lo
		}
	}
	return p
}

// seek returns the place of the first piece that ends after s.
func (l *segLog) seek(s uint32) place {
	p := l.start(l.find(s))
	for g := l.get(p); g != nil && seq.BeforeEq(g.end, s); g = l.get(p) {
		p = l.next(p)
	}
	return p
}

// last is the place of the last piece.
func (l *segLog) last() place {
	p := place{i: l.n - 1}
	if e := l.at(p.i); e.cut != 0 {
		p.j = l.pool.pieces(e).n - 1
	}
	return p
}

// get returns what is at p; nil behind the end.
func (l *segLog) get(p place) *segment {
	if p.i >= l.n {
		return nil
	}
	e := l.at(p.i)
	if e.cut == 0 {
		return e
	}
	return &l.pool.pieces(e).p[p.j]
}

// next is the place behind p.
func (l *segLog) next(p place) place {
	if e := l.at(p.i); e.cut != 0 && p.j+1 < l.pool.pieces(e).n {
		p.j++
		return p
	}
	return l.start(p.i + 1)
}

// cutAt cuts what is at p in two at sequence number at, which lies inside it. It reports false if its entry has too many pieces, which
// only a module that cuts packets can bring about. The left part is at p then, or where the result says.
func (l *segLog) cutAt(p place, at uint32) (place, bool) {
	e := l.at(p.i)
	if e.cut == 0 {
		e.cut = l.pool.newPieces()
		x := l.pool.pieces(e)
		x.lo, x.n = 0, 1
		x.p[0] = *e
		x.p[0].cut = 0
	}
	x := l.pool.pieces(e)
	if x.n == maxRun {
		if x.lo == 0 {
			return p, false
		}
		copy(x.p[:], x.p[x.lo:])
		p.j -= x.lo
		x.n -= x.lo
		x.lo = 0
	}
	copy(x.p[p.j+1:x.n+1], x.p[p.j:x.n])
	x.n++
	left, right := &x.p[p.j], &x.p[p.j+1]
	left.end, right.seq = at, at
	left.fin, left.push = false, false
	left.run -= min(left.run, uint8(min(right.packets(uint32(right.unit)), maxRun)))
	return p, true
}

// ack removes what lies below una. early is as in sack.
func (l *segLog) ack(una uint32) (early uint32) {
	if l.sacked != 0 {
		early = l.overtaken(una)
	}
	for l.n > 0 {
		e := l.at(0)
		if !seq.Before(e.seq, una) {
			break
		}
		if e.cut != 0 {
			l.ackPieces(l.pool.pieces(e), una)
		} else {
			l.ackOne(e, una)
		}
		if seq.After(e.end, una) {
			e.seq = una
			break
		}
		if e.cut != 0 {
			l.pool.freePieces(e)
		}
		l.head++
		l.n--
	}
	return early
}

// overtaken is how far the first of what una acknowledges, was sent once and was not SACKed lies below the highest SACKed byte.
func (l *segLog) overtaken(una uint32) uint32 {
	for p := l.start(0); ; p = l.next(p) {
		g := l.get(p)
		if g == nil || !seq.Before(g.seq, una) || !seq.Before(g.seq, l.fack) {
			return 0
		}
		if g.mark&(rtx.MarkSacked|rtx.MarkRetrans) == 0 {
			return l.fack - g.seq
		}
	}
}

func (l *segLog) ackPieces(x *pieces, una uint32) {
	for ; x.lo < x.n; x.lo++ {
		g := &x.p[x.lo]
		if !seq.Before(g.seq, una) {
			return
		}
		l.ackOne(g, una)
		if seq.After(g.end, una) {
			g.seq = una
			return
		}
	}
}

// clear gives the pieces of all entries back.
func (l *segLog) clear() {
	for i := range l.n {
		if e := l.at(i); e.cut != 0 {
			l.pool.freePieces(e)
		}
	}
}

// ackOne uncounts what of g lies below una.
func (l *segLog) ackOne(g *segment, una uint32) { l.uncount(g, seq.Min(g.end, una)-g.seq) }

func (l *segLog) uncount(s *segment, n uint32) {
	if s.mark&rtx.MarkSacked != 0 {
		l.sacked -= n
	} else if s.mark&rtx.MarkLost != 0 {
		l.lost -= n
	}
}

// covered returns the place of what lies in r, of what is at p and after, cutting where r begins or ends inside; nil if nothing does.
func (l *segLog) covered(p place, r seq.Range) (place, *segment) {
	g := l.get(p)
	if g != nil && seq.Before(g.seq, r.Start) {
		ok := false
		if p, ok = l.cutAt(p, r.Start); !ok {
			p = l.next(p)
			return l.covered(p, seq.Range{Start: g.end, End: r.End})
		}
		p = l.next(p)
		g = l.get(p)
	}
	if g == nil || !seq.Before(g.seq, r.End) {
		return p, nil
	}
	if seq.After(g.end, r.End) {
		ok := false
		if p, ok = l.cutAt(p, r.End); !ok {
			return p, nil
		}
		g = l.get(p)
	}
	return p, g
}

// sack marks what lies in r as selectively acknowledged. early is how far something that was sent once lies below what was SACKed
// before, in bytes: it has been overtaken on the way. 0: nothing has.
func (l *segLog) sack(r seq.Range) (early uint32) {
	if l.sacked == 0 {
		l.fack = r.Start
	}
	p := l.seek(r.Start)
	for {
		g := l.get(p)
		if g == nil || !seq.Before(g.seq, r.End) {
			return early
		}
		if g.mark&rtx.MarkSacked == 0 {
			if p, g = l.covered(p, r); g == nil {
				return early
			}
			if seq.After(g.end, l.fack) {
				l.fack = g.end
			} else if early == 0 && g.mark&rtx.MarkRetrans == 0 {
				early = l.fack - g.seq
			}
			l.uncount(g, g.len())
			g.mark = g.mark&^rtx.MarkLost | rtx.MarkSacked
			l.sacked += g.len()
		}
		p = l.next(p)
	}
}

// renege voids all SACK marks.
func (l *segLog) renege() {
	l.unmark(rtx.MarkSacked)
	l.sacked = 0
}

func (l *segLog) unmark(mark uint8) {
	for p := l.start(0); ; p = l.next(p) {
		g := l.get(p)
		if g == nil {
			return
		}
		g.mark &^= mark
	}
}

// lose marks as lost what lies in r, was sent with a transmission id of at most txID, and is neither SACKed nor lost yet. It
// returns the number of packets of mss bytes marked.
func (l *segLog) lose(r seq.Range, txID, mss uint32) (marked uint32) {
	p := l.seek(r.Start)
	for {
		g := l.get(p)
		if g == nil || !seq.Before(g.seq, r.End) {
			return marked
		}
		if g.mark&(rtx.MarkSacked|rtx.MarkLost) == 0 && int32(g.txID-txID) <= 0 {
			if p, g = l.covered(p, r); g == nil {
				return marked
			}
			if g.mark&(rtx.MarkSacked|rtx.MarkLost) == 0 && int32(g.txID-txID) <= 0 {
				g.mark |= rtx.MarkLost
				l.lost += g.len()
				marked += g.packets(mss)
			}
		}
		p = l.next(p)
	}
}

// resent records that s is sent again.
func (l *segLog) resent(s *segment) {
	if s.mark&rtx.MarkLost != 0 {
		l.lost -= s.len()
	}
	s.mark = s.mark&^rtx.MarkLost | rtx.MarkRetrans
}

// sameAs records that what lies behind p, up to end, was sent again in one packet with what is at p.
func (l *segLog) sameAs(p place, end uint32) {
	s := l.get(p)
	for at := s.end; at != end; {
		p = l.next(p)
		g := l.get(p)
		l.resent(g)
		same := *s
		same.seq, same.end, same.cut, same.mark, same.fin, same.push = g.seq, g.end, g.cut, g.mark, g.fin, g.push
		*g = same
		at = g.end
	}
}

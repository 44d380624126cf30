package tcp

import (
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/stream"
)

// outstanding is what a connection keeps while it has something in flight.
type outstanding struct {
	log  segLog
	lost lostQueue
	// What the peer has SACKed, as stream offsets, while the rtx module may not know of it: it is a process, which may die with it, or the
	// log is being replayed.
	heard stream.Ranges
	prr   prr
	dups  uint32 // without SACK: bytes that duplicate acknowledgements say have arrived
	told  uint32 // during a Resume: log entries below have been told to the rtx module
}

// notLost voids all lost marks.
func (o *outstanding) notLost() {
	o.log.unmark(rtx.MarkLost)
	o.log.lost = 0
	o.lost.clear()
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
	} else {
		c.out = new(outstanding)
		c.out.log.pool = &p.rings
	}
	c.out.prr.una = c.sndUna
}

// idle gives c's outstanding back, with what is left in its log.
func (p *outPool) idle(c *Conn) {
	o := c.out
	if o == &nothing {
		return
	}
	c.out = &nothing
	o.log.clear()
	o.lost.clear()
	o.heard.Reset()
	o.prr, o.dups, o.told = prr{}, 0, 0
	if len(o.log.ring) > minRing || o.lost.large() {
		p.rings.put(o.log.ring)
		*o = outstanding{}
	}
	o.log = segLog{ring: o.log.ring, pool: &p.rings}
	p.free = append(p.free, o)
}

const minRing = 4

// ringPool keeps the rings of segment logs by size. One worker owns it.
type ringPool struct {
	free   [24][][]segment
	cuts   []*pieces // by index
	idle   []uint32  // indexes of cuts that are not in use, plus one
	bytes  int64     // held by logs and by the pool
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

const (
	segmentSize = 64
	piecesSize  = 8 + maxRun*segmentSize
)

// pieces returns the pieces of an entry that was cut.
func (p *ringPool) pieces(e *segment) *pieces { return p.cuts[e.cut-1] }

// newPieces takes pieces from the pool and returns their index plus one.
func (p *ringPool) newPieces() uint32 {
	if n := len(p.idle); n > 0 {
		i := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return i
	}
	p.cuts = append(p.cuts, new(pieces))
	p.charge(piecesSize)
	return uint32(len(p.cuts))
}

func (p *ringPool) freePieces(e *segment) {
	p.idle = append(p.idle, e.cut)
	e.cut = 0
}

func class(n int) (k int) {
	for n > minRing {
		n >>= 1
		k++
	}
	return k
}

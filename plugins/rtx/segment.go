package rtx

import "github.com/fastpath-tcp/fastpath/plugins"

// State of a segment.
const (
	segSacked      uint8 = 1 << iota // selectively acknowledged
	segLost                          // marked lost; what it was last sent with may or may not be
	segRetrans                       // a retransmission of it is in flight
	segEverRetrans                   // was sent more than once
	segAppLimited                    // was last sent while the application limited the flow
	segMixed                         // was joined from packets that were not sent one after the other
)

// segment is a range of sequence numbers that was sent and is not cumulatively acknowledged, with the snapshot that was taken when it
// was last sent. A selectively acknowledged segment stands for a whole run: neighbours are merged. 96 bytes.
//
// It is on one or two lists: always on that of its queue by sequence; and, unless SACKed, either on the queue's list by
// transmission or, if lost and not sent again since, on its list of lost segments.
type segment struct {
	next, prev   *segment // by sequence
	xnext, xprev *segment // by transmission, or lost

	sent          plugins.Time // last departure
	firstSent     plugins.Time // C.first_send_time then
	deliveredTime plugins.Time // C.delivered_time then
	delivered     uint64       // C.delivered then
	lost          uint32       // C.lost then, modulo 2^32
	txInFlight    uint32       // bytes in flight then, it included

	seq, end uint32
	key      uint32 // seq when it entered the queue; acknowledgements may have moved seq since
	txid     uint32 // of its last packet
	pkts     uint32 // SACKed: how many packets it stands for
	unit     uint16 // packets of this many bytes; a SACK counts for whole ones only
	flags    uint8
}

func (g *segment) len() uint32 { return g.end - g.seq }

// is reports whether one of flags is set.
func (g *segment) is(flags uint8) bool { return g.flags&flags != 0 }

// waiting reports whether g is lost and was not sent again since.
func (g *segment) waiting() bool { return g.flags&(segLost|segRetrans) == segLost }

// packets is the number of packets that g was sent in.
func (g *segment) packets() uint32 {
	n, unit := g.len(), uint32(g.unit)
	if n <= unit {
		return 1
	}
	return (n + unit - 1) / unit
}

// maxFree bounds each free list, so that one long queue does not hold memory for good.
const maxFree = 1 << 18

// pool holds what the flows of one module instance do not need now. It belongs to one worker.
type pool struct {
	segs   *segment // linked by next
	nsegs  int
	slab   int // segments allocated at a time
	queues *queue
	idx    indexPool
	visits uint64 // entries looked at by searches and walks
}

func (p *pool) get() *segment {
	if p.segs == nil {
		slab := make([]segment, p.slab)
		for i := range slab {
			slab[i].next = p.segs
			p.segs = &slab[i]
		}
		p.nsegs += p.slab
	}
	g := p.segs
	p.segs = g.next
	p.nsegs--
	return g
}

// put takes the chain of n segments from first to last, linked by next.
func (p *pool) put(first, last *segment, n int) {
	if p.nsegs >= maxFree {
		return
	}
	last.next = p.segs
	p.segs = first
	p.nsegs += n
}

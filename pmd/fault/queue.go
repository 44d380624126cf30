package fault

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/chance"
	"github.com/fastpath-tcp/fastpath/pmd/internal/ecn"
)

type queue struct {
	pmd.Queue
	port *Port
	tx   draws
	rx   draws

	short   chance.RNG
	limit   int // of the next Poll; -1 is none
	exhaust chance.RNG
	held    []*pmd.Buf // the pool's, while it is exhausted
	polls   int        // left until they return

	out, in []*pmd.Buf // scratch
}

type draws struct{ loss, dup, corrupt, mark chance.RNG }

// parker is a queue whose queue below is a pmd.Parker.
type parker struct {
	*queue
	below pmd.Parker
}

func (p *parker) Park() bool { return p.below.Park() }
func (p *parker) Unpark()    { p.below.Unpark() }

func newQueue(p *Port, below pmd.Queue, i uint64) *queue {
	stream := i << 8
	next := func() chance.RNG {
		stream++
		return chance.New(p.cfg.Seed, stream)
	}
	q := &queue{
		Queue: below, port: p, limit: -1,
		tx: draws{loss: next(), dup: next(), corrupt: next()}, rx: draws{loss: next(), dup: next(), corrupt: next()}, short: next(), exhaust: next(),
	}
	q.tx.mark, q.rx.mark = next(), next()
	return q
}

// Poll implements pmd.Queue.
func (q *queue) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	c := &q.port.cfg
	q.starve()
	offered := tx
	if q.limit >= 0 && len(tx) > q.limit {
		q.port.n.short.Add(1)
		offered = tx[:q.limit]
	}
	if c.Tx.any() && len(offered) > 0 {
		ntx, nrx = q.pollSpoilt(offered, rx)
	} else {
		ntx, nrx = q.Queue.Poll(offered, rx)
	}
	if c.Rx.any() && nrx > 0 {
		nrx = q.spoilRx(rx, nrx)
	}
	q.limit = -1
	if q.short.Hit(c.ShortTx) {
		q.limit = int(q.short.Below(uint64(q.Queue.TxRoom()) + 1))
	}
	return ntx, nrx
}

// TxRoom implements pmd.Queue.
func (q *queue) TxRoom() int {
	room := q.Queue.TxRoom()
	if q.limit >= 0 {
		room = min(room, q.limit)
	}
	return room
}

// Uncompleted implements pmd.Completer.
func (q *queue) Uncompleted() int { return pmd.Uncompleted(q.Queue) }

// pollSpoilt takes no more frames than the port below surely takes: what is refused must be unharmed.
func (q *queue) pollSpoilt(tx, rx []*pmd.Buf) (ntx, nrx int) {
	room := q.Queue.TxRoom()
	q.out = q.out[:0]
	for _, b := range tx {
		if len(q.out) == room {
			break
		}
		ntx++
		if q.tx.loss.Hit(q.port.cfg.Tx.Loss) {
			q.port.n.txLost.Add(1)
			q.free(b)
			continue
		}
		var twin *pmd.Buf
		if q.tx.dup.Hit(q.port.cfg.Tx.Duplicate) && len(q.out)+1 < room {
			if twin = q.twin(b); twin != nil {
				q.port.n.txDup.Add(1)
			}
		}
		if q.tx.corrupted(b, q.port.cfg.Tx.Corrupt) {
			q.port.n.txCorrupt.Add(1)
		}
		if q.tx.marked(b, q.port.cfg.Tx.Mark) {
			q.port.n.txMark.Add(1)
		}
		q.out = append(q.out, b)
		if twin != nil {
			q.out = append(q.out, twin)
		}
	}
	n, nrx := q.Queue.Poll(q.out, rx)
	for _, b := range q.out[n:] { // the port below broke its promise
		q.port.n.txLost.Add(1)
		q.free(b)
	}
	return ntx, nrx
}

// spoilRx changes what was received, in place, and returns how many frames there are now.
func (q *queue) spoilRx(rx []*pmd.Buf, n int) int {
	c := &q.port.cfg.Rx
	q.in = q.in[:0]
	for i, b := range rx[:n] {
		if q.rx.loss.Hit(c.Loss) {
			q.port.n.rxLost.Add(1)
			q.free(b)
			continue
		}
		var twin *pmd.Buf
		if q.rx.dup.Hit(c.Duplicate) && len(q.in)+n-i < len(rx) {
			if twin = q.twin(b); twin != nil {
				q.port.n.rxDup.Add(1)
			}
		}
		if q.rx.corrupted(b, c.Corrupt) {
			q.port.n.rxCorrupt.Add(1)
			b.Flags &^= pmd.RxCsumGood | pmd.RxPartial // it was verified before this happened
		}
		if q.rx.marked(b, c.Mark) {
			q.port.n.rxMark.Add(1)
		}
		q.in = append(q.in, b)
		if twin != nil {
			q.in = append(q.in, twin)
		}
	}
	return copy(rx, q.in)
}

func (d *draws) corrupted(b *pmd.Buf, p PPB) bool {
	const ethHeader, longest = 14, 15
	return d.corrupt.Hit(p) && chance.Corrupt(b.Bytes(), ethHeader, longest, &d.corrupt)
}

// marked marks a frame, if it is of those that are to be and can be. Its twin is another frame, and was copied before.
func (d *draws) marked(b *pmd.Buf, p PPB) bool { return d.mark.Hit(p) && ecn.Mark(b.Bytes()) }

// twin copies a frame with its metadata, or returns nil if there is no buffer.
func (q *queue) twin(b *pmd.Buf) *pmd.Buf {
	t := q.Pool().Get()
	if t == nil {
		return nil
	}
	if !t.Append(b.Bytes()) {
		q.free(t)
		return nil
	}
	t.Flags, t.SegSize, t.L2Len, t.L3Len, t.L4Len, t.Hash = b.Flags, b.SegSize, b.L2Len, b.L3Len, b.L4Len, b.Hash
	return t
}

func (q *queue) free(b *pmd.Buf) {
	if b.Pool() == q.Pool() {
		q.Pool().Put(b)
	} else {
		b.Free()
	}
}

// starve empties the pool for some Polls, now and then.
func (q *queue) starve() {
	c := &q.port.cfg
	switch {
	case q.polls > 1:
		q.polls--
	case q.polls == 1:
		q.restore()
	case q.exhaust.Hit(c.Exhaust):
		q.port.n.exhausted.Add(1)
		q.polls = c.ExhaustPolls
		if q.held == nil {
			q.held = make([]*pmd.Buf, 0, q.Pool().Len())
		}
		for b := q.Pool().Get(); b != nil; b = q.Pool().Get() {
			q.held = append(q.held, b)
		}
	}
}

func (q *queue) restore() {
	for _, b := range q.held {
		q.Pool().Put(b)
	}
	q.held, q.polls = q.held[:0], 0
}

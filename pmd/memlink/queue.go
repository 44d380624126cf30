package memlink

import (
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
)

// queue is one queue pair. Each direction has either rings or a path.
type queue struct {
	port *Port
	i    int
	pool *pmd.Pool

	out     []*ring // by queue of the peer; nil where nothing goes
	in      []*ring // by queue of the peer
	outPath *path
	inPath  *path
	turn    int // ring that is emptied first
	kept    kept
	cuts    *pmd.Pool // with TSO: what large frames are cut into
	cutter  vnet.Cutter
	wire    []*pmd.Buf

	wake  *waker
	peers []*waker // of the queues that out leads to

	n     counters // the owner's
	stats struct { // what it publishes, once per Poll
		rxFrames, rxBytes, txFrames, txBytes, txErrors, txFull atomic.Uint64
	}
}

type counters struct {
	rxFrames, rxBytes, txFrames, txBytes, txErrors, txFull uint64
}

// Poll implements pmd.Queue.
func (q *queue) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	if q.port.link.down.Load() != 0 {
		return q.pollDown(tx, rx)
	}
	now := q.now(tx, rx)
	if len(tx) > 0 {
		ntx = q.send(tx, now)
	}
	if len(rx) > 0 {
		nrx = q.receive(rx, now)
	}
	return ntx, nrx
}

// now reads the clock if this Poll needs it.
func (q *queue) now(tx, rx []*pmd.Buf) plugins.Time {
	if q.outPath != nil && len(tx) > 0 && q.outPath.timed.Load() {
		return q.port.link.clock()
	}
	if q.inPath != nil && len(rx) > 0 && q.inPath.timed.Load() &&
		plugins.Time(q.inPath.lanes[q.i].next.Load()) != plugins.Never {
		return q.port.link.clock()
	}
	return 0
}

// pollDown serves a link of which one end is closed: what is sent is lost, what has arrived is still there.
func (q *queue) pollDown(tx, rx []*pmd.Buf) (ntx, nrx int) {
	if q.port.link.down.Load()&q.port.bit != 0 {
		return 0, 0
	}
	for _, b := range tx {
		q.drop(b)
	}
	if len(tx) > 0 {
		q.n.txErrors += uint64(len(tx))
		q.stats.txErrors.Store(q.n.txErrors)
	}
	if len(rx) > 0 {
		nrx = q.receive(rx, q.now(nil, rx))
	}
	return len(tx), nrx
}

// drop frees a frame on the sender's thread.
func (q *queue) drop(b *pmd.Buf) {
	switch p := b.Pool(); p {
	case q.pool, q.cuts:
		p.Put(b)
	default:
		b.Free()
	}
}

// sendable prepares a frame for the peer, which must not see the sender's requests; it drops a frame that no port of this MTU
// could carry.
func (q *queue) sendable(b *pmd.Buf) bool {
	if b.Len() > q.port.link.maxFrame {
		q.n.txErrors++
		q.stats.txErrors.Store(q.n.txErrors)
		q.drop(b)
		return false
	}
	b.Flags, b.SegSize, b.L2Len, b.L3Len, b.L4Len, b.Hash = 0, 0, 0, 0, 0, 0
	b.Next = nil
	return true
}

// steer says at which queue of the peer a frame arrives.
func (q *queue) steer(b *pmd.Buf) int {
	l := q.port.link
	if l.cfg.Steer == nil {
		return q.i
	}
	hash, to := l.cfg.Steer(b.Bytes())
	if hash != 0 && l.cfg.RSSKey != nil {
		b.Hash, b.Flags = hash, pmd.RxHash
	}
	return to
}

func (q *queue) send(tx []*pmd.Buf, now plugins.Time) int {
	var n int
	switch {
	case q.cuts != nil:
		n = q.sendCutting(tx, now)
	case q.outPath != nil:
		n = q.sendPath(tx, now, false)
	case q.port.link.cfg.Steer != nil:
		n = q.sendSteered(tx)
	default:
		n = q.sendRing(tx)
	}
	if n < len(tx) {
		q.n.txFull++
		q.stats.txFull.Store(q.n.txFull)
	}
	q.stats.txFrames.Store(q.n.txFrames)
	q.stats.txBytes.Store(q.n.txBytes)
	return n
}

// sendRing is the fast path: one ring, one publication.
func (q *queue) sendRing(tx []*pmd.Buf) int {
	r := q.out[q.i]
	n := min(r.room(len(tx)), len(tx))
	if n == 0 {
		return 0
	}
	tail, bytes := r.tail.Load(), 0
	at := tail
	for _, b := range tx[:n] {
		if !q.sendable(b) {
			continue
		}
		bytes += b.Len()
		r.slots[at&r.mask] = b
		at++
	}
	r.tail.Store(at)
	q.n.txFrames += at - tail
	q.n.txBytes += uint64(bytes)
	q.peers[q.i].now()
	return n
}

// sendSteered spreads frames over the rings to the peer's queues. A full ring holds up what comes after.
func (q *queue) sendSteered(tx []*pmd.Buf) (n int) {
	for _, b := range tx {
		if q.TxRoom() == 0 {
			break
		}
		n++
		size := b.Len()
		if !q.sendable(b) {
			continue
		}
		to := q.steer(b)
		r := q.out[to]
		tail := r.tail.Load()
		r.slots[tail&r.mask] = b
		r.tail.Store(tail + 1)
		q.n.txFrames++
		q.n.txBytes += uint64(size)
		q.peers[to].now()
	}
	return n
}

// sendPath puts up to a ring of frames on an impaired path, which always has room, unless the port keeps what it has sent. one says that
// they were one frame, which is kept until the last of them is sent.
func (q *queue) sendPath(tx []*pmd.Buf, now plugins.Time, one bool) int {
	n := min(len(tx), q.port.link.cfg.Ring)
	if q.port.holds && !one {
		n = min(n, q.port.link.cfg.Ring-q.outPath.keptBy(q, now))
	}
	start := 0
	flush := func(end int) {
		if start < end {
			q.outPath.send(q, tx[start:end], now, one)
		}
		start = end + 1
	}
	for i, b := range tx[:n] {
		size := b.Len()
		if !q.sendable(b) {
			flush(i)
			continue
		}
		q.n.txFrames++
		q.n.txBytes += uint64(size)
	}
	flush(n)
	return n
}

func (q *queue) receive(rx []*pmd.Buf, now plugins.Time) int {
	var n int
	switch {
	case q.inPath != nil:
		if plugins.Time(q.inPath.lanes[q.i].next.Load()) <= now {
			n = q.inPath.receive(q.i, rx, now)
		}
	case q.port.link.cfg.Steer != nil:
		n = q.receiveSteered(rx)
	default:
		n = q.in[q.i].pop(rx)
	}
	if n == 0 {
		return 0
	}
	bytes := 0
	for _, b := range rx[:n] {
		bytes += b.Len()
		b.Moved()
	}
	q.n.rxFrames += uint64(n)
	q.n.rxBytes += uint64(bytes)
	q.stats.rxFrames.Store(q.n.rxFrames)
	q.stats.rxBytes.Store(q.n.rxBytes)
	return n
}

// receiveSteered empties the rings from all of the peer's queues, starting with another one each time.
func (q *queue) receiveSteered(rx []*pmd.Buf) (n int) {
	for range q.in {
		n += q.in[q.turn].pop(rx[n:])
		if n == len(rx) {
			break
		}
		if q.turn++; q.turn == len(q.in) {
			q.turn = 0
		}
	}
	return n
}

// TxRoom implements pmd.Queue.
func (q *queue) TxRoom() int {
	size := q.port.link.cfg.Ring
	if q.outPath != nil {
		return size - q.Uncompleted()
	}
	room := size
	for _, r := range q.out {
		if r != nil {
			room = min(room, r.room(size))
		}
	}
	return room
}

// Pool implements pmd.Queue.
func (q *queue) Pool() *pmd.Pool { return q.pool }

// WakeFD implements pmd.Queue.
func (q *queue) WakeFD() int { return q.wake.fd }

// Park implements pmd.Parker. On a path with a clock the descriptor also becomes readable when the next frame is released.
func (q *queue) Park() (empty bool) {
	w := q.wake
	if p := q.inPath; p != nil {
		var now plugins.Time
		if p.timed.Load() {
			now = q.port.link.clock()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		next := p.lanes[q.i].line.next()
		if next <= now {
			return false
		}
		if w.fd >= 0 {
			w.parked.Store(true)
			w.arm(next)
		}
		return true
	}
	w.parked.Store(true)
	for _, r := range q.in {
		if r != nil && !r.empty() {
			w.parked.Store(false)
			return false
		}
	}
	return true
}

// Unpark implements pmd.Parker.
func (q *queue) Unpark() {
	p := q.inPath
	if p == nil {
		q.wake.clear()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.wake.fd >= 0 && q.wake.parked.Swap(false) {
		q.wake.arm(plugins.Never) // also makes it unreadable
	}
}

// next is the time at which the queue's next frame can be received: 0 if one is there, Never if none is on its way.
func (q *queue) next() plugins.Time {
	if q.inPath != nil {
		return plugins.Time(q.inPath.lanes[q.i].next.Load())
	}
	for _, r := range q.in {
		if r != nil && !r.empty() {
			return 0
		}
	}
	return plugins.Never
}

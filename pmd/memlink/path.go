package memlink

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/chance"
	"github.com/fastpath-tcp/fastpath/pmd/internal/ecn"
)

// Counters say what a path did to the frames that its port sent.
type Counters struct {
	Frames      uint64 // entered the path
	Lost        uint64 // by Loss
	Policed     uint64 // no tokens in the policer's bucket
	QueueDrops  uint64 // no room in the queue
	Duplicated  uint64
	Uncopied    uint64 // not duplicated for want of a buffer
	Reordered   uint64 // by Reorder
	Corrupted   uint64
	Marked      uint64 // CE
	QueuedBytes uint64 // most that waited for the bottleneck
	InFlight    int    // on the path now
}

// path is one impaired direction. The senders' and the receivers' queues share it under its mutex.
type path struct {
	timed atomic.Bool
	lanes []lane // by queue of the receiver

	mu   sync.Mutex
	cfg  Path
	draw *draws
	loss lossModel
	pol  policer
	net  bottleneck
	last plugins.Time // latest release, for KeepOrder
	n    Counters
	tap  func(frame []byte) // sees what is dropped; may be nil

	extra     func(frame []byte) time.Duration // may be nil
	extraMost time.Duration
}

// lane is what travels to one queue of the receiver.
type lane struct {
	next atomic.Int64 // earliest release time; changed under the path's mutex
	line line
	wake *waker
	_    [64]byte
}

func newPath(cfg Path, seed, direction uint64, wakers []*waker) *path {
	p := &path{lanes: make([]lane, len(wakers)), draw: newDraws(seed, direction)}
	for i := range p.lanes {
		p.lanes[i].next.Store(int64(plugins.Never))
		p.lanes[i].wake = wakers[i]
	}
	p.set(cfg)
	return p
}

// set changes the path's parameters. What is on its way stays so.
func (p *path) set(cfg Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg = cfg
	p.loss.set(cfg.Loss)
	p.pol.set(&cfg)
	p.net.set(&cfg)
	if cfg.timed() { // not unset: frames with a release time may be on their way
		p.timed.Store(true)
	}
}

// send puts frames on the path and takes ownership of them. q is the sender's queue. one says that they were one frame to the port.
func (p *path) send(q *queue, tx []*pmd.Buf, now plugins.Time, one bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n.Frames += uint64(len(tx))
	if !p.timed.Load() {
		now = 0 // the sender read the clock for its other direction; the receiver will not read it for this one
	}
	for i, b := range tx {
		keeps := q.port.holds && (!one || i == len(tx)-1)
		if dropped := p.before(b, now); dropped {
			p.drop(q, b)
			if keeps {
				q.kept.push(max(now, p.net.busy), &p.cfg)
			}
			continue
		}
		var twin *pmd.Buf
		if p.draw.dup.Hit(p.cfg.Duplicate) {
			twin = p.twin(q, b)
		}
		p.admit(q, b, now)
		if keeps {
			q.kept.push(max(now, p.net.busy), &p.cfg)
		}
		if twin != nil {
			p.admit(q, twin, now)
		}
	}
	for i := range p.lanes {
		l := &p.lanes[i]
		if next := l.line.next(); next != plugins.Time(l.next.Load()) {
			l.next.Store(int64(next))
			l.wake.at(next)
		}
	}
}

// before says whether a frame is dropped before it reaches the bottleneck.
func (p *path) before(b *pmd.Buf, now plugins.Time) (dropped bool) {
	switch {
	case p.loss.lost(p.draw):
		p.n.Lost++
	case !p.pol.pass(b.Len()+p.cfg.Overhead, now):
		p.n.Policed++
	default:
		return false
	}
	return true
}

// drop frees a frame that the path drops.
func (p *path) drop(q *queue, b *pmd.Buf) {
	if p.tap != nil {
		p.tap(b.Bytes())
	}
	q.drop(b)
}

// twin copies a frame into a buffer of the sender's pool.
func (p *path) twin(q *queue, b *pmd.Buf) *pmd.Buf {
	twin := q.pool.Get()
	if twin == nil || !twin.Append(b.Bytes()) {
		p.n.Uncopied++
		if twin != nil {
			q.drop(twin)
		}
		return nil
	}
	p.n.Duplicated++
	return twin
}

// admit takes one frame through the bottleneck and onto the wire.
func (p *path) admit(q *queue, b *pmd.Buf, now plugins.Time) {
	at, mark, ok := p.net.enter(b.Len(), now)
	if !ok {
		p.n.QueueDrops++
		p.drop(q, b)
		return
	}
	p.n.QueuedBytes = max(p.n.QueuedBytes, uint64(p.net.bytes))
	if mark && ecn.Mark(b.Bytes()) {
		p.n.Marked++
	}
	if p.draw.corrupt.Hit(p.cfg.Corrupt) && chance.Corrupt(b.Bytes(), p.cfg.CorruptFrom, p.cfg.CorruptBits, &p.draw.corrupt) {
		p.n.Corrupted++
	}
	floor := at.Add(p.cfg.Delay - p.cfg.Jitter) // later frames leave the bottleneck later
	at = at.Add(p.delay())
	if p.extra != nil {
		at = at.Add(min(max(p.extra(b.Bytes()), 0), p.extraMost))
	}
	if p.cfg.KeepOrder {
		at = max(at, p.last)
		p.last = at
	}
	if p.draw.reorder.Hit(p.cfg.Reorder) {
		p.n.Reordered++
		at = at.Add(p.cfg.ReorderDelay)
	}
	p.lanes[q.steer(b)].line.push(at, floor, b)
}

// delay draws the propagation delay of a frame.
func (p *path) delay() time.Duration {
	d, j := p.cfg.Delay, p.cfg.Jitter
	if j == 0 {
		return d
	}
	return d - j + time.Duration(p.draw.jitter.Below(2*uint64(j)+1))
}

// receive takes what has been released to queue i by now.
func (p *path) receive(i int, rx []*pmd.Buf, now plugins.Time) int {
	l := &p.lanes[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(rx) && l.line.len() > 0 && l.line.next() <= now {
		rx[n] = l.line.pop()
		n++
	}
	l.next.Store(int64(l.line.next()))
	return n
}

func (p *path) counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.n
	for i := range p.lanes {
		c.InFlight += p.lanes[i].line.len()
	}
	return c
}

// bottleneck serves frames at a rate from a bounded queue.
type bottleneck struct {
	rate                uint64 // bits/s
	trace               schedule
	overhead            int
	maxBytes, maxFrames int
	markBytes, marks    int

	busy plugins.Time // when the last frame has been served
	rest uint64       // of the division that gave busy, in bits·ns/s

	wait  []served // a ring of the frames that wait; its length is a power of two
	head  int
	n     int
	bytes int
}

type served struct {
	at    plugins.Time
	bytes int
}

func (k *bottleneck) set(p *Path) {
	if k.rate != p.Rate || k.trace.Trace != p.Trace {
		k.rest = 0
	}
	k.trace.follow(p.Trace)
	k.rate, k.overhead = p.Rate, p.Overhead
	k.maxBytes, k.maxFrames, k.markBytes, k.marks = p.QueueBytes, p.QueueFrames, p.MarkBytes, p.MarkFrames
}

// enter says when a frame of n bytes that comes now has been served, and whether it is to be marked; ok is false if it is dropped.
func (k *bottleneck) enter(n int, now plugins.Time) (at plugins.Time, mark, ok bool) {
	if k.rate == 0 && k.trace.Trace == nil {
		return max(now, k.busy), false, true // busy: what waited before the rate was lifted goes first
	}
	k.serve(now)
	if k.maxBytes > 0 && k.bytes+n > k.maxBytes || k.maxFrames > 0 && k.n >= k.maxFrames {
		return 0, false, false
	}
	mark = k.markBytes > 0 && k.bytes >= k.markBytes || k.marks > 0 && k.n >= k.marks
	if k.busy < now {
		k.busy, k.rest = now, 0
	}
	// The time is exact: what a division leaves over is carried into the next.
	work := uint64(n+k.overhead)*8*uint64(time.Second) + k.rest
	switch t := &k.trace; {
	case t.Trace == nil:
		k.busy, k.rest = k.busy.Add(time.Duration(work/k.rate)), work%k.rate
	case len(t.Steps) > 0:
		k.busy, k.rest = t.work(k.busy, work)
	default:
		k.busy = t.take(k.busy, n+k.overhead)
	}
	k.push(served{k.busy, n})
	return k.busy, mark, true
}

// serve takes what has been served by now out of the queue.
func (k *bottleneck) serve(now plugins.Time) {
	for k.n > 0 && k.wait[k.head].at <= now {
		k.bytes -= k.wait[k.head].bytes
		k.head = (k.head + 1) & (len(k.wait) - 1)
		k.n--
	}
}

func (k *bottleneck) push(s served) {
	if k.n == len(k.wait) {
		bigger := make([]served, max(64, 2*len(k.wait)))
		for i := range k.n {
			bigger[i] = k.wait[(k.head+i)&(len(k.wait)-1)]
		}
		k.wait, k.head = bigger, 0
	}
	k.wait[(k.head+k.n)&(len(k.wait)-1)] = s
	k.n++
	k.bytes += s.bytes
}

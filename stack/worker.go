package stack

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/autoconf"
	"github.com/fastpath-tcp/fastpath/stack/filter"
	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/route"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
)

const (
	burst = 64 // frames per Poll, each way
	// fifoDepth is how many frames wait for the port: two bursts keep it busy, and more would only leave the cache before they are
	// sent. What does not fit stays with its flow, where it can still change.
	fifoDepth = 2 * burst
)

// Worker is one share-nothing instance of the stack: a queue, or a share of another worker's, and the flows that steering gives it.
// Nothing but its own goroutine touches it, except through the inbox, the engine's mailbox and do.
type Worker struct {
	index   int
	stack   *Stack
	queue   pmd.Queue // nil: frames come from and go to the worker that owns the queue
	owner   *Worker   // the worker that owns the queue; w itself if it has one
	pool    *pmd.Pool
	fifo    *pmd.Fifo
	anyPool bool          // the port takes frames of any pool
	prompt  bool          // the port may be polled again to transmit
	keeper  pmd.Completer // the queue, if the port keeps frames until they are sent
	rx      [burst]*pmd.Buf
	clock   Clock
	now     plugins.Time

	engine   *tcp.Engine
	udp      *udp.Engine
	neigh    *neigh.Cache
	routes   *route.Table   // the stack's, as of the start of the turn
	auto     *autoconf.Host // of the first worker, if there is IPv6
	mtu6     int            // of IPv6 packets
	asks     [16]neigh.Output
	nextICMP plugins.Time // earliest time of the next ICMP error
	linkAt   plugins.Time // next time to look at the port's link; Never for all workers but one
	linkUp   bool
	asked    bool // a lookup has made an entry whose request is due

	filter filter.Filter
	frags  *frag.Reassembler
	whole  pmd.Buf      // stands for the frame of a reassembled packet: nothing of it was verified by the port
	wholes atomic.Int64 // bytes of reassembled packets that others have given to this worker and that wait

	out    []chain // per worker: frames of this turn that belong to it
	inbox  frameStack
	txbox  frameStack // frames of workers without a queue, for this worker's port
	txWait *pmd.Buf   // taken from txbox, no room in the FIFO yet

	core     int
	spins    bool
	notify   *notifier
	wakeup   func()
	stopping atomic.Bool
	done     chan struct{}

	ctlMu sync.Mutex
	ctl   []func()
	hasDo atomic.Bool

	Stats L3Stats
	turns turnStats
}

// chain is a list of frames linked by Next, newest first.
type chain struct{ head, tail *pmd.Buf }

func (c *chain) add(b *pmd.Buf) {
	b.Next = c.head
	if c.head == nil {
		c.tail = b
	}
	c.head = b
}

// frameStack passes frames between workers: any may push, one takes. It is lock-free, and one push carries a whole turn's frames.
type frameStack struct {
	_    [64]byte
	head atomic.Pointer[pmd.Buf] // newest first
	_    [56]byte
}

func (s *frameStack) push(c chain) {
	for {
		h := s.head.Load()
		c.tail.Next = h
		if s.head.CompareAndSwap(h, c.head) {
			return
		}
	}
}

func (s *frameStack) empty() bool { return s.head.Load() == nil }

// take returns all frames, oldest first.
func (s *frameStack) take() (first *pmd.Buf) {
	if s.empty() {
		return nil
	}
	for b := s.head.Swap(nil); b != nil; {
		next := b.Next
		b.Next = first
		first, b = b, next
	}
	return first
}

// turn runs the loop once: what the last turn put into the FIFO goes out, what the port has received comes in, and the data
// goes through the stages once, left to right. It reports whether there was anything to do.
func (w *Worker) turn() bool {
	nrx, ntx := 0, 0
	if w.queue != nil {
		tx := w.fifo.Front(burst)
		ntx, nrx = w.queue.Poll(tx, w.rx[:])
		w.fifo.Drop(ntx)
		w.complete()
	}
	w.now = w.clock.Now()
	w.turns.start(w.now, w.stack.realTime)
	w.engine.Begin(w.now)
	w.udp.Begin(w.now)
	if t := w.stack.routes.Load(); t != w.routes {
		w.adopt(t)
	}
	if w.now >= w.linkAt {
		w.lookAround()
	}
	if nrx == 0 && w.idle() {
		w.turns.end(ntx > 0, w.clock, w.stack.realTime)
		return ntx > 0
	}
	if w.hasDo.Load() {
		w.runDo()
	}
	for i, b := range w.rx[:nrx] {
		w.rx[i] = nil
		w.receive(b)
	}
	moved := w.exchange()
	w.engine.Mailbox()
	w.engine.Timers()
	w.engine.Modules()
	w.udp.Run()
	w.engine.Output()
	w.neighbours()
	w.expireFrags()
	if w.queue == nil && w.handOver() {
		moved = true
	}
	if w.prompt && w.fifo.Len() > 0 {
		n, _ := w.queue.Poll(w.fifo.Front(burst), nil)
		w.fifo.Drop(n)
		ntx += n
		w.complete()
	}
	busy := nrx > 0 || ntx > 0 || moved || w.fifo.Len() > 0 || w.engine.Busy()
	w.turns.end(busy, w.clock, w.stack.realTime)
	return busy
}

// complete tells the engine how much of what the port has taken it has not sent.
func (w *Worker) complete() {
	if w.keeper != nil {
		w.engine.Kept(w.keeper.Uncompleted())
	}
}

// idle reports whether no stage of this turn has anything to do.
func (w *Worker) idle() bool {
	return w.engine.Idle() && w.udp.Idle() && !w.hasDo.Load() && w.inbox.empty() && w.txbox.empty() && w.txWait == nil && w.fifo.Len() == 0 &&
		!w.asked && w.neighboursDue() > w.now && w.frags.Deadline() > w.now
}

// last is the time of the worker's last turn.
func (w *Worker) last() plugins.Time { return w.now }

// deadline is the next time at which the worker wants a turn without input.
func (w *Worker) deadline() plugins.Time {
	if w.pending() {
		return w.now
	}
	return min(w.engine.Deadline(), w.udp.Deadline(), w.neighboursDue(), w.frags.Deadline())
}

// pending reports whether there is work now.
func (w *Worker) pending() bool {
	return w.hasDo.Load() || !w.inbox.empty() || !w.txbox.empty() || w.fifo.Len() > 0 && w.queue != nil || w.txWait != nil ||
		w.engine.Busy() || w.engine.Kicked() || w.udp.Kicked() || w.stopping.Load()
}

// do runs f on the worker between two turns and waits for it. It returns false if the worker has stopped.
func (w *Worker) do(f func()) bool {
	ended := make(chan struct{})
	if !w.post(func() { f(); close(ended) }) {
		return false
	}
	if w.stack.manual {
		w.runDo()
	}
	select {
	case <-ended:
		return true
	case <-w.done:
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
}

// post is do without the wait.
func (w *Worker) post(f func()) bool {
	w.ctlMu.Lock()
	if w.stopping.Load() {
		w.ctlMu.Unlock()
		return false
	}
	w.ctl = append(w.ctl, f)
	w.hasDo.Store(true)
	w.ctlMu.Unlock()
	w.kicked()
	return true
}

func (w *Worker) runDo() {
	w.ctlMu.Lock()
	fs := w.ctl
	w.ctl = nil
	w.hasDo.Store(false)
	w.ctlMu.Unlock()
	for _, f := range fs {
		f()
	}
}

// kicked wakes the worker if it sleeps.
func (w *Worker) kicked() {
	if w.wakeup != nil {
		w.wakeup()
	}
}

// wake wakes an application goroutine.
func (w *Worker) wake(x *tcp.Waiter) {
	if w.notify != nil {
		w.notify.wake(x)
		return
	}
	x.Wake()
}

// free returns a buffer to its pool.
func (w *Worker) free(b *pmd.Buf) {
	if b.Pool() == w.pool {
		w.pool.Put(b)
		return
	}
	b.Free()
}

func (w *Worker) freeChain(b *pmd.Buf) {
	for b != nil {
		next := b.Next
		w.free(b)
		b = next
	}
}

// finish ends the worker: it resets what is left of its connections, tries to send the resets, and returns all buffers.
func (w *Worker) finish() {
	select {
	case <-w.done:
		return
	default:
	}
	w.ctlMu.Lock() // from here on, post refuses
	w.ctlMu.Unlock()
	w.runDo()
	w.engine.AbortAll()
	w.udp.Shutdown()
	for range lastTurns {
		sent := w.engine.SendResets()
		w.turnOut()
		if sent && w.fifo.Len() == 0 {
			break
		}
	}
	for _, b := range w.fifo.Front(fifoDepth) {
		w.free(b)
	}
	w.fifo.Drop(len(w.fifo.Front(fifoDepth)))
	for _, b := range w.fifo.Front(fifoDepth) { // the part behind the ring's end
		w.free(b)
	}
	w.freeChain(w.neigh.Drain())
	w.frags.Close()
	w.freeChain(w.txWait)
	w.txWait = nil
	w.freeChain(w.inbox.take())
	w.freeChain(w.txbox.take())
	close(w.done)
}

// lastTurns bounds how long a worker at its end waits for a port that takes no frames.
const lastTurns = 10000

// turnOut sends what is in the FIFO and drops what arrives.
func (w *Worker) turnOut() {
	if w.queue == nil {
		w.handOver()
		return
	}
	ntx, nrx := w.queue.Poll(w.fifo.Front(burst), w.rx[:])
	w.fifo.Drop(ntx)
	for _, b := range w.rx[:nrx] {
		w.free(b)
	}
}

// turnStats measures the turns of a worker.
type turnStats struct {
	busy, idle uint64
	began      plugins.Time
	ended      plugins.Time // 0 after a sleep
	turn, gap  Histogram
	parks      uint64
	parked     time.Duration
	parkedAt   plugins.Time
}

func (t *turnStats) start(now plugins.Time, real bool) {
	if real && t.ended != 0 {
		t.gap.add(now.Sub(t.ended))
	}
	t.began = now
	t.ended = now
}

// end records a turn. The clock is read a second time only for one busy turn in sixteen, which is enough for the histogram; between
// the others the gap includes the turn, so that a long one shows in any case.
func (t *turnStats) end(busy bool, c Clock, real bool) {
	if !busy {
		t.idle++
		return
	}
	t.busy++
	if real && t.busy&15 == 0 {
		t.ended = c.Now()
		t.turn.add(t.ended.Sub(t.began))
	}
}

func (t *turnStats) sleep(now plugins.Time) { t.parkedAt = now }

func (t *turnStats) woke(now plugins.Time) {
	t.parks++
	t.parked += now.Sub(t.parkedAt)
	t.ended = 0 // a sleep is no gap
}

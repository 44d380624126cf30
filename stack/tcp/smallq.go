package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Small queues: what a flow has in the FIFO and in the port's ring is bounded, so that the rest can still change, others have their
// turn, and a slow port's ring does not become a queue of its own (F5). The port completes frames in the order in which they entered the
// FIFO: those that copy when they take them, the others when they are sent (pmd.Completer).

// SmallQueues says when a flow that has much in the port's queue may send all the same.
type SmallQueues uint8

// Values of Config.SmallQueues. The second is how Linux was before it let one segment pass, and is there to be measured.
const (
	SmallQueuesOneOrEmpty SmallQueues = iota // if nothing, or one piece, is unacknowledged
	SmallQueuesEmptyOnly                     // if nothing is
	SmallQueuesOff                           // always
)

const (
	// unpacedQueue is what a flow without a rate may have in the port's queue (Linux tcp_limit_output_bytes).
	unpacedQueue = 1 << 20
	// portPatience is the default of Config.PortPatience.
	portPatience = 2 * time.Millisecond
)

// Bits of Conn.held: what makes the flow wait for a completion.
const (
	heldByQueue uint8 = 1 << iota // it has too much in the port's queue
	heldByCork                    // automatically corked
)

// sending is what a flow put into the FIFO at once.
type sending struct {
	slot, gen uint32 // guestSlot: no connection
	bytes     uint32 // payload
	size      uint32 // with headers; of what the backlog counts
	frames    uint32 // the same; 0 with large frames, which count when all of it is sent
	end       uint32 // position in the FIFO behind its last frame
	at        uint32 // stamp
}

// portQueue holds what the port has not completed, in order.
type portQueue struct {
	ring    []sending // its length is a power of two
	head, n uint32
	kept    uint32 // frames that the port has taken and not completed
	done    uint32 // position up to which frames were complete when we looked last
	waiting int    // flows with bits in Conn.held
	old     uint32 // at the head, not completed, but in the port for too long to count
	backlog backlog
}

func (q *portQueue) at(i uint32) *sending { return &q.ring[(q.head+i)&uint32(len(q.ring)-1)] }

func (q *portQueue) push(b sending) {
	if q.n == uint32(len(q.ring)) {
		bigger := make([]sending, max(128, 2*len(q.ring)))
		for i := range q.n {
			bigger[i] = *q.at(i)
		}
		q.ring, q.head = bigger, 0
	}
	q.n++
	*q.at(q.n - 1) = b
}

// Kept says how many frames the port has taken and not sent yet, as of its last Poll.
func (e *Engine) Kept(n int) { e.port.kept = uint32(n) }

// completed is the position in the FIFO up to which the port has completed frames.
func (e *Engine) completed() uint32 { return e.env.Fifo.Taken() - e.port.kept }

// queued counts what c has just put into the FIFO, in so many packets.
func (e *Engine) queued(c *Conn, bytes, packets uint32) {
	c.queued += bytes
	size := bytes + packets*segCost
	if e.env.MaxTSO > 0 {
		packets = 0
	}
	e.port.entered(sending{slot: c.slot, gen: c.gen, bytes: bytes, size: size, frames: packets, end: e.env.Fifo.Pushed(), at: stamp(e.now)})
}

// entered counts what a flow has just put into the FIFO.
func (q *portQueue) entered(s sending) {
	q.backlog.bytes += s.size
	q.push(s)
}

// complete takes up what the port has completed, and lets flows go on that waited for it.
func (e *Engine) complete() { e.completeTo(e.completed()) }

func (e *Engine) completeTo(done uint32) {
	q := &e.port
	q.done = done
	var size, end, at uint32
	told := false
	for q.n > 0 {
		b := q.at(0)
		if int32(done-b.end) < 0 {
			break
		}
		if q.old > 0 {
			q.old--
		} else {
			size, end = size+b.size, b.end
		}
		at, told = b.at, true
		c := e.conn(plugins.Flow{Slot: b.slot, Gen: b.gen})
		q.head++
		q.n--
		if c == nil {
			continue
		}
		if c.queued -= b.bytes; c.held != 0 {
			e.makeReady(c)
		}
	}
	if told && done == e.completed() { // else somebody has lost patience
		q.backlog.told(e.now, at)
	}
	for now := stamp(e.now); q.old < q.n; q.old++ {
		b := q.at(q.old)
		if e.now.Sub(q.backlog.last) < backlogAge || now-b.at < uint32(backlogAge>>10) || int32(e.env.Fifo.Taken()-b.end) < 0 {
			if left := b.end - done; left < b.frames { // its first frames
				part := b.size / b.frames * (b.frames - left)
				size, end = size+part, b.end-left
				b.size, b.frames = b.size-part, left
			}
			break
		}
		size, end = size+b.size, b.end
	}
	if size > 0 {
		q.backlog.completed(e.now, size, end, e.env.Fifo.Pushed())
	}
}

// hold makes c wait for a completion, but not for longer than PortPatience.
func (e *Engine) hold(c *Conn, why uint8) {
	if c.held == 0 {
		e.port.waiting++
	}
	c.held |= why
	if c.due[timerPace] == plugins.Never {
		c.setTimer(timerPace, e.now.Add(e.cfg.PortPatience))
	}
}

// release ends that; the flow's output looks anew.
func (e *Engine) release(c *Conn) {
	if c.held != 0 {
		c.held = 0
		e.port.waiting--
		c.stopTimer(timerPace)
	}
}

// portLate is called when c has waited for the port in vain: what entered the FIFO up to c's last frame counts as sent.
func (e *Engine) portLate(c *Conn) {
	e.Stats.PortLate++
	for i := e.port.n; i > 0; i-- {
		if b := e.port.at(i - 1); b.slot == c.slot && b.gen == c.gen {
			e.completeTo(b.end)
			return
		}
	}
}

// mayQueue reports whether c may put a piece of n bytes into the port's queue: it has no more there than two pieces, or 1 ms worth of its
// rate, twice that for a retransmission (Linux tcp_small_queue_check). If not, c waits for completions.
func (e *Engine) mayQueue(c *Conn, n uint32, again bool) bool {
	if c.queued <= 2*n || c.out.log.n == 0 || c.out.log.n == 1 && e.cfg.SmallQueues == SmallQueuesOneOrEmpty {
		return true
	}
	limit := uint64(unpacedQueue)
	if r := c.line.Rate; r != plugins.Unlimited {
		limit = max(2*uint64(max(n, c.pieceGoal())), r>>rateShift)
	}
	if again {
		limit *= 2
	}
	if uint64(c.queued) <= limit || e.cfg.SmallQueues == SmallQueuesOff {
		return true
	}
	e.Stats.SmallQueueWaits++
	e.hold(c, heldByQueue)
	return false
}

// autocork reports whether what the application has just written waits for a completion (F6; Linux tcp_should_autocork): it does not fill
// a piece, something is unacknowledged, more than it has still to be completed, and what is written until then leaves with it.
func (e *Engine) autocork(c *Conn) bool {
	if c.queued == 0 || c.out.log.n == 0 || c.opts.Load()&OptAutoCork == 0 || c.held == 0 && c.due[timerPace] != plugins.Never {
		return false
	}
	unsent := c.snd.Tail() - c.off(c.sndNxt)
	if unsent >= uint64(c.sizeGoal()) || uint64(c.queued) <= unsent {
		return false
	}
	if c.held&heldByCork == 0 {
		e.Stats.AutoCorking++
		e.hold(c, heldByCork)
	}
	return true
}

// sizeGoal is the most that the application's writes are gathered to: 64 KB, or half of the largest window that the peer has offered
// (Linux tcp_xmit_size_goal), in whole segments.
func (c *Conn) sizeGoal() uint32 {
	return max(min(maxBurst, c.maxSndWnd/2)/c.mss, 1) * c.mss
}

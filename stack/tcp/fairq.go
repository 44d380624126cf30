package tcp

import "time"

// Fair queueing at the port (F12), as Linux's sch_fq does it: deficit round robin by bytes over the flows that have something to send. The
// queue holds flows, not packets: what a flow sends is decided when it has its turn. A flow that becomes ready goes before those that
// have sent all that their credit allows, so that a request or an acknowledgement does not wait for bulk data. One whose departure lies
// ahead is not in the queue; its timer is. What a flow may have in the port's queue is bounded by its small queue, what all have by the
// backlog.

const (
	// quantum is how many segments a flow may send before the credit is looked at again.
	quantum = 16
	// credit is what a flow gets each time that its credit is used up: two segments of 1500 bytes with their Ethernet headers. A new one
	// begins with five times that.
	credit      = 2 * 1514
	firstCredit = 10 * 1514
	// refillDelay is how long a flow must have sent nothing for a debt to be forgotten.
	refillDelay = 40 * time.Millisecond
	// segCost is what a segment costs beside its payload.
	segCost = 66
)

// readyFlows are the connections that have something to send.
type readyFlows struct {
	fresh connQueue // have become ready, and have credit
	old   connQueue // have used it up, or have waited for their departure
	n     int
}

// makeReady queues c for output.
func (e *Engine) makeReady(c *Conn) {
	if c.inReady {
		return
	}
	if c.credit < credit && e.now.Sub(c.lastSend) > refillDelay {
		c.credit = credit
	}
	c.inReady = true
	e.ready.n++
	e.ready.fresh.push(c)
}

// departs queues c, whose departure time has come, behind those that are ready.
func (e *Engine) departs(c *Conn) {
	if !c.inReady {
		e.again(c)
	}
}

// again queues c behind the others.
func (e *Engine) again(c *Conn) {
	c.inReady = true
	e.ready.n++
	e.ready.old.push(c)
}

// goesOn queues c, which has had its turn and has more to send: with credit left it keeps its turn.
func (e *Engine) goesOn(c *Conn, from *connQueue) {
	switch {
	case c.credit > 0:
		e.stays(c, from)
	case !c.inReady:
		c.credit += credit
		e.again(c)
	}
}

// stays puts c, whose turn it was, back to the front.
func (e *Engine) stays(c *Conn, q *connQueue) {
	if !c.inReady {
		c.inReady = true
		e.ready.n++
		q.pushFront(c)
	}
}

// nextReady takes the connection whose turn it is. There is one.
func (e *Engine) nextReady() (c *Conn, from *connQueue) {
	r := &e.ready
	for {
		from = &r.old
		if r.fresh.n > 0 {
			from = &r.fresh
		}
		c = from.pop()
		if c.credit > 0 {
			break
		}
		if c.credit += credit; r.n == 1 { // nobody else waits: rounds would pass until its debt is paid
			c.credit = max(c.credit, credit)
			break
		}
		r.old.push(c)
	}
	r.n--
	c.inReady = false
	return c, from
}

// Output sends what may leave now: acknowledgements, retransmissions and new data, each connection in turn. A connection that
// stops for want of room or buffers keeps its turn; one that waits for its window, an acknowledgement, its departure time or the port is
// not queued.
func (e *Engine) Output() {
	stuck := !e.SendResets()
	e.ackTouched()
	e.retryWaiting()
	e.fullStop = stuck
	e.port.backlog.open = !e.env.Keeps && e.env.Fifo.Len() == 0 || e.cfg.NoBacklogLimit
	for e.ready.n > 0 {
		if e.portFull() {
			e.fullStop = true
			return
		}
		c, from := e.nextReady()
		if c.state == Closed {
			continue
		}
		before := e.Stats.BytesOut + segCost*e.Stats.SegsOut
		r := e.send(c)
		c.credit -= int32(e.Stats.BytesOut + segCost*e.Stats.SegsOut - before)
		switch {
		case r == sendMore:
			e.goesOn(c, from)
		case r == sendFull:
			e.stays(c, from)
			e.fullStop = true
			return
		}
	}
}

// connQueue is a first-in-first-out list of connections in a ring, so that it allocates only to grow.
type connQueue struct {
	ring []*Conn // its length is a power of two
	head int
	n    int
}

func (q *connQueue) grow() {
	if q.n < len(q.ring) {
		return
	}
	r := make([]*Conn, max(64, 2*len(q.ring)))
	for i := range q.n {
		r[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
	}
	q.ring, q.head = r, 0
}

func (q *connQueue) push(c *Conn) {
	q.grow()
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = c
	q.n++
}

func (q *connQueue) pushFront(c *Conn) {
	q.grow()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.ring[q.head] = c
	q.n++
}

func (q *connQueue) pop() *Conn {
	c := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return c
}

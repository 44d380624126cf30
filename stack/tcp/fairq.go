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

// readyFlows are the flows that have something to send.
type readyFlows struct {
	fresh flowQueue // have become ready, and have credit
	old   flowQueue // have used it up, or have waited for their departure
	n     int
}

// flow is a connection or a guest.
type flow struct {
	c *Conn
	g *Guest
}

// credit is what f may send before others have their turn.
func (f flow) credit() *int32 {
	if f.g != nil {
		return &f.g.credit
	}
	return &f.c.credit
}

// inReady is whether f is queued.
func (f flow) inReady() *bool {
	if f.g != nil {
		return &f.g.inReady
	}
	return &f.c.inReady
}

// add queues f, which is not queued.
func (r *readyFlows) add(q *flowQueue, f flow) {
	*f.inReady() = true
	r.n++
	q.push(f)
}

// makeReady queues c for output.
func (e *Engine) makeReady(c *Conn) {
	if c.inReady {
		return
	}
	if c.credit < credit && e.now.Sub(c.lastSend) > refillDelay {
		c.credit = credit
	}
	e.ready.add(&e.ready.fresh, flow{c: c})
}

// departs queues c, whose departure time has come, behind those that are ready.
func (e *Engine) departs(c *Conn) {
	if !c.inReady {
		e.ready.add(&e.ready.old, flow{c: c})
	}
}

// goesOn queues f, which has had its turn and has more to send: with credit left it keeps its turn.
func (e *Engine) goesOn(f flow, from *flowQueue) {
	switch cr := f.credit(); {
	case *cr > 0:
		e.stays(f, from)
	case !*f.inReady():
		*cr += credit
		e.ready.add(&e.ready.old, f)
	}
}

// stays puts f, whose turn it was, back to the front.
func (e *Engine) stays(f flow, q *flowQueue) {
	if in := f.inReady(); !*in {
		*in = true
		e.ready.n++
		q.pushFront(f)
	}
}

// nextReady takes the flow whose turn it is. There is one.
func (e *Engine) nextReady() (f flow, from *flowQueue) {
	r := &e.ready
	for {
		from = &r.old
		if r.fresh.n > 0 {
			from = &r.fresh
		}
		f = from.pop()
		cr := f.credit()
		if *cr > 0 {
			break
		}
		if *cr += credit; r.n == 1 { // nobody else waits: rounds would pass until its debt is paid
			*cr = max(*cr, credit)
			break
		}
		r.old.push(f)
	}
	r.n--
	*f.inReady() = false
	return f, from
}

// Output sends what may leave now: acknowledgements, retransmissions, new data and what guests have, each flow in turn. A connection that
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
		f, from := e.nextReady()
		if f.g != nil {
			if !e.serveGuest(f.g, from) {
				return
			}
			continue
		}
		c := f.c
		if c.state == Closed {
			continue
		}
		before := e.Stats.BytesOut + segCost*e.Stats.SegsOut
		r := e.send(c)
		c.credit -= int32(e.Stats.BytesOut + segCost*e.Stats.SegsOut - before)
		switch {
		case r == sendMore:
			e.goesOn(f, from)
		case r == sendFull:
			e.stays(f, from)
			e.fullStop = true
			return
		}
	}
}

// flowQueue is a first-in-first-out list of flows in a ring, so that it allocates only to grow.
type flowQueue struct {
	ring []flow // its length is a power of two
	head int
	n    int
}

func (q *flowQueue) grow() {
	if q.n < len(q.ring) {
		return
	}
	r := make([]flow, max(64, 2*len(q.ring)))
	for i := range q.n {
		r[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
	}
	q.ring, q.head = r, 0
}

func (q *flowQueue) push(f flow) {
	q.grow()
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = f
	q.n++
}

func (q *flowQueue) pushFront(f flow) {
	q.grow()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.ring[q.head] = f
	q.n++
}

func (q *flowQueue) pop() flow {
	f := q.ring[q.head]
	q.ring[q.head] = flow{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return f
}

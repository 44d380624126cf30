package udp

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// turnBudget bounds the datagrams of a turn, and share those of one endpoint while others wait: TCP, which comes after, gets its part of
// the FIFO.
const (
	turnBudget = 32
	share      = 8
)

// deliver appends a datagram to the endpoint's receive queue. Any worker may do it.
func (e *Engine) deliver(ep *Endpoint, src, dst wire.Addr, u *wire.UDP) wire.Drop {
	class := mem.ClassFor(len(u.Data))
	if !ep.rx.reserve(class) {
		ep.drops.Add(1)
		e.Stats.RcvbufErrors++
		return wire.DropUDPQueue
	}
	c := e.env.Arena.Get(class)
	if c == nil {
		ep.rx.release(class)
		ep.drops.Add(1)
		e.Stats.MemErrors++
		return wire.DropUDPQueue
	}
	fill(c, src, u.SrcPort, dst, u.Data)
	ep.rx.push(c)
	ep.in.Add(1)
	e.Stats.InDatagrams++
	e.env.Wake(&ep.Rd)
	return wire.DropNone
}

// Run does the rest of a turn: it takes up what applications have left, wakes those whose deadline has passed, and sends.
func (e *Engine) Run() {
	for ep := e.mail.take(); ep != nil; {
		next := ep.mailNext
		ep.mailed.Store(false) // from here on it may be put in again
		e.arm(ep)
		e.makeReady(ep)
		ep = next
	}
	if e.wheel.Next() <= e.now {
		e.timers()
	}
	if len(e.ready) > 0 {
		e.output()
	}
}

// arm sets the timer for the next deadline of ep that is not past.
func (e *Engine) arm(ep *Endpoint) {
	if ep.leaving {
		return
	}
	at := plugins.Never
	for _, d := range []plugins.Time{deadline(&ep.RdDeadline), deadline(&ep.WrDeadline)} {
		if d > e.now {
			at = min(at, d)
		}
	}
	e.wheel.Set(ep.slot, at)
}

func (e *Engine) timers() {
	e.due = e.wheel.Advance(e.now, e.due[:0])
	for _, slot := range e.due {
		ep := e.home[slot]
		if ep == nil {
			continue
		}
		if deadline(&ep.RdDeadline) <= e.now {
			e.env.Wake(&ep.Rd)
		}
		if deadline(&ep.WrDeadline) <= e.now {
			e.env.Wake(&ep.Wr)
		}
		e.arm(ep)
	}
}

func (e *Engine) makeReady(ep *Endpoint) {
	if !ep.queued {
		ep.queued = true
		e.ready = append(e.ready, ep)
	}
}

// output sends what endpoints have written; they take turns.
func (e *Engine) output() {
	left := turnBudget
	for n := len(e.ready); n > 0 && left > 0; {
		ep := e.ready[0]
		sent, res := e.send(ep, min(share, left))
		left -= sent
		if sent > 0 {
			e.env.Wake(&ep.Wr)
		}
		if res == full {
			return
		}
		copy(e.ready, e.ready[1:])
		if res == more {
			e.ready[len(e.ready)-1] = ep
			continue
		}
		e.ready[len(e.ready)-1] = nil
		e.ready = e.ready[:len(e.ready)-1]
		n--
		ep.queued = false
		if ep.leaving {
			e.release(ep)
		}
	}
}

// What is left of an endpoint after send.
const (
	empty = iota
	more
	full
)

// send sends up to limit datagrams of one endpoint.
func (e *Engine) send(ep *Endpoint, limit int) (sent, result int) {
	for ; ; sent++ {
		c := ep.tx.front()
		if c == nil {
			return sent, empty
		}
		if sent == limit {
			return sent, more
		}
		d := &e.out
		*d = Datagram{SrcPort: ep.localPort, TTL: uint8(ep.ttl.Load()), TOS: uint8(ep.tos.Load()), Whole: ep.whole.Load()}
		d.Dst, d.DstPort, d.Src, d.Data = content(c)
		if !d.Whole && !d.Dst.Is4() && e.now < plugins.Time(ep.pathUntil.Load()) {
			d.MTU = int(ep.pathMTU.Load())
		}
		switch e.env.Link.SendUDP(d) {
		case SentFull:
			return sent, full
		case SentLost:
			e.Stats.SndbufErrors++
		case SentOK:
			e.Stats.OutDatagrams++
			ep.out.Add(1)
		}
		ep.tx.pop(e.env.Arena)
	}
}

// dropUnsent frees what was written and not sent.
func (e *Engine) dropUnsent(ep *Endpoint) {
	e.Stats.SndbufErrors += uint64(ep.tx.drain(e.env.Arena))
}

package udp

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
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

// Run takes up what applications have left, and wakes those whose deadline has passed. What is to be sent leaves when the endpoint has its
// turn in the port's fair queue, beside connections.
func (e *Engine) Run() {
	for ep := e.mail.take(); ep != nil; {
		next := ep.mailNext
		ep.mailed.Store(false) // from here on it may be put in again
		e.arm(ep)
		e.env.Link.QueueUDP(&ep.guest)
		ep = next
	}
	if e.wheel.Next() <= e.now {
		e.timers()
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

// sender is an endpoint as the port's fair queue sees it.
type sender Endpoint

var _ tcp.GuestFlow = (*sender)(nil)

// SendSome implements tcp.GuestFlow: it is the endpoint's turn.
func (s *sender) SendSome(most uint32) (sent uint32, left tcp.GuestLeft) {
	ep := (*Endpoint)(s)
	done := uint32(0) // the same with those that are lost
	for c := ep.tx.front(); c != nil; c = ep.tx.front() {
		if done >= most {
			left = tcp.GuestMore
			break
		}
		n, ok := ep.eng.send(ep, c)
		if !ok {
			left = tcp.GuestFull
			break
		}
		sent += n
		done += cost(c)
		ep.tx.pop(ep.eng.env.Arena)
	}
	if done > 0 {
		ep.eng.env.Wake(&ep.Wr)
	}
	if left == tcp.GuestEmpty && ep.leaving {
		ep.eng.release(ep)
	}
	return sent, left
}

// cost is what the datagram in c costs, however many fragments it takes.
func cost(c *mem.Chunk) uint32 { return uint32(c.Fill) + tcp.PacketCost }

// send sends ep's datagram in c. It returns what it costs, 0 if it is lost; not ok means that there is no room.
func (e *Engine) send(ep *Endpoint, c *mem.Chunk) (n uint32, ok bool) {
	d := &e.out
	*d = Datagram{SrcPort: ep.localPort, TTL: uint8(ep.ttl.Load()), TOS: uint8(ep.tos.Load()), Whole: ep.whole.Load()}
	d.Dst, d.DstPort, d.Src, d.Data = content(c)
	if !d.Whole && !d.Dst.Is4() && e.now < plugins.Time(ep.pathUntil.Load()) {
		d.MTU = int(ep.pathMTU.Load())
	}
	switch e.env.Link.SendUDP(d) {
	case SentFull:
		return 0, false
	case SentLost:
		e.Stats.SndbufErrors++
		return 0, true
	}
	e.Stats.OutDatagrams++
	ep.out.Add(1)
	return cost(c), true
}

// dropUnsent frees what was written and not sent.
func (e *Engine) dropUnsent(ep *Endpoint) {
	e.Stats.SndbufErrors += uint64(ep.tx.drain(e.env.Arena))
}

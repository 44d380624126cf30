package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Fragments are steered by their addresses only, so that all of a datagram meet at one worker. What that puts together goes to the
// worker of its flow, as all packets do.

// fragment takes a part of a packet for this host.
func (w *Worker) fragment(_ *pmd.Buf, p *wire.Packet) wire.Drop {
	var f frag.Fragment
	if p.Family == wire.IPv4 {
		f.ParseIPv4(p.L3)
	} else if f.ParseIPv6(p.L3, int(p.L4)-fragHeader, int(p.NextAt)) != frag.None {
		return wire.DropIPFragment
	}
	whole, d := w.frags.Add(w.now, &f)
	if d == frag.Headers { // RFC 7112, 5
		p.Problem = wire.Problem{Send: true, Code: icmp6IncompleteChain}
		w.paramProblem(p)
	}
	switch {
	case d != frag.None:
		return wire.DropIPFragment
	case whole == nil:
		return wire.DropNone
	}
	return w.reassembled(p, whole)
}

const (
	fragHeader           = 8 // bytes of IPv6's fragment header
	icmp6IncompleteChain = 3 // code of a Parameter Problem: the first fragment lacks headers
)

// reassembled takes a packet that the fragment p was the last part of. whole is valid until the next fragment.
func (w *Worker) reassembled(p *wire.Packet, whole []byte) wire.Drop {
	q := wire.Packet{EthSrc: p.EthSrc, EthDst: p.EthDst, EtherType: p.EtherType}
	if d := wire.ParseIP(whole, &q, true); d != wire.DropNone {
		return d
	}
	q.Fragmented = true
	if d := w.filtered(&q, false); d != wire.DropNone {
		return d
	}
	if to := w.stack.steer.frame(&w.whole, &q); to >= 0 && to != w.index {
		return w.giveWhole(w.stack.workers[to], &q)
	}
	return w.transport(&w.whole, &q)
}

// maxWholes bounds the bytes of reassembled packets that wait for one worker.
const maxWholes = 1 << 20

// giveWhole hands a copy of a reassembled packet, which no buffer may hold, to its worker.
func (w *Worker) giveWhole(to *Worker, q *wire.Packet) wire.Drop {
	n := int64(len(q.L3))
	if to.wholes.Add(n) > maxWholes {
		to.wholes.Add(-n)
		w.Stats.NoBuffers++
		return wire.DropIPFragment
	}
	w.Stats.HandedOver++
	c := *q
	c.L3 = append([]byte(nil), q.L3...)
	c.Payload = c.L3[q.L4:]
	to.post(func() {
		to.wholes.Add(-n)
		to.Stats.Taken++
		if d := to.transport(&to.whole, &c); d != wire.DropNone {
			to.Stats.Drops[d]++
		}
	})
	return wire.DropNone
}

// expireFrags drops incomplete packets whose time is over, and says so where the first fragment is there (RFC 1122, 3.3.2; RFC 8200, 4.5).
func (w *Worker) expireFrags() {
	if w.frags.Deadline() > w.now {
		return
	}
	w.frags.Poll(w.now, func(e *frag.Expired) {
		q := wire.Packet{EthDst: w.stack.mac}
		switch {
		case wire.ParseIP(e.First, &q, true) != wire.DropNone:
		case q.Family == wire.IPv4:
			w.icmpError(&q, wire.ICMPTimeExceeded, timeExceededFrag)
		default:
			w.icmp6Error(&q, wire.ICMP6TimeExceeded, timeExceededFrag, 0)
		}
	})
}

// timeExceededFrag is the code of both families (RFC 792; RFC 4443, 3.3).
const timeExceededFrag = 1

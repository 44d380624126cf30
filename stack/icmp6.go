package stack

import "github.com/fastpath-tcp/fastpath/stack/wire"

func (w *Worker) icmp6Input(p *wire.Packet) wire.Drop {
	typ, code, body, d := wire.ParseICMP6(p, false)
	if d != wire.DropNone {
		return d
	}
	if isControl6(typ) {
		return w.control6(p, typ)
	}
	if p.Src == (wire.Addr{}) {
		return wire.DropIPSource
	}
	switch typ {
	case wire.ICMP6Echo: // RFC 4443, 4.2
		src, ok := w.answerFrom(p)
		if !ok {
			return wire.DropIPDest
		}
		h := ipHeader{src: src, dst: p.Src, proto: wire.ProtoICMPv6, tos: p.TOS &^ 3, flow: p.Flow}
		w.sendEcho(&h, 4+len(body), func(l4 []byte) { wire.PutICMP6(l4, h.src, h.dst, wire.ICMP6EchoReply, 0, body) })
		w.Stats.EchoReplies++
		return wire.DropNone
	case wire.ICMP6Unreachable, wire.ICMP6PacketTooBig, wire.ICMP6TimeExceeded, wire.ICMP6ParamProblem:
		return w.icmpErrorInput(body, typ, code)
	}
	return wire.DropICMPType
}

// icmp6Error sends an error about p, if one may be sent. rest is the second word of its header.
func (w *Worker) icmp6Error(p *wire.Packet, typ, code uint8, rest uint32) {
	if !wire.MayAnswerError6(p, p.Problem.Send && p.Problem.Group) || !w.errorDue() {
		return
	}
	src, ok := w.answerFrom(p)
	if !ok {
		return
	}
	n := wire.ICMPLen + min(len(p.L3), wire.MaxQuote6)
	h := ipHeader{src: src, dst: p.Src, proto: wire.ProtoICMPv6}
	w.sendIP(&h, n, func(l4 []byte) { wire.PutICMP6Error(l4, h.src, h.dst, typ, code, rest, p.L3) })
}

// answerFrom is the source of an answer to p: the address that p was sent to, or if that is a group, the one that we would begin with (RFC
// 4443, 2.2).
func (w *Worker) answerFrom(p *wire.Packet) (src wire.Addr, ok bool) {
	if p.Dst.IsMulticast() {
		return w.routes.Source(p.Src)
	}
	return p.Dst, true
}

// paramProblem sends what p.Problem says.
func (w *Worker) paramProblem(p *wire.Packet) {
	w.icmp6Error(p, wire.ICMP6ParamProblem, p.Problem.Code, uint32(p.Problem.Ptr))
}

package stack

import "github.com/fastpath-tcp/fastpath/stack/wire"

func (w *Worker) icmpInput(p *wire.Packet) wire.Drop {
	typ, code, body, d := wire.ParseICMP(p)
	if d != wire.DropNone {
		return d
	}
	switch typ {
	case wire.ICMPEcho: // RFC 1122, 3.2.2: the TOS of the request, without its ECN
		h := ipHeader{src: p.Dst, dst: p.Src, proto: wire.ProtoICMP, tos: p.TOS &^ 3}
		w.sendEcho(&h, 4+len(body), func(l4 []byte) { wire.PutEchoReply(l4, body) })
		w.Stats.EchoReplies++
		return wire.DropNone
	case wire.ICMPUnreachable, wire.ICMPTimeExceeded, wire.ICMPParamProblem:
		return w.icmpErrorInput(body, typ, code)
	case wire.ICMPRedirect:
		return wire.DropRedirect
	}
	return wire.DropICMPType
}

// sendEcho sends an answer that is as long as its request, which may have come in fragments (RFC 1122, 3.2.2.6; RFC 4443, 4.2).
func (w *Worker) sendEcho(h *ipHeader, n int, fill func(l4 []byte)) {
	if w.sendIP(h, n, fill) == packetTooLong {
		w.sendFragments(h, w.mtu(h.dst), n, fill)
	}
}

// icmpErrorInput gives an ICMP error of either family to the connection whose packet it quotes.
func (w *Worker) icmpErrorInput(body []byte, typ, code uint8) wire.Drop {
	var q wire.Quote
	if !wire.ParseQuote(body, &q) || q.Proto != wire.ProtoTCP && q.Proto != wire.ProtoUDP {
		return wire.DropICMPShort
	}
	w.Stats.IcmpErrorsIn++
	if q.Proto == wire.ProtoUDP {
		switch {
		case !q.Dst.Is4() && typ == wire.ICMP6PacketTooBig:
			w.udp.TooBig(q.Src, q.Dst, q.SrcPort, q.DstPort, q.Rest)
			return wire.DropNone
		case q.Dst.Is4() && typ == wire.ICMPUnreachable && code == wire.ICMPFragNeeded && q.Rest&0xffff != 0: // 0: a router that does not know RFC 1191
			w.udp.TooBig(q.Src, q.Dst, q.SrcPort, q.DstPort, q.Rest&0xffff)
			return wire.DropNone
		}
		w.udp.ICMPError(q.Src, q.Dst, q.SrcPort, q.DstPort, typ, code)
		return wire.DropNone
	}
	w.engine.ICMPError(&q, typ, code)
	return wire.DropNone
}

// icmpError sends an error about p, if one may be sent.
func (w *Worker) icmpError(p *wire.Packet, typ, code uint8) {
	if !wire.MayAnswerError(p) || !w.errorDue() {
		return
	}
	n := wire.ICMPLen + min(len(p.L3), wire.MaxQuote)
	h := ipHeader{src: p.Dst, dst: p.Src, proto: wire.ProtoICMP}
	w.sendIP(&h, n, func(l4 []byte) { wire.PutICMPError(l4, typ, code, 0, p.L3) })
}

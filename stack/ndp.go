package stack

import "github.com/fastpath-tcp/fastpath/stack/wire"

// control6 takes a message of neighbour discovery or MLD. Every worker hears them and learns link addresses; the first one answers and
// configures addresses.
func (w *Worker) control6(p *wire.Packet, typ uint8) wire.Drop {
	switch typ {
	case wire.ICMP6NeighborSol, wire.ICMP6NeighborAdv:
		var n wire.ND
		if d := wire.ParseND(p, &n); d != wire.DropNone {
			return d
		}
		if w.auto != nil {
			w.auto.Heard(w.now, p.Src, &n)
		}
		if typ == wire.ICMP6NeighborSol {
			w.solicited(p, &n)
		} else {
			w.advertised(&n)
		}
		return wire.DropNone
	case wire.ICMP6RouterAdv:
		return w.routerAdvert(p)
	case wire.ICMP6MLDQuery:
		var q wire.MLDQuery
		if d := wire.ParseMLDQuery(p, &q); d != wire.DropNone {
			return d
		}
		if w.auto != nil {
			w.auto.Query(w.now, &q)
		}
		return wire.DropNone
	case wire.ICMP6MLDReport:
		if len(p.Payload) < 24 || p.TTL != 1 {
			return wire.DropNDInvalid
		}
		if w.auto != nil {
			w.auto.Reported(w.now, wire.Addr(p.Payload[8:24]))
		}
		return wire.DropNone
	case wire.ICMP6Redirect:
		return wire.DropRedirect
	}
	return wire.DropICMPType // what routers hear
}

// solicited answers a solicitation for an address of ours (RFC 4861, 7.2.3 and 7.2.4).
func (w *Worker) solicited(p *wire.Packet, n *wire.ND) {
	if _, ok := w.routes.Local(n.Target); !ok {
		return
	}
	if n.HasLLA {
		ready := w.neigh.Heard(w.now, p.Src, n.LLA, false)
		w.sendReady(&ready)
	}
	if w.index != 0 {
		return
	}
	answer := wire.ND{Type: wire.ICMP6NeighborAdv, Flags: wire.NDSolicited | wire.NDOverride, Target: n.Target, LLA: w.stack.mac, HasLLA: true}
	dst := p.Src
	if dst == (wire.Addr{}) { // somebody verifies an address that we have
		answer.Flags, dst = wire.NDOverride, wire.AllNodes
	}
	h := ipHeader{src: n.Target, dst: dst, proto: wire.ProtoICMPv6, ttl: 255}
	w.sendIP(&h, 24+8, func(b []byte) { wire.PutND(b, h.src, h.dst, &answer) })
}

func (w *Worker) advertised(n *wire.ND) {
	ready, notRouter := w.neigh.Advertised(w.now, n)
	w.sendReady(&ready)
	if notRouter && w.auto != nil {
		w.auto.NotRouter(n.Target)
	}
}

func (w *Worker) routerAdvert(p *wire.Packet) wire.Drop {
	var r wire.RouterAdv
	if d := wire.ParseRouterAdv(p, &r); d != wire.DropNone {
		return d
	}
	if !w.stack.cfg.SLAAC {
		return wire.DropNone
	}
	if r.HasLLA {
		ready := w.neigh.Heard(w.now, p.Src, r.LLA, true)
		w.sendReady(&ready)
	}
	if w.auto != nil {
		w.auto.Advertised(w.now, p.Src, &r)
	}
	return wire.DropNone
}

// sendND sends a message whose link address is known.
func (w *Worker) sendND(mac wire.MAC, src, dst wire.Addr, n *wire.ND) {
	b := w.pool.Get()
	if b == nil {
		w.Stats.NoBuffers++
		return
	}
	b.SetLen(wire.EthLen + wire.IPv6Len + wire.MaxNDLen)
	f := b.Bytes()
	l := wire.PutND(f[wire.EthLen+wire.IPv6Len:], src, dst, n)
	wire.PutIPv6(f[wire.EthLen:], src, dst, wire.ProtoICMPv6, 0, 255, 0, l)
	wire.PutEthernet(f, mac, w.stack.mac, wire.EtherTypeIPv6)
	b.SetLen(wire.EthLen + wire.IPv6Len + l)
	w.send(b)
}

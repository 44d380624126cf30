package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func (w *Worker) ipv4Input(b *pmd.Buf, p *wire.Packet) wire.Drop {
	if _, ok := w.routes.Local(p.Dst); !ok || p.EthDst != w.stack.mac {
		return w.broadcastInput(b, p)
	}
	// Nobody else has our address or is a subnet (RFC 1122, 3.2.1.3; RFC 9293, MUST-63).
	if _, ours := w.routes.Local(p.Src); ours || w.routes.IsBroadcast(p.Src) {
		return wire.DropIPSource
	}
	if p.Frag {
		return w.fragment(b, p)
	}
	return w.transport(b, p)
}

// broadcastInput takes a packet that is not addressed to this host alone. Only UDP may be broadcast (RFC 1122, 3.3.6), and what came in a
// link broadcast must have a broadcast address.
func (w *Worker) broadcastInput(b *pmd.Buf, p *wire.Packet) wire.Drop {
	if p.Proto != wire.ProtoUDP || !w.routes.IsBroadcast(p.Dst) || p.EthDst != wire.Broadcast && p.EthDst != w.stack.mac {
		return wire.DropIPDest
	}
	if _, ours := w.routes.Local(p.Src); ours || w.routes.IsBroadcast(p.Src) {
		return wire.DropIPSource
	}
	if p.Frag {
		return w.fragment(b, p)
	}
	return w.udpInput(b, p)
}

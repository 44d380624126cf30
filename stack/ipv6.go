package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func (w *Worker) ipv6Input(b *pmd.Buf, p *wire.Packet) wire.Drop {
	if !w.ipv6Ours(p) {
		return wire.DropIPDest
	}
	// Who has no address yet speaks neighbour discovery and MLD only (RFC 4291, 2.5.2).
	if _, ours := w.routes.Local(p.Src); ours || p.Src == (wire.Addr{}) && p.Proto != wire.ProtoICMPv6 {
		return wire.DropIPSource
	}
	if p.Dst.IsMulticast() && p.Proto != wire.ProtoICMPv6 { // RFC 9293, MUST-57
		return wire.DropIPDest
	}
	if p.Frag {
		return w.fragment(b, p)
	}
	return w.transport(b, p)
}

// ipv6Ours reports whether p is addressed to this host, by both of its destination addresses. A switch may turn a group's Ethernet address
// into ours (RFC 6085).
func (w *Worker) ipv6Ours(p *wire.Packet) bool {
	if p.Dst.IsMulticast() {
		return w.stack.auto != nil && w.routes.InGroup(p.Dst) && (p.EthDst.IsMulticast() || p.EthDst == w.stack.mac)
	}
	_, ok := w.routes.Local(p.Dst)
	return ok && p.EthDst == w.stack.mac
}

// refused answers a packet that was refused for what it contains, if it was for us and the sender is to know (RFC 8200, 4).
func (w *Worker) refused(p *wire.Packet) {
	if p.Problem.Send && w.ipv6Ours(p) {
		w.paramProblem(p)
	}
}

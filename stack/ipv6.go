package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func (w *Worker) ipv6Input(b *pmd.Buf, p *wire.Packet) wire.Drop {
	if !w.ipv6Ours(p) {
		return wire.DropIPDest
	}
	if _, ours := w.routes.Local(p.Src); ours {
		return wire.DropIPSource
	}
	if p.Frag {
		return w.fragment(b, p)
	}
	return w.transport(b, p)
}

// ipv6Ours reports whether p is addressed to this host, by both of its destination addresses.
func (w *Worker) ipv6Ours(p *wire.Packet) bool {
	if p.Dst.IsMulticast() {
		return false
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

package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

var _ udp.Link = (*Worker)(nil)

// udpInput delivers a datagram. If it was sent to one of our addresses, and not to a broadcast address, the sender learns that a port is
// closed (RFC 1122, 4.1.3.1).
func (w *Worker) udpInput(b *pmd.Buf, p *wire.Packet) wire.Drop {
	var u wire.UDP
	if d := wire.ParseUDP(p, &u, b.Flags&(pmd.RxCsumGood|pmd.RxPartial) != 0); d != wire.DropNone {
		w.udp.Stats.InErrors++
		return d
	}
	found, d := w.udp.Input(p.Src, p.Dst, &u)
	if !found && w.ours(p) && !w.leaves() {
		w.unreachable(p, wire.ICMPPortUnreachable)
	}
	return d
}

// everybodyTakes is the longest IPv4 packet that every host takes whole (RFC 1122, 3.3.2).
const everybodyTakes = 576

// QueueUDP implements udp.Link.
func (w *Worker) QueueUDP(g *tcp.Guest) { w.engine.QueueGuest(g) }

// SendUDP implements udp.Link. What is longer than the MTU leaves in fragments, unless it is to stay whole.
func (w *Worker) SendUDP(d *udp.Datagram) udp.Sent {
	if w.fifo.Room() == 0 {
		return udp.SentFull
	}
	n := wire.UDPLen + len(d.Data)
	h := ipHeader{src: d.Src, dst: d.Dst, proto: wire.ProtoUDP, tos: d.TOS, ttl: d.TTL}
	if h.src.IsZero() {
		h.src = w.sourceUDP(d.Dst)
	}
	mtu, hdr := w.stack.mtu, wire.IPv4Len
	if !d.Dst.Is4() {
		hdr = wire.IPv6Len
		if m := w.routes.MTU6(); m != 0 {
			mtu = min(mtu, m)
		}
	}
	if d.MTU != 0 {
		mtu = min(mtu, d.MTU)
	}
	h.mayFrag = n+hdr > everybodyTakes && !d.Whole // routers cut it where it does not fit: nobody repeats a datagram
	fill := func(l4 []byte) { wire.PutUDP(l4, h.src, d.Dst, d.SrcPort, d.DstPort, d.Data) }
	var r sendResult
	switch {
	case hdr+n <= mtu:
		r = w.sendIP(&h, n, fill)
	case d.Whole: // the MTU has become less since it was written
		return udp.SentLost
	default:
		r = w.sendFragments(&h, mtu, n, fill)
	}
	switch {
	case r == packetSent:
		return udp.SentOK
	case r == packetNoBuffer && w.fifo.Len() > 0: // else it would never fit
		return udp.SentFull
	}
	return udp.SentLost
}

// sourceUDP chooses the source address. A broadcast needs none: a host that asks for its address has none yet (RFC 2131, 4.1).
func (w *Worker) sourceUDP(dst wire.Addr) wire.Addr {
	if src, ok := w.routes.Source(dst); ok {
		return src
	}
	if !dst.Is4() {
		return wire.Addr{}
	}
	for _, a := range w.routes.Addrs(0) {
		if a.Is4() {
			return a
		}
	}
	return wire.AddrFrom4([4]byte{})
}

package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ipHeader is what the sender of an IP packet may say of its header. The addresses decide the family.
type ipHeader struct {
	src, dst wire.Addr
	proto    uint8
	tos      uint8  // or traffic class
	ttl      uint8  // or hop limit; 0: 64
	mayFrag  bool   // IPv4 without DF
	flow     uint32 // flow label
}

// sendResult is what became of a packet.
type sendResult uint8

const (
	packetSent     sendResult = iota // in the FIFO, or waiting for the link address of its next hop
	packetTooLong                    // longer than the MTU
	packetNoRoute                    // no route to its destination
	packetNoBuffer                   // no buffer, or no room
)

// defaultTTL is the TTL and hop limit of what we send.
const defaultTTL = 64

// sendIP sends an IP packet with n bytes of transport header and payload, which fill writes; fill must write all of them. Groups and the
// broadcast address need no resolution; otherwise the packet waits in the cache until the link address of its next hop is known.
func (w *Worker) sendIP(h *ipHeader, n int, fill func(l4 []byte)) sendResult {
	hdr, etherType := wire.IPv6Len, uint16(wire.EtherTypeIPv6)
	if h.dst.Is4() {
		hdr, etherType = wire.IPv4Len, wire.EtherTypeIPv4
	}
	if hdr+n > w.mtu(h.dst) {
		return packetTooLong
	}
	b := w.pool.Get()
	if b == nil {
		w.Stats.NoBuffers++
		return packetNoBuffer
	}
	b.SetLen(wire.EthLen + hdr + n)
	f := b.Bytes()
	w.putIP(f[wire.EthLen:], h, n)
	fill(f[wire.EthLen+hdr:])
	mac, ref, r := w.nextHop(h.dst)
	switch r {
	case neigh.Wait:
		w.freeChain(w.neigh.Enqueue(ref, b))
		return packetSent
	case neigh.Gone:
		w.free(b)
		return packetNoRoute
	}
	wire.PutEthernet(f, mac, w.stack.mac, etherType)
	if !w.send(b) {
		return packetNoBuffer
	}
	return packetSent
}

// mtu is the length of the longest packet to dst that this link takes.
func (w *Worker) mtu(dst wire.Addr) int {
	if dst.Is4() {
		return w.stack.mtu
	}
	return w.mtu6
}

func (w *Worker) putIP(b []byte, h *ipHeader, n int) {
	ttl := h.ttl
	if ttl == 0 {
		ttl = defaultTTL
	}
	switch {
	case !h.dst.Is4():
		wire.PutIPv6(b, h.src, h.dst, h.proto, h.tos, ttl, h.flow, n)
	case h.mayFrag: // needs an ID of its own, which nobody off the path can guess (RFC 6864, 4.2; RFC 7739, 5)
		id := uint16(w.stack.fragIDs.Next(h.src, h.dst, h.proto))
		wire.PutIPv4Frag(b, h.src, h.dst, h.proto, h.tos, ttl, id, 0, wire.IPv4Len+n)
	default:
		wire.PutIPv4(b, h.src, h.dst, h.proto, h.tos, ttl, 0, wire.IPv4Len+n)
	}
}

// nextHop returns the link address for a packet to dst; Wait with the entry to wait for; or Gone if there is no route.
func (w *Worker) nextHop(dst wire.Addr) (mac wire.MAC, ref neigh.Ref, r neigh.Result) {
	switch {
	case dst.IsMulticast():
		return dst.GroupMAC(), ref, neigh.OK
	case w.routes.IsBroadcast(dst):
		return wire.Broadcast, ref, neigh.OK
	}
	mac, ok := w.Resolve(&ref, dst)
	switch {
	case ok:
		return mac, ref, neigh.OK
	case ref == neigh.Ref{}:
		return mac, ref, neigh.Gone
	}
	return mac, ref, neigh.Wait
}

// send puts a frame into the FIFO. It returns false if there was no room; the frame is freed then.
func (w *Worker) send(b *pmd.Buf) bool {
	if !w.fifo.Push(b) {
		w.Stats.TxFull++
		w.free(b)
		return false
	}
	return true
}

// sendReady sends the packets that waited for a link address.
func (w *Worker) sendReady(ready *neigh.Ready) {
	if ready.MAC == (wire.MAC{}) {
		return
	}
	w.engine.Resolved()
	etherType := uint16(wire.EtherTypeIPv6)
	if ready.Addr.Is4() {
		etherType = wire.EtherTypeIPv4
	}
	for b := ready.Chain; b != nil; {
		next := b.Next
		b.Next = nil
		wire.PutEthernet(b.Bytes(), ready.MAC, w.stack.mac, etherType)
		w.send(b)
		b = next
	}
}

package stack

import (
	"errors"

	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// sendFragments is sendIP for a packet that is longer than mtu: it leaves in fragments, all of them or none. IPv4 fragments lack DF, so
// that routers may cut them again. TCP never comes here. While the link address of the next hop is asked for, the cache keeps the last
// few fragments only, which is as good as losing the packet.
func (w *Worker) sendFragments(h *ipHeader, mtu, n int, fill func(l4 []byte)) sendResult {
	head := *h
	head.mayFrag = true
	hdr, etherType, per := wire.IPv6Len, uint16(wire.EtherTypeIPv6), (mtu-wire.IPv6Len-fragHeader)&^7
	if h.dst.Is4() {
		hdr, etherType, per = wire.IPv4Len, wire.EtherTypeIPv4, (mtu-wire.IPv4Len)&^7
		if hdr+n > maxIPLen {
			return packetTooLong
		}
	}
	if n > maxIPLen || per <= 0 {
		return packetTooLong
	}
	mac, ref, r := w.nextHop(h.dst)
	switch need := (n + per - 1) / per; {
	case r == neigh.Gone:
		return packetNoRoute
	case r == neigh.OK && w.fifo.Room() < need:
		w.Stats.TxFull++
		return packetNoBuffer
	}
	packet := make([]byte, hdr+n)
	w.putIP(packet, &head, n)
	fill(packet[hdr:])
	err := frag.Split(packet, mtu, w.stack.fragIDs.Next(h.src, h.dst, h.proto), func(f []byte) error {
		b := w.pool.Get()
		if b == nil {
			w.Stats.NoBuffers++
			return errNoBuffer
		}
		b.SetLen(wire.EthLen + len(f))
		copy(b.Bytes()[wire.EthLen:], f)
		if r == neigh.Wait {
			w.freeChain(w.neigh.Enqueue(ref, b))
			return nil
		}
		wire.PutEthernet(b.Bytes(), mac, w.stack.mac, etherType)
		w.send(b)
		return nil
	})
	if err != nil {
		return packetNoBuffer
	}
	return packetSent
}

// maxIPLen is what a length field of IP can say.
const maxIPLen = 65535

var errNoBuffer = errors.New("no buffer")

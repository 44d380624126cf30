package stack

import (
	"github.com/fastpath-tcp/fastpath/stack/filter"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// filtered asks the packet filter about a received packet. Fragments pass: what they become is asked about. So do neighbour discovery
// and MLD, without which there is no link. sumOK says that the transport's checksum needs no look.
func (w *Worker) filtered(p *wire.Packet, sumOK bool) wire.Drop {
	if !w.filter.Active() || p.Family == 0 || p.Frag || p.Proto == wire.ProtoICMPv6 && len(p.Payload) > 0 && isControl6(p.Payload[0]) {
		return wire.DropNone
	}
	switch w.filter.Check(p) {
	case filter.Allow:
		return wire.DropNone
	case filter.Reject:
		w.reject(p, sumOK)
	}
	return wire.DropFilter
}

// reject tells the sender of a packet for this host that the filter refuses it.
func (w *Worker) reject(p *wire.Packet, sumOK bool) {
	if !w.ours(p) {
		return
	}
	var t wire.TCP
	switch {
	case p.Proto == wire.ProtoTCP:
		if wire.ParseTCP(p, &t, sumOK) == wire.DropNone {
			w.engine.Refuse(p, &t)
		}
	case p.Family == wire.IPv4: // RFC 1812, 5.2.7.1
		w.icmpError(p, wire.ICMPUnreachable, icmpProhibited)
	default: // RFC 4443, 3.1
		w.icmp6Error(p, wire.ICMP6Unreachable, icmp6Prohibited, 0)
	}
}

// Codes for communication that is administratively prohibited.
const (
	icmpProhibited  = 13
	icmp6Prohibited = 1
)

// ours reports whether an IP packet is addressed to this host alone, by both of its destination addresses.
func (w *Worker) ours(p *wire.Packet) bool {
	_, ok := w.routes.Local(p.Dst)
	return ok && p.EthDst == w.stack.mac
}

// SetFilter replaces the packet filter; nil is none. Each worker changes over between two turns, and counts anew from then on.
func (s *Stack) SetFilter(t *filter.Table) {
	s.each(func(w *Worker) { w.filter.Use(t) })
}

// FilterCounts are what the filter's rules have matched, over all workers; the last one is of the default. It is empty without a filter.
func (s *Stack) FilterCounts() (sum []filter.Count) {
	s.each(func(w *Worker) {
		for i, c := range w.filter.Counts() {
			if i == len(sum) {
				sum = append(sum, filter.Count{})
			}
			sum[i].Packets += c.Packets
			sum[i].Bytes += c.Bytes
		}
	})
	return sum
}

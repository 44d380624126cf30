package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// L3Stats are a worker's counters below TCP.
type L3Stats struct {
	RxFrames, RxBytes uint64
	Drops             [wire.NumDrops]uint64
	NoRoute           uint64 // packets for which there was no next hop
	EchoReplies       uint64
	IcmpErrorsIn      uint64
	IcmpErrorsOut     uint64
	HandedOver        uint64 // frames that came to this worker and belong to another
	Taken             uint64 // frames that other workers handed over
	NoBuffers         uint64 // frames below TCP that were not sent or copied for want of a buffer
	LinkDowns         uint64 // times that the link was seen to be down
	LinkUps           uint64 // times that it came back
	TxFull            uint64 // frames below TCP that found the FIFO full
}

// receive takes one frame from the port: it goes to the worker that owns its flow.
func (w *Worker) receive(b *pmd.Buf) {
	w.Stats.RxFrames++
	w.Stats.RxBytes += uint64(b.Len())
	var p wire.Packet
	if d := w.parse(b, &p); d != wire.DropNone {
		w.refused(&p)
		if !w.excepted(b, d) {
			w.drop(b, d)
		}
		return
	}
	w.share(b, &p)
	if d := w.filtered(&p, b.Flags&(pmd.RxCsumGood|pmd.RxPartial) != 0); d != wire.DropNone {
		if w.ours(&p) || !w.excepted(b, wire.DropIPDest) { // the kernel has a filter of its own
			w.drop(b, d)
		}
		return
	}
	if len(w.stack.workers) > 1 {
		switch to := w.stack.steer.frame(b, &p); {
		case to == everyWorker:
			w.copyToOthers(b)
		case to == thisWorker:
		case to != w.index:
			w.Stats.HandedOver++
			w.out[to].add(b)
			return
		}
	}
	w.input(b, &p)
}

func (w *Worker) parse(b *pmd.Buf, p *wire.Packet) wire.Drop {
	if b.Flags&pmd.RxCsumBad != 0 {
		return wire.DropPortChecksum
	}
	return wire.Parse(b.Bytes(), p, b.Flags&pmd.RxCsumGood != 0)
}

func (w *Worker) drop(b *pmd.Buf, d wire.Drop) {
	w.Stats.Drops[d]++
	w.free(b)
}

// input processes a frame that belongs to this worker, by its network protocol.
func (w *Worker) input(b *pmd.Buf, p *wire.Packet) {
	var d wire.Drop
	switch p.EtherType {
	case wire.EtherTypeARP:
		d = w.arpInput(p)
	case wire.EtherTypeIPv6:
		d = w.ipv6Input(b, p)
	default:
		d = w.ipv4Input(b, p)
	}
	if d != wire.DropNone {
		if w.excepted(b, d) {
			return
		}
		w.Stats.Drops[d]++
	}
	w.free(b)
}

// transport gives a whole packet that is addressed to this host to its protocol. The frame stays the caller's.
func (w *Worker) transport(b *pmd.Buf, p *wire.Packet) wire.Drop {
	switch {
	case p.Proto == wire.ProtoTCP:
		return w.tcpInput(b, p)
	case p.Proto == wire.ProtoUDP:
		return w.udpInput(b, p)
	case p.Proto == wire.ProtoICMP && p.Family == wire.IPv4:
		return w.icmpInput(p)
	case p.Proto == wire.ProtoICMPv6 && p.Family == wire.IPv6:
		return w.icmp6Input(p)
	}
	if !w.leaves() {
		w.unreachable(p, wire.ICMPProtoUnreachable)
	}
	return wire.DropIPProto
}

func (w *Worker) tcpInput(b *pmd.Buf, p *wire.Packet) wire.Drop {
	var t wire.TCP
	// A partial checksum is left by a sender on this host, and its content trusted (virtio 1.2, 5.1.6.4).
	if d := wire.ParseTCP(p, &t, b.Flags&(pmd.RxCsumGood|pmd.RxPartial) != 0); d != wire.DropNone {
		return d
	}
	if w.unclaimed(p, &t) {
		return wire.DropTCPUnclaimed
	}
	w.engine.Input(p, &t)
	return wire.DropNone
}

// unreachable tells the source of p that its protocol (wire.ICMPProtoUnreachable) or port (wire.ICMPPortUnreachable) is not there.
func (w *Worker) unreachable(p *wire.Packet, code uint8) {
	switch {
	case p.Family == wire.IPv4:
		w.icmpError(p, wire.ICMPUnreachable, code)
	case code == wire.ICMPPortUnreachable:
		w.icmp6Error(p, wire.ICMP6Unreachable, wire.ICMP6PortUnreachable, 0)
	default: // RFC 8200, 4
		p.Problem = wire.Problem{Send: true, Code: wire.ICMP6UnknownNext, Ptr: p.NextAt}
		w.paramProblem(p)
	}
}

// icmpErrorEvery limits ICMP errors (RFC 1812, 4.3.2.8; RFC 4443, 2.4 (f)).
const icmpErrorEvery = 1e6 // ns

// errorDue reports whether the limit allows an ICMP error now, and counts it.
func (w *Worker) errorDue() bool {
	if w.now < w.nextICMP {
		return false
	}
	w.nextICMP = w.now + icmpErrorEvery
	w.Stats.IcmpErrorsOut++
	return true
}

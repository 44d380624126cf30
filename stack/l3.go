package stack

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
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
	TxFull            uint64 // frames below TCP that found the FIFO full
}

// receive takes one frame from the port: it goes to the worker that owns its flow.
func (w *Worker) receive(b *pmd.Buf) {
	w.Stats.RxFrames++
	w.Stats.RxBytes += uint64(b.Len())
	var p wire.Packet
	if d := w.parse(b, &p); d != wire.DropNone {
		w.drop(b, d)
		return
	}
	if len(w.stack.workers) > 1 {
		switch to := w.stack.steer.frame(b, &p); {
		case to == everyWorker:
			w.copyToOthers(b)
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

// input processes a frame that belongs to this worker.
func (w *Worker) input(b *pmd.Buf, p *wire.Packet) {
	var d wire.Drop
	switch p.EtherType {
	case wire.EtherTypeARP:
		d = w.arpInput(p)
	default:
		d = w.ipInput(b, p)
	}
	if d != wire.DropNone {
		w.Stats.Drops[d]++
	}
	w.free(b)
}

func (w *Worker) ipInput(b *pmd.Buf, p *wire.Packet) wire.Drop {
	if _, ok := w.stack.routes.Local(p.Dst); !ok || p.EthDst != w.stack.mac {
		return wire.DropIPDest
	}
	// Nobody else has our address or is a subnet (RFC 1122, 3.2.1.3; RFC 9293, MUST-63).
	if _, ours := w.stack.routes.Local(p.Src); ours || w.stack.routes.IsBroadcast(p.Src) {
		return wire.DropIPSource
	}
	switch p.Proto {
	case wire.ProtoTCP:
		var t wire.TCP
		// A partial checksum is left by a sender on this host, and its content trusted (virtio 1.2, 5.1.6.4).
		if d := wire.ParseTCP(p, &t, b.Flags&(pmd.RxCsumGood|pmd.RxPartial) != 0); d != wire.DropNone {
			return d
		}
		w.engine.Input(p, &t)
		return wire.DropNone
	case wire.ProtoICMP:
		return w.icmpInput(p)
	}
	if w.errorAllowed(p) {
		w.icmpError(p, wire.ICMPUnreachable, wire.ICMPProtoUnreachable)
	}
	return wire.DropIPProto
}

func (w *Worker) icmpInput(p *wire.Packet) wire.Drop {
	typ, code, body, d := wire.ParseICMP(p)
	if d != wire.DropNone {
		return d
	}
	switch typ {
	case wire.ICMPEcho:
		w.reply(p.Src, p.Dst, wire.ProtoICMP, 4+len(body), func(l4 []byte) { wire.PutEchoReply(l4, body) })
		w.Stats.EchoReplies++
		return wire.DropNone
	case wire.ICMPUnreachable, wire.ICMPTimeExceeded, wire.ICMPParamProblem:
		var q wire.Quote
		if !wire.ParseQuote(body, &q) || q.Proto != wire.ProtoTCP {
			return wire.DropICMPShort
		}
		w.Stats.IcmpErrorsIn++
		k := tcp.Tuple{Local: q.Src, Remote: q.Dst, LocalPort: q.SrcPort, RemotePort: q.DstPort}
		w.engine.ICMPError(&k, q.Seq, typ, code)
		return wire.DropNone
	}
	return wire.DropICMPType
}

// icmpErrorEvery limits ICMP errors (RFC 1812, 4.3.2.8).
const icmpErrorEvery = 1e6 // ns

func (w *Worker) errorAllowed(p *wire.Packet) bool {
	if !wire.MayAnswerError(p) || w.now < w.nextICMP {
		return false
	}
	w.nextICMP = w.now + icmpErrorEvery
	return true
}

func (w *Worker) icmpError(p *wire.Packet, typ, code uint8) {
	w.Stats.IcmpErrorsOut++
	n := wire.ICMPLen + min(len(p.L3), wire.MaxQuote)
	w.reply(p.Src, p.Dst, wire.ProtoICMP, n, func(l4 []byte) { wire.PutICMPError(l4, typ, code, 0, p.L3) })
}

// reply sends an IP packet with n bytes of payload, which fill writes. If the link address is not known it waits in the cache.
func (w *Worker) reply(dst, src wire.Addr, proto uint8, n int, fill func([]byte)) {
	if n+wire.IPv4Len > w.stack.mtu {
		return
	}
	b := w.pool.Get()
	if b == nil {
		w.Stats.NoBuffers++
		return
	}
	b.SetLen(wire.EthLen + wire.IPv4Len + n)
	f := b.Bytes()
	wire.PutIPv4(f[wire.EthLen:], src, dst, proto, 0, 64, 0, wire.IPv4Len+n)
	fill(f[wire.EthLen+wire.IPv4Len:])
	var ref neigh.Ref
	mac, ok := w.Resolve(&ref, dst)
	if !ok {
		w.freeChain(w.neigh.Enqueue(ref, b))
		return
	}
	wire.PutEthernet(f, mac, w.stack.mac, wire.EtherTypeIPv4)
	w.send(b)
}

// send puts a frame into the FIFO.
func (w *Worker) send(b *pmd.Buf) {
	if !w.fifo.Push(b) {
		w.Stats.TxFull++
		w.free(b)
	}
}

func (w *Worker) arpInput(p *wire.Packet) wire.Drop {
	a, d := wire.ParseARP(p.Payload)
	if d != wire.DropNone {
		return d
	}
	out, send, ready := w.neigh.Input(w.now, &a)
	if send && w.index == 0 { // every worker hears the request; one answers
		w.sendARP(&out)
	}
	if ready.MAC != (wire.MAC{}) {
		w.engine.Resolved()
	}
	for b := ready.Chain; b != nil; {
		next := b.Next
		wire.PutEthernet(b.Bytes(), ready.MAC, w.stack.mac, wire.EtherTypeIPv4)
		w.send(b)
		b = next
	}
	return wire.DropNone
}

func (w *Worker) sendARP(o *neigh.Output) {
	b := w.pool.Get()
	if b == nil {
		w.Stats.NoBuffers++
		return
	}
	b.SetLen(wire.EthMinLen)
	f := b.Bytes()
	wire.PutEthernet(f, o.Dst, w.stack.mac, wire.EtherTypeARP)
	wire.PutARP(f[wire.EthLen:], &o.ARP)
	clear(f[wire.EthLen+wire.ARPLen:])
	w.send(b)
}

// arp sends the requests that are due.
func (w *Worker) arp() {
	if !w.asked && w.neigh.Deadline() > w.now {
		return
	}
	w.asked = false
	n, failed := w.neigh.Poll(w.now, w.arpOut[:])
	for i := range n {
		w.sendARP(&w.arpOut[i])
	}
	w.freeChain(failed)
}

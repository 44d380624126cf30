package bench

import (
	"encoding/binary"
	"errors"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// sink is a port whose peer costs nearly nothing: it acknowledges what the port below has taken of one connection, and says how much left,
// and when. What the port below receives is dropped. So a sender is measured alone, on ports that may lead nowhere.
type sink struct {
	pmd.Port
	below pmd.Queue
	other pmd.Port // the other end of the port below, which is emptied; nil if there is none
	clock turnClock
	sent  func(at plugins.Time, payload int)

	mac, peerMAC wire.MAC
	arp          wire.ARP // answered at the next Poll if it has an Op
	local, peer  wire.Addr
	ack          wire.TCP // header of the next answer
	due          bool     // it is to be sent
	frames       [64]sinkFrame
	dropped      [64]*pmd.Buf
}

// turnClock is a stack's clock that knows what it said last: the time of the turn that is under way.
type turnClock interface {
	Now() plugins.Time
	last() plugins.Time
}

// sinkFrame is what matters of a frame that leaves.
type sinkFrame struct {
	tcp     wire.TCP
	payload int // -1: no segment
}

const (
	sinkISS    = 1000
	sinkMSS    = 65495 // the stack's own is less
	sinkScale  = 14
	sinkWindow = 65535
)

// newSink wraps a port, which it owns from then on, together with its other end.
func newSink(p, other pmd.Port, clock turnClock, sent func(at plugins.Time, payload int)) *sink {
	return &sink{Port: p, below: p.Queue(0), other: other, clock: clock, sent: sent, mac: wire.MAC(p.Info().MAC), peerMAC: wire.MAC{2, 0, 0, 0, 0, 0x5c}}
}

// newMemSink is a sink over memlink.
func newMemSink(clock turnClock, sent func(at plugins.Time, payload int)) (*sink, error) {
	a, b, err := memlink.New(memlink.Config{Ring: ring, Now: clock.Now, Virtual: true})
	if err != nil {
		return nil, err
	}
	a.Queue(0).Pool().Populate()
	return newSink(a, b, clock, sent), nil
}

// Info implements pmd.Port. Nothing verifies what the sink builds.
func (s *sink) Info() pmd.Info {
	i := s.Port.Info()
	i.Caps &^= pmd.RxCsum | pmd.RSSHash
	return i
}

func (s *sink) NumQueues() int      { return 1 }
func (s *sink) Queue(int) pmd.Queue { return s }
func (s *sink) TxRoom() int         { return s.below.TxRoom() }
func (s *sink) Pool() *pmd.Pool     { return s.below.Pool() }
func (s *sink) WakeFD() int         { return -1 }
func (s *sink) LinkUp() bool        { return true }

// waiting reports whether the next Poll receives something.
func (s *sink) waiting() bool { return s.due || s.arp.Op != 0 }

// Close closes the port below and its other end.
func (s *sink) Close() error {
	if s.other == nil {
		return s.Port.Close()
	}
	s.empty()
	return errors.Join(s.Port.Close(), s.other.Close())
}

// Poll implements pmd.Queue.
func (s *sink) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	tx = tx[:min(len(tx), len(s.frames))]
	for i, b := range tx {
		s.look(b.Bytes(), &s.frames[i])
	}
	ntx, n := s.below.Poll(tx, s.dropped[:min(len(rx), len(s.dropped))])
	pmd.FreeAll(s.dropped[:n])
	payload := 0
	for i := range s.frames[:ntx] {
		payload += s.take(&s.frames[i])
	}
	if payload > 0 {
		s.sent(s.clock.last(), payload)
	}
	if s.other != nil && ntx > 0 {
		s.empty()
	}
	for nrx < len(rx) && s.waiting() {
		b := s.below.Pool().Get()
		if b == nil {
			break
		}
		s.build(b)
		rx[nrx] = b
		nrx++
	}
	return ntx, nrx
}

// empty drops what has come to the other end.
func (s *sink) empty() {
	for {
		_, n := s.other.Queue(0).Poll(nil, s.dropped[:])
		pmd.FreeAll(s.dropped[:n])
		if n == 0 {
			return
		}
	}
}

// look notes what a frame is, before the port takes it.
func (s *sink) look(frame []byte, f *sinkFrame) {
	f.payload = -1
	var p wire.Packet
	if wire.Parse(frame, &p, true) != wire.DropNone {
		return
	}
	if p.EtherType == wire.EtherTypeARP {
		if a, d := wire.ParseARP(p.Payload); d == wire.DropNone && a.Op == wire.ARPRequest && a.TPA != a.SPA {
			s.arp = wire.ARP{Op: wire.ARPReply, SHA: s.peerMAC, SPA: a.TPA, THA: a.SHA, TPA: a.SPA}
		}
		return
	}
	if p.Proto != wire.ProtoTCP || wire.ParseTCP(&p, &f.tcp, true) != wire.DropNone {
		return
	}
	f.payload = len(f.tcp.Payload)
	s.local, s.peer = p.Src, p.Dst
}

// take acknowledges a frame that the port has taken, and returns its payload.
func (s *sink) take(f *sinkFrame) int {
	if f.payload < 0 || f.tcp.Flags&wire.RST != 0 {
		return 0
	}
	a := &s.ack
	if f.tcp.Flags&wire.SYN != 0 {
		*a = wire.TCP{SrcPort: f.tcp.DstPort, DstPort: f.tcp.SrcPort, Seq: sinkISS, Ack: f.tcp.Seq + 1, Flags: wire.SYN | wire.ACK, Window: sinkWindow}
		s.due = true
		return 0
	}
	end := f.tcp.Seq + uint32(f.payload)
	if f.tcp.Flags&wire.FIN != 0 {
		end++
	}
	if n := int32(end - a.Ack); n > 0 {
		a.Seq, a.Ack, a.Flags = sinkISS+1, end, wire.ACK
		s.due = true
	}
	return f.payload
}

// build makes the next answer.
func (s *sink) build(b *pmd.Buf) {
	b.Reset()
	if s.arp.Op != 0 {
		b.SetLen(wire.EthMinLen)
		f := b.Bytes()
		clear(f)
		wire.PutEthernet(f, s.mac, s.peerMAC, wire.EtherTypeARP)
		wire.PutARP(f[wire.EthLen:], &s.arp)
		s.arp = wire.ARP{}
		return
	}
	var opts [8]byte
	o := opts[:0]
	if s.ack.Flags&wire.SYN != 0 {
		o = wire.PutWScale(wire.PutMSS(o, sinkMSS), sinkScale)
	}
	hdr := wire.TCPLen + len(o)
	b.SetLen(wire.EthLen + wire.IPv4Len + hdr)
	f := b.Bytes()
	wire.PutEthernet(f, s.mac, s.peerMAC, wire.EtherTypeIPv4)
	wire.PutIPv4(f[wire.EthLen:], s.peer, s.local, wire.ProtoTCP, 0, 64, 0, wire.IPv4Len+hdr)
	h := f[wire.EthLen+wire.IPv4Len:]
	wire.PutTCP(h, &s.ack, hdr)
	copy(h[wire.TCPLen:], o)
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], wire.Fold(wire.Sum(h, wire.PseudoSum(s.peer, s.local, wire.ProtoTCP, hdr))))
	s.due = false
}

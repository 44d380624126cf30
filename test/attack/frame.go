package attack

import (
	"encoding/binary"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// A Segment is one TCP segment from anywhere to the victim's server.
type Segment struct {
	Src     netip.AddrPort
	DstPort uint16 // Port, if 0
	wire.TCP
	Options wire.Options
	// RawOptions go instead of Options; a multiple of 4 bytes.
	RawOptions []byte
}

// TCP builds the frame of s, from the attacker's link address.
func (n *Net) TCP(s *Segment) []byte {
	opts := s.RawOptions
	if opts == nil {
		opts = wire.PutOptions(nil, &s.Options)
	}
	h := s.TCP
	h.SrcPort, h.DstPort = s.Src.Port(), s.DstPort
	if h.DstPort == 0 {
		h.DstPort = Port
	}
	hdr := wire.TCPLen + len(opts)
	src := wire.AddrFrom(s.Src.Addr())
	f := n.ip(src, wire.ProtoTCP, hdr+len(s.Payload))
	seg := f[wire.EthLen+wire.IPv4Len:]
	wire.PutTCP(seg, &h, hdr)
	copy(seg[wire.TCPLen:], opts)
	copy(seg[hdr:], s.Payload)
	binary.BigEndian.PutUint16(seg[wire.TCPChecksum:], wire.Fold(wire.Sum(seg, wire.PseudoSum(src, victim, wire.ProtoTCP, len(seg)))))
	return f
}

// ip builds a frame with an IPv4 header and n bytes behind it.
func (n *Net) ip(src wire.Addr, proto uint8, size int) []byte {
	f := make([]byte, wire.EthLen+wire.IPv4Len+size)
	wire.PutEthernet(f, n.macs[0], AttackerMAC, wire.EtherTypeIPv4)
	n.ipID++
	wire.PutIPv4(f[wire.EthLen:], src, victim, proto, 0, 64, n.ipID, wire.IPv4Len+size)
	return f
}

// Proto builds a packet of any protocol from src to the victim.
func (n *Net) Proto(src netip.Addr, proto uint8, payload []byte) []byte {
	f := n.ip(wire.AddrFrom(src), proto, len(payload))
	copy(f[wire.EthLen+wire.IPv4Len:], payload)
	return f
}

// ARP builds an ARP frame.
func ARP(op uint16, sha wire.MAC, spa netip.Addr, tha wire.MAC, tpa netip.Addr) []byte {
	f := make([]byte, wire.EthMinLen)
	dst := wire.Broadcast
	if op == wire.ARPReply {
		dst = tha
	}
	wire.PutEthernet(f, dst, sha, wire.EtherTypeARP)
	wire.PutARP(f[wire.EthLen:], &wire.ARP{Op: op, SHA: sha, SPA: spa.As4(), THA: tha, TPA: tpa.As4()})
	return f
}

// Parse takes a frame of the victim apart; ok is false if it is no TCP segment.
func Parse(f []byte) (p wire.Packet, t wire.TCP, o wire.Options, ok bool) {
	if wire.Parse(f, &p, false) != wire.DropNone || p.Proto != wire.ProtoTCP || wire.ParseTCP(&p, &t, false) != wire.DropNone {
		return p, t, o, false
	}
	return p, t, o, wire.ParseOptions(t.Opts, &o)
}

// Outside is the i-th address beyond the gateway.
func Outside(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, byte(18 + i>>16&1), byte(i >> 8), byte(i)})
}

// Neighbour is the i-th address on the link that belongs to nobody.
func Neighbour(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(1 + i>>8%250), byte(i)})
}

// Content is what the server sends from offset off on: payload is a function of its offset.
func Content(off, n int) []byte { return tcptest.Bytes(uint64(off), n) }

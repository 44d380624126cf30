package wire

import "encoding/binary"

// Ethernet types.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd
)

// IP protocols and IPv6 extension headers.
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoICMPv6   = 58
	ProtoNone     = 59
	ProtoDstOpts  = 60
)

// Header lengths in bytes.
const (
	EthLen     = 14
	EthMinLen  = 60 // shortest frame without its FCS; shorter ones are padded
	IPv4Len    = 20 // without options
	IPv6Len    = 40 // without extension headers
	TCPLen     = 20 // without options
	MaxTCPHdr  = 60
	MaxTCPOpts = MaxTCPHdr - TCPLen
)

// IP families, as values of Packet.Family.
const (
	IPv4 = 4
	IPv6 = 6
)

// Packet is a parsed frame.
type Packet struct {
	EthSrc, EthDst MAC
	EtherType      uint16
	Family         uint8 // IPv4, IPv6; 0 for ARP
	Proto          uint8 // of Payload: behind IPv6 extension headers, or what the Fragment header names if Frag
	Src, Dst       Addr
	TOS, TTL       uint8  // traffic class and hop limit of IPv6
	ID             uint32 // IPv4: identification, 16 bits; IPv6: of the Fragment header
	Flow           uint32 // flow label, 20 bits; 0 for IPv4

	Frag       bool // Payload is a part of one: FragOff is its place, MoreFrags says that it is not the last
	MoreFrags  bool
	Fragmented bool   // there was a Fragment header, or the packet was put together
	FragOff    uint16 // bytes

	NextAt  uint16 // IPv6: offset in L3 of the field that names Proto; if Frag, of the one that names the Fragment header
	L4      uint16 // offset of Payload in L3
	Problem Problem
	L3      []byte // the IP packet without padding; for ARP the body
	Payload []byte // what is behind the IP headers; for ARP the body
}

// Parse parses an Ethernet frame up to the IP payload, IPv6 extension headers included. csumDone says that the port verified the IP header checksum. Of an ARP
// frame it sets the Ethernet fields, L3 and Payload; see ParseARP. p is undefined unless it returns DropNone.
//
// It does not look whether the packet is for this host.
func Parse(frame []byte, p *Packet, csumDone bool) Drop {
	if len(frame) < EthLen {
		return DropRunt
	}
	p.EthDst = MAC(frame[0:6])
	p.EthSrc = MAC(frame[6:12])
	p.EtherType = binary.BigEndian.Uint16(frame[12:])
	switch p.EtherType {
	case EtherTypeIPv4:
		return parseIPv4(frame[EthLen:], p, csumDone)
	case EtherTypeIPv6:
		return parseIPv6(frame[EthLen:], p)
	case EtherTypeARP:
		p.Family, p.Proto = 0, 0
		p.L3 = frame[EthLen:]
		p.Payload = p.L3
		return DropNone
	case EtherTypeVLAN:
		return DropVLAN
	}
	return DropEtherType
}

// ParseIP parses an IP packet without a frame, such as one that was put together from fragments; the Ethernet fields of p stay.
func ParseIP(l3 []byte, p *Packet, csumDone bool) Drop {
	if len(l3) > 0 && l3[0]>>4 == IPv6 {
		return parseIPv6(l3, p)
	}
	return parseIPv4(l3, p, csumDone)
}

// PutEthernet writes an Ethernet header to b[:14].
func PutEthernet(b []byte, dst, src MAC, etherType uint16) {
	_ = b[EthLen-1]
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
}

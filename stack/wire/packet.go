package wire

import (
	"encoding/binary"
	"math/bits"
)

// Ethernet types.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd
)

// IP protocols.
const (
	ProtoICMP = 1
	ProtoTCP  = 6
	ProtoUDP  = 17
)

// Header lengths in bytes.
const (
	EthLen     = 14
	EthMinLen  = 60 // shortest frame without its FCS; shorter ones are padded
	IPv4Len    = 20 // without options
	TCPLen     = 20 // without options
	MaxTCPHdr  = 60
	MaxTCPOpts = MaxTCPHdr - TCPLen
)

// Packet is a parsed frame.
type Packet struct {
	EthSrc, EthDst  MAC
	EtherType       uint16
	Src, Dst        Addr
	TOS, TTL, Proto uint8
	ID              uint16
	L3              []byte // the IP packet without padding; for ARP the body
	Payload         []byte // what is behind the IP header; for ARP the body
}

// Parse parses an Ethernet frame up to the IP payload. csumDone says that the port verified the IP header checksum. Of an ARP
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
	case EtherTypeARP:
		p.L3 = frame[EthLen:]
		p.Payload = p.L3
		return DropNone
	case EtherTypeVLAN:
		return DropVLAN
	case EtherTypeIPv6:
		return DropIPv6
	}
	return DropEtherType
}

func parseIPv4(b []byte, p *Packet, csumDone bool) Drop {
	if len(b) < IPv4Len {
		return DropIPShort
	}
	if b[0]>>4 != 4 {
		return DropIPVersion // RFC 1122, 3.2.1.1
	}
	hdr := int(b[0]&15) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if hdr < IPv4Len || hdr > total {
		return DropIPHeader
	}
	if total > len(b) {
		return DropIPShort
	}
	b = b[:total:total] // what follows is padding
	if !csumDone && !headerSumOK(b[:hdr]) {
		return DropIPChecksum // RFC 1122, 3.2.1.2
	}
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 { // MF or an offset
		return DropIPFragment
	}
	src := binary.BigEndian.Uint32(b[12:])
	if martian(src) {
		return DropIPSource
	}
	// A TTL of 0 or 1 is no reason to drop at the destination (RFC 1122, 3.2.1.7). Options are skipped.
	p.TOS, p.TTL, p.Proto = b[1], b[8], b[9]
	p.ID = binary.BigEndian.Uint16(b[4:])
	p.Src = addrFromU32(src)
	p.Dst = addrFromU32(binary.BigEndian.Uint32(b[16:]))
	p.L3, p.Payload = b, b[hdr:]
	return DropNone
}

// martian reports whether src cannot be the address of one other host: 0.0.0.0/8, 127.0.0.0/8, multicast, class E and
// broadcast (RFC 1122, 3.2.1.3).
func martian(src uint32) bool {
	top := src >> 24
	return top >= 224 || top == 127 || top == 0
}

// headerSumOK verifies the checksum of an IPv4 header of at least 20 bytes.
func headerSumOK(h []byte) bool {
	s, c := bits.Add64(binary.BigEndian.Uint64(h), binary.BigEndian.Uint64(h[8:]), 0)
	s, c = bits.Add64(s, uint64(binary.BigEndian.Uint32(h[16:])), c)
	s += c // cannot overflow: a carry leaves a small sum
	if len(h) > IPv4Len {
		s = Sum(h[IPv4Len:], s)
	}
	return Fold(s) == 0
}

// PutEthernet writes an Ethernet header to b[:14].
func PutEthernet(b []byte, dst, src MAC, etherType uint16) {
	_ = b[EthLen-1]
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
}

// PutIPv4 writes a header without options to b[:20], with DF set and the checksum in place. totalLen is the length of the
// packet with this header.
func PutIPv4(b []byte, src, dst Addr, proto, tos, ttl uint8, id uint16, totalLen int) {
	_ = b[IPv4Len-1]
	s, d := src.u32(), dst.u32()
	w0 := 0x4500<<16 | uint32(tos)<<16 | uint32(uint16(totalLen))
	w1 := uint32(id)<<16 | 0x4000
	w2 := uint32(ttl)<<24 | uint32(proto)<<16
	c := Fold(uint64(w0) + uint64(w1) + uint64(w2) + uint64(s) + uint64(d))
	binary.BigEndian.PutUint32(b[0:], w0)
	binary.BigEndian.PutUint32(b[4:], w1)
	binary.BigEndian.PutUint32(b[8:], w2|uint32(c))
	binary.BigEndian.PutUint32(b[12:], s)
	binary.BigEndian.PutUint32(b[16:], d)
}

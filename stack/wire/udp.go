package wire

import "encoding/binary"

// UDPLen is the length of a UDP header.
const UDPLen = 8

// MaxUDP4 and MaxUDP6 are the most data of a datagram in a packet of IP without options: IPv4's total length counts its own header, IPv6's payload
// length does not.
const (
	MaxUDP4 = 65535 - IPv4Len - UDPLen
	MaxUDP6 = 65535 - UDPLen
)

// UDP is a parsed datagram.
type UDP struct {
	SrcPort, DstPort uint16
	Data             []byte // in the frame
}

// ParseUDP parses p.Payload (RFC 768) and verifies its checksum, unless csumDone says that the port did. Without a checksum a datagram
// is accepted over IPv4 (RFC 1122, 4.1.3.4) and not over IPv6 (RFC 8200, 8.1). What lies behind the length that the header tells is
// not data.
func ParseUDP(p *Packet, u *UDP, csumDone bool) Drop {
	b := p.Payload
	if len(b) < UDPLen {
		return DropUDPShort
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < UDPLen || n > len(b) {
		return DropUDPLength
	}
	b = b[:n:n]
	switch sum := binary.BigEndian.Uint16(b[6:]); {
	case sum == 0:
		if !p.Dst.Is4() {
			return DropUDPChecksum
		}
	case !csumDone && Fold(Sum(b, PseudoSum(p.Src, p.Dst, ProtoUDP, n))) != 0:
		return DropUDPChecksum
	}
	u.SrcPort, u.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	u.Data = b[UDPLen:]
	return DropNone
}

// PutUDP writes a datagram with its checksum to b, which holds UDPLen+len(data) bytes and does not overlap data. A checksum of 0 is
// sent as ffff (RFC 768), because 0 says that there is none.
func PutUDP(b []byte, src, dst Addr, srcPort, dstPort uint16, data []byte) {
	n := UDPLen + len(data)
	_ = b[n-1]
	binary.BigEndian.PutUint16(b, srcPort)
	binary.BigEndian.PutUint16(b[2:], dstPort)
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	sum := Fold(SumCopy(b[UDPLen:n], data, Sum(b[:6], PseudoSum(src, dst, ProtoUDP, n))))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], sum)
}

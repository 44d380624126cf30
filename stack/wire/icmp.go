package wire

import "encoding/binary"

// ICMP types, and codes of ICMPUnreachable and ICMPTimeExceeded (RFC 792, RFC 1122).
const (
	ICMPEchoReply    = 0
	ICMPUnreachable  = 3
	ICMPSourceQuench = 4
	ICMPRedirect     = 5
	ICMPEcho         = 8
	ICMPTimeExceeded = 11
	ICMPParamProblem = 12

	ICMPNetUnreachable   = 0
	ICMPHostUnreachable  = 1
	ICMPProtoUnreachable = 2
	ICMPPortUnreachable  = 3
	ICMPFragNeeded       = 4
)

// ICMPLen is the length of an ICMP header: type, code, checksum and four bytes that depend on the type.
const ICMPLen = 8

// MaxQuote is the most of a packet that an error quotes: the error stays within 576 bytes (RFC 1812, 4.3.2.3).
const MaxQuote = 576 - IPv4Len - ICMPLen

// ParseICMP parses and verifies p.Payload. body is what follows the checksum, at least 4 bytes: identifier, sequence number
// and data of an echo; four bytes and the quoted packet of an error.
func ParseICMP(p *Packet) (typ, code uint8, body []byte, d Drop) {
	b := p.Payload
	if len(b) < ICMPLen {
		return 0, 0, nil, DropICMPShort
	}
	if Fold(Sum(b, 0)) != 0 {
		return 0, 0, nil, DropICMPChecksum
	}
	return b[0], b[1], b[4:], DropNone
}

// PutICMP writes a message with its checksum to b and returns its length, 4+len(body).
func PutICMP(b []byte, typ, code uint8, body []byte) int {
	n := 4 + len(body)
	_ = b[n-1]
	b[0], b[1] = typ, code
	s := SumCopy(b[4:n], body, uint64(typ)<<8|uint64(code))
	binary.BigEndian.PutUint16(b[2:], Fold(s))
	return n
}

// PutEchoReply writes the answer to an echo request with this body to b and returns its length (RFC 1122, 3.2.2.6).
func PutEchoReply(b, body []byte) int { return PutICMP(b, ICMPEchoReply, 0, body) }

// PutICMPError writes an error about the IP packet l3 to b and returns its length, at most 8+MaxQuote. rest is the second
// word of the header: the next-hop MTU of ICMPFragNeeded, else 0.
func PutICMPError(b []byte, typ, code uint8, rest uint32, l3 []byte) int {
	n := ICMPLen + min(len(l3), MaxQuote)
	_ = b[n-1]
	b[0], b[1], b[2], b[3] = typ, code, 0, 0
	binary.BigEndian.PutUint32(b[4:], rest)
	copy(b[ICMPLen:n], l3)
	binary.BigEndian.PutUint16(b[2:], Fold(Sum(b[:n], 0)))
	return n
}

// MayAnswerError reports whether an ICMP error may be sent about p, of IPv4: not about an ICMP error, a fragment behind the first,
// nor about what was sent to a group, by the IP or by the Ethernet address (RFC 1122, 3.2.2). Parse has already refused sources that
// are not one host. Directed broadcast addresses are for the caller to know.
func MayAnswerError(p *Packet) bool {
	if p.FragOff != 0 || p.EthDst.IsMulticast() || p.Dst.IsMulticast() || p.Dst.IsBroadcast() {
		return false
	}
	if p.Proto != ProtoICMP {
		return true
	}
	return len(p.Payload) > 0 && (p.Payload[0] == ICMPEcho || p.Payload[0] == ICMPEchoReply)
}

// Quote is what an ICMP error quotes of the packet that it is about; we sent it.
type Quote struct {
	Src, Dst         Addr
	Proto            uint8
	SrcPort, DstPort uint16 // of TCP and UDP
	Seq              uint32 // of TCP
	TotalLen         uint16 // of the quoted packet
	Rest             uint32 // second word of the error's header; its low half is the MTU of ICMPFragNeeded (RFC 1191, 4), all of it that of ICMP6PacketTooBig
}

// ParseQuote parses the body of an error, as ParseICMP or ParseICMP6 returns it. It needs the IP headers and eight bytes more. The
// quoted checksum is not verified, because routers change the quoted TTL.
func ParseQuote(body []byte, q *Quote) bool {
	if len(body) < 4+IPv4Len+8 {
		return false
	}
	q.Rest = binary.BigEndian.Uint32(body)
	b := body[4:]
	if b[0]>>4 == IPv6 {
		return quote6(b, q)
	}
	hdr := int(b[0]&15) * 4
	if b[0]>>4 != 4 || hdr < IPv4Len || len(b) < hdr+8 {
		return false
	}
	if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 { // not the first fragment: no ports
		return false
	}
	q.TotalLen = binary.BigEndian.Uint16(b[2:])
	q.Proto = b[9]
	q.Src, q.Dst = addrFromU32(binary.BigEndian.Uint32(b[12:])), addrFromU32(binary.BigEndian.Uint32(b[16:]))
	q.ports(b[hdr:])
	return true
}

// ports takes the first eight bytes of the transport header.
func (q *Quote) ports(b []byte) {
	q.SrcPort, q.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	q.Seq = binary.BigEndian.Uint32(b[4:])
}

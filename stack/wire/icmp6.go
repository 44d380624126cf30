package wire

import "encoding/binary"

// ICMPv6 types, and codes of errors (RFC 4443, RFC 4861, RFC 2710, RFC 3810).
const (
	ICMP6Unreachable  = 1
	ICMP6PacketTooBig = 2
	ICMP6TimeExceeded = 3
	ICMP6ParamProblem = 4
	ICMP6Echo         = 128
	ICMP6EchoReply    = 129
	ICMP6MLDQuery     = 130
	ICMP6MLDReport    = 131
	ICMP6MLDDone      = 132
	ICMP6RouterSol    = 133
	ICMP6RouterAdv    = 134
	ICMP6NeighborSol  = 135
	ICMP6NeighborAdv  = 136
	ICMP6Redirect     = 137
	ICMP6MLDv2Report  = 143

	ICMP6NoRoute         = 0 // of ICMP6Unreachable
	ICMP6Prohibited      = 1
	ICMP6BeyondScope     = 2
	ICMP6AddrUnreachable = 3
	ICMP6PortUnreachable = 4

	ICMP6ErroneousField = 0 // of ICMP6ParamProblem
	ICMP6UnknownNext    = 1
	ICMP6UnknownOption  = 2
)

// MaxQuote6 is the most of a packet that an ICMPv6 error quotes: the error stays within the minimum MTU (RFC 4443, 2.4 (c)).
const MaxQuote6 = MinMTU6 - IPv6Len - ICMPLen

// ParseICMP6 parses and verifies p.Payload, as ParseICMP does for IPv4. The checksum covers the pseudo-header (RFC 4443, 2.3).
func ParseICMP6(p *Packet, csumDone bool) (typ, code uint8, body []byte, d Drop) {
	b := p.Payload
	if len(b) < ICMPLen {
		return 0, 0, nil, DropICMPShort
	}
	if !csumDone && Fold(Sum(b, PseudoSum(p.Src, p.Dst, ProtoICMPv6, len(b)))) != 0 {
		return 0, 0, nil, DropICMPChecksum
	}
	return b[0], b[1], b[4:], DropNone
}

// PutICMP6 writes a message with its checksum to b and returns its length, 4+len(body).
func PutICMP6(b []byte, src, dst Addr, typ, code uint8, body []byte) int {
	n := 4 + len(body)
	_ = b[n-1]
	b[0], b[1] = typ, code
	s := SumCopy(b[4:n], body, PseudoSum(src, dst, ProtoICMPv6, n)+uint64(typ)<<8+uint64(code))
	binary.BigEndian.PutUint16(b[2:], Fold(s))
	return n
}

// PutICMP6Error writes an error about the packet l3 to b and returns its length, at most 8+MaxQuote6. rest is the second word of the
// header: the MTU of ICMP6PacketTooBig, the pointer of ICMP6ParamProblem, else 0.
func PutICMP6Error(b []byte, src, dst Addr, typ, code uint8, rest uint32, l3 []byte) int {
	n := ICMPLen + min(len(l3), MaxQuote6)
	_ = b[n-1]
	b[0], b[1], b[2], b[3] = typ, code, 0, 0
	binary.BigEndian.PutUint32(b[4:], rest)
	copy(b[ICMPLen:n], l3)
	binary.BigEndian.PutUint16(b[2:], Fold(Sum(b[:n], PseudoSum(src, dst, ProtoICMPv6, n))))
	return n
}

// MayAnswerError6 reports whether an ICMPv6 error may be sent about p: not about an ICMPv6 error or a redirect, nor to a source that
// is not one host, nor about what was sent to a group unless the error is one of those that group says (RFC 4443, 2.4 (e)).
func MayAnswerError6(p *Packet, group bool) bool {
	if p.Src == (Addr{}) || p.Src.IsMulticast() {
		return false
	}
	if !group && (p.EthDst.IsMulticast() || p.Dst.IsMulticast()) {
		return false
	}
	if p.L3 == nil || p.Payload == nil || p.Proto != ProtoICMPv6 {
		return true
	}
	return len(p.Payload) > 0 && p.Payload[0] >= 128 && p.Payload[0] != ICMP6Redirect
}

// quote6 parses the IPv6 packet that an error quotes, through its extension headers.
func quote6(b []byte, q *Quote) bool {
	if len(b) < IPv6Len {
		return false
	}
	q.TotalLen = uint16(min(IPv6Len+int(binary.BigEndian.Uint16(b[4:])), 0xffff))
	q.Src, q.Dst = Addr(b[8:24]), Addr(b[24:40])
	next := b[6]
	b = b[IPv6Len:]
	for range maxExtHeaders {
		if len(b) < 8 {
			return false
		}
		size := 8
		switch next {
		case ProtoHopByHop, ProtoRouting, ProtoDstOpts:
			size = 8 * (1 + int(b[1]))
		case ProtoFragment:
			if binary.BigEndian.Uint16(b[2:])&^7 != 0 { // not the first fragment: no ports
				return false
			}
		default:
			q.Proto = next
			q.ports(b)
			return true
		}
		if len(b) < size {
			return false
		}
		next, b = b[0], b[size:]
	}
	return false
}

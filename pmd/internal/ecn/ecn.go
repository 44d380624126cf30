// Package ecn marks frames as a congested router does.
package ecn

import "encoding/binary"

// Mark changes ECT(0) or ECT(1) of an IP packet in an Ethernet frame to CE (RFC 3168, 5) and reports whether it did.
func Mark(frame []byte) bool {
	at := 12
	for len(frame) >= at+2 {
		switch binary.BigEndian.Uint16(frame[at:]) {
		case 0x8100, 0x88a8:
			at += 4
		case 0x0800:
			return markIPv4(frame[at+2:])
		case 0x86dd:
			return markIPv6(frame[at+2:])
		default:
			return false
		}
	}
	return false
}

func markIPv4(p []byte) bool {
	if len(p) < 20 || p[0]>>4 != 4 || !ect(p[1]) {
		return false
	}
	old := binary.BigEndian.Uint16(p)
	p[1] |= 3
	// RFC 1624, 3: HC' = ~(~HC + ~m + m').
	sum := uint32(^binary.BigEndian.Uint16(p[10:])) + uint32(^old) + uint32(binary.BigEndian.Uint16(p))
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return true
}

func markIPv6(p []byte) bool {
	if len(p) < 40 || p[0]>>4 != 6 || !ect(p[1]>>4) {
		return false
	}
	p[1] |= 3 << 4
	return true
}

// ect reports whether the two ECN bits are ECT(0) or ECT(1).
func ect(b byte) bool { return b&3 == 1 || b&3 == 2 }

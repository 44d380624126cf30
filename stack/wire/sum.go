package wire

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds the one's complement sum of the 16-bit big-endian words of b to s (RFC 1071). The result is not folded: the sum
// is the 64-bit result modulo 0xffff. A last odd byte counts as the high half of a word, so a sum may be continued only
// behind an even number of bytes. The order of even pieces does not matter.
func Sum(b []byte, s uint64) uint64 {
	if len(b) >= vectorMin && useVector {
		n := len(b) &^ 31
		return sumGeneric(b[n:], addFold(s, bits.ReverseBytes64(sumVector(b[:n]))))
	}
	return sumGeneric(b, s)
}

// SumCopy copies src to dst, which must be at least as long and not overlap, and returns Sum(src, s).
func SumCopy(dst, src []byte, s uint64) uint64 {
	if len(src) >= vectorMin && useVector {
		n := len(src) &^ 31
		s = addFold(s, bits.ReverseBytes64(sumCopyVector(dst[:n], src[:n])))
		dst, src = dst[n:], src[n:]
	}
	// Two passes over warm data are faster than one loop of loads, stores and adds in Go.
	for len(src) > copyBlock {
		copy(dst[:copyBlock], src)
		s = sumGeneric(src[:copyBlock], s)
		dst, src = dst[copyBlock:], src[copyBlock:]
	}
	copy(dst[:len(src)], src)
	return sumGeneric(src, s)
}

const copyBlock = 2048

// addFold adds with end-around carry.
func addFold(a, b uint64) uint64 {
	s, c := bits.Add64(a, b, 0)
	return s + c // s is at most 2^64-2 if there is a carry
}

// sumGeneric adds little-endian 64-bit words: the sum does not depend on the byte order but for a swap at the end, because
// 2^16 is 1 modulo 0xffff.
func sumGeneric(b []byte, s uint64) uint64 {
	var a, c uint64
	for len(b) >= 64 {
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b), 0)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[8:]), c)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[16:]), c)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[24:]), c)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[32:]), c)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[40:]), c)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[48:]), c)
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b[56:]), c)
		a += c
		b = b[64:]
	}
	for len(b) >= 8 {
		a, c = bits.Add64(a, binary.LittleEndian.Uint64(b), 0)
		a += c
		b = b[8:]
	}
	if len(b) > 0 {
		var t uint64
		if len(b) >= 4 {
			t = uint64(binary.LittleEndian.Uint32(b))
			b = b[4:]
			t += tail3(b) << 32
		} else {
			t = tail3(b)
		}
		a = addFold(a, t)
	}
	return addFold(s, bits.ReverseBytes64(a))
}

// tail3 returns up to three bytes as a little-endian number.
func tail3(b []byte) uint64 {
	switch len(b) {
	case 3:
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	case 2:
		return uint64(b[0]) | uint64(b[1])<<8
	case 1:
		return uint64(b[0])
	}
	return 0
}

// Fold folds s to 16 bits and complements it: the value of a checksum field, to be stored by binary.BigEndian.PutUint16. Over
// data that includes a right checksum it is 0.
func Fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return ^uint16(s)
}

// PseudoSum is the sum of the pseudo-header of TCP, UDP and ICMPv6: addresses, protocol and n, the length of the transport
// header and its payload in bytes (RFC 9293, 3.1; RFC 8200, 8.1). One formula serves both versions: the ffff of a v4-mapped
// address is 0 in one's complement.
func PseudoSum(src, dst Addr, proto uint8, n int) uint64 {
	s, c := bits.Add64(binary.BigEndian.Uint64(src[0:]), binary.BigEndian.Uint64(src[8:]), 0)
	s, c = bits.Add64(s, binary.BigEndian.Uint64(dst[0:]), c)
	s, c = bits.Add64(s, binary.BigEndian.Uint64(dst[8:]), c)
	s, c = bits.Add64(s, uint64(uint32(n))+uint64(proto), c)
	return s + c
}

package wire

import (
	"encoding/binary"
	"math/bits"
)

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
	src := binary.BigEndian.Uint32(b[12:])
	if martian(src) {
		return DropIPSource
	}
	if hdr > IPv4Len && !optionsOK(b[IPv4Len:hdr]) {
		return DropIPOption
	}
	// A TTL of 0 or 1 is no reason to drop at the destination (RFC 1122, 3.2.1.7). Options that mean
	// nothing to us are skipped (RFC 9293, MUST-50).
	p.Family, p.TOS, p.TTL, p.Proto = IPv4, b[1], b[8], b[9]
	p.ID = uint32(binary.BigEndian.Uint16(b[4:]))
	frag := binary.BigEndian.Uint16(b[6:])
	p.MoreFrags, p.FragOff = frag&0x2000 != 0, frag&0x1fff<<3
	p.Frag = frag&0x3fff != 0
	p.Fragmented = p.Frag
	p.L4, p.Flow = uint16(hdr), 0
	p.Src = addrFromU32(src)
	p.Dst = addrFromU32(binary.BigEndian.Uint32(b[16:]))
	p.L3, p.Payload = b, b[hdr:]
	return DropNone
}

// IPv4 options that are looked at (RFC 791, 3.1).
const (
	optEnd          = 0
	optNop          = 1
	optLooseSource  = 131
	optStrictSource = 137
)

// optionsOK reports whether the options of a header are well formed, and none is a source route that goes on from here: we forward nothing,
// and such packets are dropped everywhere (RFC 7126, 4.3).
func optionsOK(o []byte) bool {
	for len(o) > 0 {
		switch o[0] {
		case optEnd:
			return true
		case optNop:
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return false
		}
		if o[0] == optLooseSource || o[0] == optStrictSource {
			if o[1] < 3 || o[2] <= o[1] { // its pointer is not behind the last address
				return false
			}
		}
		o = o[o[1]:]
	}
	return true
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

// DF is the flag "don't fragment" in the word that PutIPv4Frag takes.
const DF = 0x4000

// PutIPv4 writes a header without options to b[:20], with DF set and the checksum in place. totalLen is the length of the
// packet with this header.
func PutIPv4(b []byte, src, dst Addr, proto, tos, ttl uint8, id uint16, totalLen int) {
	PutIPv4Frag(b, src, dst, proto, tos, ttl, id, DF, totalLen)
}

// PutIPv4Frag is PutIPv4 with the word of fragment flags and offset.
func PutIPv4Frag(b []byte, src, dst Addr, proto, tos, ttl uint8, id, frag uint16, totalLen int) {
	_ = b[IPv4Len-1]
	s, d := src.u32(), dst.u32()
	w0 := 0x4500<<16 | uint32(tos)<<16 | uint32(uint16(totalLen))
	w1 := uint32(id)<<16 | uint32(frag)
	w2 := uint32(ttl)<<24 | uint32(proto)<<16
	c := Fold(uint64(w0) + uint64(w1) + uint64(w2) + uint64(s) + uint64(d))
	binary.BigEndian.PutUint32(b[0:], w0)
	binary.BigEndian.PutUint32(b[4:], w1)
	binary.BigEndian.PutUint32(b[8:], w2|uint32(c))
	binary.BigEndian.PutUint32(b[12:], s)
	binary.BigEndian.PutUint32(b[16:], d)
}

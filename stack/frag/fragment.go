package frag

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Lengths and limits in bytes.
const (
	ipv6Len    = 40
	fragLen    = 8     // IPv6 fragment header
	maxPayload = 65535 // what a length field can say
	maxPacket  = maxPayload + ipv6Len
)

// IPv6 next headers (RFC 8200, 4.1).
const (
	nextHopByHop = 0
	nextRouting  = 43
	nextFragment = 44
	nextAuth     = 51
	nextNone     = 59
	nextDestOpts = 60
	nextICMPv6   = 58
)

// Drop is the reason why a fragment was not taken. It indexes counters.
type Drop uint8

// Reasons. From Overlap on they end the whole datagram.
const (
	None      Drop = iota // taken
	Short                 // no payload, or headers beyond the packet
	Length                // not the last one, and no multiple of 8 bytes (RFC 8200, 4.5: Parameter Problem, code 0, at the payload length)
	TooLong               // ends beyond 65535 bytes (RFC 8200, 4.5: Parameter Problem, code 0, at the fragment offset)
	Tiny                  // smaller than Config.MinPayload, or made to hide the TCP header (RFC 1858, 3; RFC 3128, 3)
	Duplicate             // a copy of one that was there
	Dead                  // of a datagram that was given up
	Memory                // no room
	Overlap               // overlaps another
	End                   // lies beyond the end that the last one has set, or sets another
	Many                  // more than Config.MaxFragments
	Headers               // the first one lacks headers (RFC 8200, 4.5; RFC 7112, 5: Parameter Problem, code 3)
	ECN                   // congestion and no ECN in one datagram (RFC 3168, 5.3)
	NumDrops
)

var dropNames = [NumDrops]string{
	"none", "short", "length", "too_long", "tiny", "duplicate", "dead", "memory", "overlap", "end", "many", "headers", "ecn",
}

// String is the name of d's counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Fragment is a received fragment, which points into the packet.
type Fragment struct {
	Offset int  // of the payload in the datagram's, in bytes
	More   bool // it is not the last

	src, dst wire.Addr
	id       uint32
	proto    uint8 // IPv6: what follows the fragment header
	ecn      uint8
	v6       bool
	packet   []byte // the IP packet without padding
	hdr      int    // bytes that precede the payload
	nextAt   int    // IPv6: place of the Next Header that says 44
}

// ParseIPv4 fills in f from an IPv4 packet whose header was found sound.
func (f *Fragment) ParseIPv4(packet []byte) {
	e := binary.BigEndian
	flags := e.Uint16(packet[6:])
	*f = Fragment{
		Offset: int(flags&0x1fff) * 8, More: flags&0x2000 != 0,
		src: wire.AddrFrom4([4]byte(packet[12:])), dst: wire.AddrFrom4([4]byte(packet[16:])), id: uint32(e.Uint16(packet[4:])),
		proto: packet[9], ecn: packet[1] & 3, packet: packet, hdr: int(packet[0]&15) * 4,
	}
}

// ParseIPv6 fills in f from an IPv6 packet, without what follows its payload length. The fragment header is at packet[at:], and
// packet[nextAt] is the Next Header that announces it.
func (f *Fragment) ParseIPv6(packet []byte, at, nextAt int) Drop {
	if len(packet) < ipv6Len || at < ipv6Len || at+fragLen > len(packet) {
		return Short
	}
	e := binary.BigEndian
	h := packet[at:]
	flags := e.Uint16(h[2:])
	*f = Fragment{
		Offset: int(flags &^ 7), More: flags&1 != 0,
		src: wire.Addr(packet[8:24]), dst: wire.Addr(packet[24:40]), id: e.Uint32(h[4:]),
		proto: h[0], ecn: packet[1] >> 4 & 3, v6: true, packet: packet, hdr: at + fragLen, nextAt: nextAt,
	}
	return None
}

func (f *Fragment) key() key {
	k := key{src: f.src, dst: f.dst, id: f.id}
	if !f.v6 {
		k.proto = f.proto
	}
	return k
}

func (f *Fragment) head() []byte    { return f.packet[:f.hdr] }
func (f *Fragment) payload() []byte { return f.packet[f.hdr:] }

// check looks at what one fragment can get wrong by itself.
func (f *Fragment) check(minPayload int) Drop {
	n := len(f.packet) - f.hdr
	switch {
	case n <= 0 && !(f.v6 && f.Offset == 0 && !f.More): // RFC 8200, 4.5 allows an empty atomic one: no next header
		return Short
	case f.More && n%8 != 0:
		return Length
	case f.Offset+n > maxPayload, !f.v6 && f.hdr+f.Offset+n > maxPayload:
		return TooLong
	case f.More && n < minPayload:
		return Tiny
	case f.proto == wire.ProtoTCP && !f.v6 && (f.Offset == 8 || f.Offset == 0 && n < tcpMin):
		return Tiny
	}
	if f.v6 && f.Offset == 0 && !f.More && f.incomplete() {
		return Headers
	}
	return None
}

// tcpMin is the part of a TCP header that must be in the first fragment (RFC 1858, 3.2.1: up to the flags, in units of 8).
const tcpMin = 16

// incomplete reports whether the first IPv6 fragment lacks a header, up to and with that of the transport (RFC 7112, 5).
func (f *Fragment) incomplete() bool {
	if !f.v6 {
		return false
	}
	next, b := f.proto, f.payload()
	for {
		var n int
		switch next {
		case nextHopByHop, nextRouting, nextDestOpts:
			if len(b) < 8 {
				return true
			}
			n = int(b[1])*8 + 8
		case nextAuth:
			if len(b) < 8 {
				return true
			}
			n = int(b[1])*4 + 8
		case nextFragment: // fragments of fragments: what is inside has its turn later
			return len(b) < fragLen
		case wire.ProtoTCP:
			return len(b) < wire.TCPLen
		case wire.ProtoUDP, nextICMPv6:
			return len(b) < 8
		case nextNone:
			return false
		default:
			return len(b) == 0
		}
		if len(b) < n {
			return true
		}
		next, b = b[0], b[n:]
	}
}

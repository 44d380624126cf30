package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/wire"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

// segment is an IP packet with a TCP segment, parsed or to be built. It is built and parsed here, and not by the stack's own package,
// so that a mistake there shows.
type segment struct {
	src, dst         netip.Addr
	tos, ttl         uint8
	flowLabel        int
	id               uint16
	df               bool
	srcPort, dstPort uint16
	seq, ack         uint32
	flags            uint16
	win, urg         uint16
	opts             []byte
	data             []byte
}

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	ipv4Len     = 20
	ipv6Len     = 40
	tcpLen      = 20
)

// sum is the Internet checksum (RFC 1071) of b, added to s.
func sum(b []byte, s uint32) uint32 {
	for len(b) > 1 {
		s += uint32(b[0])<<8 | uint32(b[1])
		s = s&0xffff + s>>16
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s&0xffff + s>>16
}

// l4sum is the checksum over the pseudo-header and b.
func l4sum(src, dst netip.Addr, proto uint8, b []byte) uint16 {
	s := sum(src.AsSlice(), 0)
	s = sum(dst.AsSlice(), s)
	s += uint32(proto) + uint32(len(b))
	return ^uint16(sum(b, s&0xffff+s>>16))
}

// ipPacket puts an IP header before body.
func ipPacket(src, dst netip.Addr, tos, ttl, proto uint8, flowLabel int, body []byte) []byte {
	if src.Is4() {
		p := make([]byte, ipv4Len, ipv4Len+len(body))
		p[0], p[1] = 0x45, tos
		binary.BigEndian.PutUint16(p[2:], uint16(ipv4Len+len(body)))
		p[8], p[9] = ttl, proto
		copy(p[12:], src.AsSlice())
		copy(p[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(p[10:], ^uint16(sum(p, 0)))
		return append(p, body...)
	}
	p := make([]byte, ipv6Len, ipv6Len+len(body))
	binary.BigEndian.PutUint32(p, 6<<28|uint32(tos)<<20|uint32(max(flowLabel, 0)))
	binary.BigEndian.PutUint16(p[4:], uint16(len(body)))
	p[6], p[7] = proto, ttl
	copy(p[8:], src.AsSlice())
	copy(p[24:], dst.AsSlice())
	return append(p, body...)
}

// packet builds the IP packet.
func (s *segment) packet() []byte {
	return ipPacket(s.src, s.dst, s.tos, s.ttl, protoTCP, s.flowLabel, s.tcp())
}

// tcp builds the segment.
func (s *segment) tcp() []byte {
	hdr := tcpLen + len(s.opts)
	b := make([]byte, hdr+len(s.data))
	binary.BigEndian.PutUint16(b[0:], s.srcPort)
	binary.BigEndian.PutUint16(b[2:], s.dstPort)
	binary.BigEndian.PutUint32(b[4:], s.seq)
	binary.BigEndian.PutUint32(b[8:], s.ack)
	binary.BigEndian.PutUint16(b[12:], uint16(hdr/4)<<12|s.flags)
	binary.BigEndian.PutUint16(b[14:], s.win)
	binary.BigEndian.PutUint16(b[18:], s.urg)
	copy(b[tcpLen:], s.opts)
	copy(b[hdr:], s.data)
	binary.BigEndian.PutUint16(b[16:], l4sum(s.src, s.dst, protoTCP, b))
	return b
}

// ipHeader parses the IP header of p and returns its protocol and what is behind it.
func (s *segment) ipHeader(p []byte) (proto uint8, body []byte, err error) {
	if len(p) >= ipv4Len && p[0]>>4 == 4 {
		hdr, n := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
		if hdr < ipv4Len || n < hdr || n > len(p) {
			return 0, nil, fmt.Errorf("bad lengths in the IP header")
		}
		if uint16(sum(p[:hdr], 0)) != 0xffff {
			return 0, nil, fmt.Errorf("bad IP checksum")
		}
		frag := binary.BigEndian.Uint16(p[6:])
		if frag&0x3fff != 0 {
			return 0, nil, fmt.Errorf("an IP fragment")
		}
		s.tos, s.ttl, s.id, s.df = p[1], p[8], binary.BigEndian.Uint16(p[4:]), frag&0x4000 != 0
		s.src, s.dst = netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
		return p[9], p[hdr:n], nil
	}
	if len(p) >= ipv6Len && p[0]>>4 == 6 {
		n := ipv6Len + int(binary.BigEndian.Uint16(p[4:]))
		if n > len(p) {
			return 0, nil, fmt.Errorf("bad length in the IPv6 header")
		}
		w := binary.BigEndian.Uint32(p)
		s.tos, s.ttl, s.flowLabel, s.df = uint8(w>>20), p[7], int(w&0xfffff), true
		s.src, s.dst = netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
		return p[6], p[ipv6Len:n], nil
	}
	return 0, nil, fmt.Errorf("not an IP packet")
}

// parseSegment parses an IP packet; of one that carries something else it returns the protocol only.
func parseSegment(p []byte) (s *segment, proto uint8, err error) {
	s = new(segment)
	proto, b, err := s.ipHeader(p)
	if err != nil || proto != protoTCP {
		return s, proto, err
	}
	if len(b) < tcpLen {
		return s, proto, fmt.Errorf("a TCP header of %d bytes", len(b))
	}
	if l4sum(s.src, s.dst, protoTCP, b) != 0 {
		return s, proto, fmt.Errorf("bad TCP checksum")
	}
	w := binary.BigEndian.Uint16(b[12:])
	hdr := int(w>>12) * 4
	if hdr < tcpLen || hdr > len(b) {
		return s, proto, fmt.Errorf("bad TCP data offset")
	}
	if w&0xe00 != 0 {
		return s, proto, fmt.Errorf("reserved bits of TCP are set")
	}
	s.srcPort, s.dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	s.seq, s.ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	s.flags, s.win, s.urg = w&0x1ff, binary.BigEndian.Uint16(b[14:]), binary.BigEndian.Uint16(b[18:])
	s.opts, s.data = b[tcpLen:hdr:hdr], b[hdr:]
	return s, proto, nil
}

// describe writes a segment whose numbers are in script space as scripts do.
func (s *segment) describe(opts []lang.Opt) string {
	t := fmt.Sprintf("%s %d:%d(%d)", lang.FormatFlags(s.flags), s.seq, s.seq+uint32(len(s.data)), len(s.data))
	if s.tos&3 != 0 {
		t = [...]string{"", "[ect1] ", "[ect0] ", "[ce] "}[s.tos&3] + t
	}
	if s.flags&wire.ACK != 0 {
		t += fmt.Sprintf(" ack %d", s.ack)
	}
	t += fmt.Sprintf(" win %d", s.win)
	if s.urg != 0 {
		t += fmt.Sprintf(" urg %d", s.urg)
	}
	if len(opts) > 0 {
		t += " " + lang.FormatOptions(opts)
	}
	return t
}

// pattern is the content of every stream at offset off: bytes that are out of place show.
func pattern(off uint32) byte { return byte(off*131 + off>>8*29 + off>>16) }

func fill(p []byte, off uint32) {
	for i := range p {
		p[i] = pattern(off + uint32(i))
	}
}

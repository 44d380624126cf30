package vnet

import (
	"encoding/binary"
	"errors"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// Errors of Splitter.Start.
var (
	ErrNotTCP = errors.New("vnet: super-frame is not TCP over IPv4 or IPv6")
	ErrShort  = errors.New("vnet: super-frame is shorter than its headers say")
	ErrSize   = errors.New("vnet: segment size does not fit a buffer")
	ErrNoCsum = errors.New("vnet: super-frame has neither a verified nor an unfinished checksum")
)

const (
	etherIPv4   = 0x0800
	etherIPv6   = 0x86dd
	etherVLAN   = 0x8100
	etherQinQ   = 0x88a8
	protocolTCP = 6
)

const (
	flagFIN = 0x01
	flagPSH = 0x08
	flagCWR = 0x80
)

// network finds the IP header behind VLAN tags.
func network(frame []byte) (ethertype uint16, l3 int) {
	l3 = 12
	for l3+2 <= len(frame) {
		ethertype = binary.BigEndian.Uint16(frame[l3:])
		l3 += 2
		if ethertype != etherVLAN && ethertype != etherQinQ {
			return ethertype, l3
		}
		l3 += 2
	}
	return 0, l3
}

// RxFlags are a received frame's checksum flags. The kernel vouches for TCP and UDP checksums only, so the IPv4 header's checksum is
// verified here; if it is wrong there are no flags, and whoever verifies the frame in software will find out.
func RxFlags(h Header, frame []byte) uint16 {
	var f uint16
	switch {
	case h.Flags&NeedsCsum != 0:
		f = pmd.RxPartial
	case h.Flags&DataValid != 0:
		f = pmd.RxCsumGood
	default:
		return 0
	}
	switch t, l3 := network(frame); t {
	case etherIPv4:
		if len(frame) < l3+20 {
			return 0
		}
		ihl := int(frame[l3]&15) * 4
		if ihl < 20 || len(frame) < l3+ihl || sum(frame[l3:l3+ihl]) != 0xffff {
			return 0
		}
		return f
	case etherIPv6:
		return f
	}
	return 0
}

// Splitter cuts one super-frame at a time into frames. The zero Splitter is ready for use.
type Splitter struct {
	frame []byte
	l3    int // offset of the IP header
	l4    int // offset of the TCP header
	head  int // bytes of all headers
	pos   int // next payload byte
	size  int // payload per segment
	v6    bool
	part  bool // the TCP checksum field holds the pseudo-header's sum
	flags uint16
	seq   uint32
	id    uint16
	tcp   byte // TCP flags of the super-frame
}

// Pending reports whether Next has more frames to give.
func (s *Splitter) Pending() bool { return s.pos < len(s.frame) }

// Start begins with a super-frame, which must stay unchanged while Pending. room is the space for a frame in a buffer.
func (s *Splitter) Start(h Header, frame []byte, room int) error {
	*s = Splitter{}
	n := Splitter{size: int(h.GSOSize), part: h.Flags&NeedsCsum != 0}
	if h.Flags&(NeedsCsum|DataValid) == 0 {
		return ErrNoCsum
	}
	t, l3 := network(frame)
	n.l3 = l3
	switch kind := h.GSOType &^ GSOECN; {
	case kind == GSOTCPv4 && t == etherIPv4:
		if len(frame) < l3+20 || frame[l3+9] != protocolTCP {
			return ErrNotTCP
		}
		ihl := int(frame[l3]&15) * 4
		if ihl < 20 || int(binary.BigEndian.Uint16(frame[l3+2:])) != len(frame)-l3 {
			return ErrShort
		}
		n.l4 = l3 + ihl
		n.id = binary.BigEndian.Uint16(frame[l3+4:])
	case kind == GSOTCPv6 && t == etherIPv6:
		if len(frame) < l3+40 || frame[l3+6] != protocolTCP {
			return ErrNotTCP
		}
		if int(binary.BigEndian.Uint16(frame[l3+4:])) != len(frame)-l3-40 {
			return ErrShort
		}
		n.l4, n.v6 = l3+40, true
	default:
		return ErrNotTCP
	}
	if len(frame) < n.l4+20 {
		return ErrShort
	}
	n.head = n.l4 + int(frame[n.l4+12]>>4)*4
	if n.head < n.l4+20 || len(frame) <= n.head {
		return ErrShort
	}
	if n.size == 0 || n.head+n.size > room {
		return ErrSize
	}
	n.seq = binary.BigEndian.Uint32(frame[n.l4+4:])
	n.tcp = frame[n.l4+13]
	n.flags = RxFlags(h, frame)
	n.frame, n.pos = frame, n.head
	*s = n
	return nil
}

// Next writes the next frame to b, which is empty. Sequence number, IPv4 identification, lengths and flags are as the segmentation of
// a network card sets them: FIN and PSH on the last frame only, CWR on the first only.
func (s *Splitter) Next(b *pmd.Buf) {
	n := min(s.size, len(s.frame)-s.pos)
	first, last := s.pos == s.head, s.pos+n == len(s.frame)
	b.SetLen(s.head + n)
	f := b.Bytes()
	copy(f, s.frame[:s.head])
	copy(f[s.head:], s.frame[s.pos:s.pos+n])
	e := binary.BigEndian
	l4len := s.head - s.l4 + n
	if s.v6 {
		e.PutUint16(f[s.l3+4:], uint16(l4len))
	} else {
		ip := f[s.l3:s.l4]
		replace(ip[10:], ip[2:], uint16(len(ip)+l4len))
		replace(ip[10:], ip[4:], s.id)
		s.id++
	}
	t := f[s.l4:s.head]
	e.PutUint32(t[4:], s.seq+uint32(s.pos-s.head))
	t[13] = s.tcp
	if !first {
		t[13] &^= flagCWR
	}
	if !last {
		t[13] &^= flagFIN | flagPSH
	}
	if s.part {
		// The field holds the pseudo-header's sum, of which the length is a part.
		old := len(s.frame) - s.l4
		e.PutUint16(t[tcpCsumOffset:], add(add(e.Uint16(t[tcpCsumOffset:]), ^uint16(old)), uint16(l4len)))
	}
	b.Flags |= s.flags
	s.pos += n
}

// replace writes v to field and updates the complemented checksum sum for it (RFC 1624, 3).
func replace(sum, field []byte, v uint16) {
	e := binary.BigEndian
	old := e.Uint16(field)
	e.PutUint16(field, v)
	e.PutUint16(sum, ^add(add(^e.Uint16(sum), ^old), v))
}

// add is the addition of ones' complement.
func add(a, b uint16) uint16 {
	s := uint32(a) + uint32(b)
	return uint16(s + s>>16)
}

package frag

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Errors of Split.
var (
	ErrMTU    = errors.New("frag: the MTU has no room for a payload")
	ErrPacket = errors.New("frag: not an IP packet that can be cut")
	ErrDF     = errors.New("frag: the packet may not be fragmented")
)

// Split cuts an IP packet into fragments of at most mtu bytes with the given ID (see IDs; IPv4 uses its low 16 bits), and calls emit
// for each, in order. A fragment is valid until emit returns; an error of emit ends Split. A packet that fits is emitted as it is.
//
// An IPv4 packet must not have DF set, and must not be a fragment itself. In an IPv6 packet a fragment header is inserted behind the
// headers that routers read (RFC 8200, 4.5).
func Split(packet []byte, mtu int, id uint32, emit func(fragment []byte) error) error {
	switch {
	case len(packet) < wire.IPv4Len:
		return ErrPacket
	case len(packet) <= mtu:
		return emit(packet)
	case packet[0]>>4 == 4:
		return splitIPv4(packet, mtu, uint16(id), emit)
	case packet[0]>>4 == 6:
		return splitIPv6(packet, mtu, id, emit)
	}
	return ErrPacket
}

func splitIPv4(packet []byte, mtu int, id uint16, emit func([]byte) error) error {
	e := binary.BigEndian
	hdr := int(packet[0]&15) * 4
	switch {
	case hdr < wire.IPv4Len || hdr > len(packet) || int(e.Uint16(packet[2:])) != len(packet) || e.Uint16(packet[6:])&0x3fff != 0:
		return ErrPacket
	case packet[6]&0x40 != 0:
		return ErrDF
	case mtu < hdr+8:
		return ErrMTU
	}
	out := make([]byte, 0, mtu)
	head := packet[:hdr]
	for rest, off := packet[hdr:], 0; len(rest) > 0; {
		n, more := len(rest), uint16(0)
		if n > mtu-len(head) {
			n, more = (mtu-len(head))&^7, 0x2000
		}
		out = append(append(out[:0], head...), rest[:n]...)
		out[0] = 0x40 | uint8(len(head)/4)
		e.PutUint16(out[2:], uint16(len(out)))
		e.PutUint16(out[4:], id)
		e.PutUint16(out[6:], more|uint16(off/8))
		out[10], out[11] = 0, 0
		e.PutUint16(out[10:], wire.Fold(wire.Sum(out[:len(head)], 0)))
		if err := emit(out); err != nil {
			return err
		}
		rest, off = rest[n:], off+n
		if off == n {
			head = copied(packet[:hdr])
		}
	}
	return nil
}

// copied is the header of the fragments behind the first: of the options only those that have the copied flag (RFC 791, 3.1).
func copied(head []byte) []byte {
	h := append([]byte(nil), head[:wire.IPv4Len]...)
	for o := head[wire.IPv4Len:]; len(o) > 0 && o[0] != 0; {
		n := 1
		if o[0] != 1 { // no operation
			if len(o) < 2 || int(o[1]) < 2 || int(o[1]) > len(o) {
				break
			}
			n = int(o[1])
		}
		if o[0]&0x80 != 0 {
			h = append(h, o[:n]...)
		}
		o = o[n:]
	}
	for len(h)%4 != 0 {
		h = append(h, 0)
	}
	return h
}

func splitIPv6(packet []byte, mtu int, id uint32, emit func([]byte) error) error {
	e := binary.BigEndian
	if len(packet) < ipv6Len || int(e.Uint16(packet[4:])) != len(packet)-ipv6Len {
		return ErrPacket
	}
	hdr, nextAt, ok := perFragment(packet)
	switch {
	case !ok:
		return ErrPacket
	case mtu < hdr+fragLen+8:
		return ErrMTU
	}
	room := (mtu - hdr - fragLen) &^ 7
	out := make([]byte, 0, mtu)
	for rest, off := packet[hdr:], 0; len(rest) > 0; {
		n, more := len(rest), uint16(0)
		if n > mtu-hdr-fragLen {
			n, more = room, 1
		}
		out = append(out[:0], packet[:hdr]...)
		out = append(out, packet[nextAt], 0)
		out = e.AppendUint16(out, uint16(off)|more)
		out = e.AppendUint32(out, id)
		out = append(out, rest[:n]...)
		out[nextAt] = nextFragment
		e.PutUint16(out[4:], uint16(len(out)-ipv6Len))
		if err := emit(out); err != nil {
			return err
		}
		rest, off = rest[n:], off+n
	}
	return nil
}

// perFragment is the length of the headers that each fragment has, and the place of the last Next Header in them: hop-by-hop options,
// and a routing header with the destination options before it (RFC 8200, 4.5).
func perFragment(packet []byte) (hdr, nextAt int, ok bool) {
	hdr, nextAt = ipv6Len, 6
	at, from := ipv6Len, 6
	for {
		next := packet[from]
		if next == nextFragment {
			return 0, 0, false // is one already
		}
		if next != nextHopByHop && next != nextRouting && next != nextDestOpts {
			return hdr, nextAt, true
		}
		if at+8 > len(packet) || at+int(packet[at+1])*8+8 > len(packet) {
			return 0, 0, false
		}
		from = at
		at += int(packet[at+1])*8 + 8
		if next != nextDestOpts {
			hdr, nextAt = at, from
		}
	}
}

// IDs chooses identifications: unpredictable for those off the path, and not repeated soon for the same addresses and protocol
// (RFC 6864, 4.3; RFC 7739, 5.3: a keyed hash plus one of many counters, which another keyed hash chooses). It may be used by several
// goroutines.
type IDs struct {
	secret [32]byte
	table  [1024]atomic.Uint32
}

// NewIDs returns IDs that follow from secret, which nobody else may know.
func NewIDs(secret [32]byte) *IDs {
	i := &IDs{secret: secret}
	for j := range i.table {
		var b [36]byte
		copy(b[:], secret[:])
		binary.BigEndian.PutUint32(b[32:], uint32(j))
		h := sha256.Sum256(b[:])
		i.table[j].Store(binary.BigEndian.Uint32(h[:]))
	}
	return i
}

// Next is the identification for a datagram.
func (i *IDs) Next(src, dst wire.Addr, proto uint8) uint32 {
	var b [32 + 16 + 16 + 1]byte
	copy(b[:], i.secret[:])
	copy(b[32:], src[:])
	copy(b[48:], dst[:])
	b[64] = proto
	h := sha256.Sum256(b[:])
	return binary.BigEndian.Uint32(h[:]) + i.table[binary.BigEndian.Uint32(h[4:])%uint32(len(i.table))].Add(1)
}

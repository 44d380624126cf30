package wire

import "encoding/binary"

// MinMTU6 is the least MTU of a link that carries IPv6 (RFC 8200, 5).
const MinMTU6 = 1280

// Limits of what is walked through (RFC 8504, 5.3).
const (
	maxExtHeaders = 8
	maxExtOptions = 16 // per header, padding included
)

// Problem is what an ICMPv6 Parameter Problem says about a packet. Send is false if none may be sent.
type Problem struct {
	Send  bool
	Group bool // even if the packet was sent to a group (RFC 4443, 2.4 (e.3))
	Code  uint8
	Ptr   uint16 // offset in L3
}

func parseIPv6(b []byte, p *Packet) Drop {
	if len(b) < IPv6Len {
		return DropIPShort
	}
	w := binary.BigEndian.Uint32(b)
	if w>>28 != IPv6 {
		return DropIPVersion
	}
	total := IPv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return DropIPShort
	}
	b = b[:total:total]
	p.Family, p.TOS, p.Flow, p.TTL = IPv6, uint8(w>>20), w&0xfffff, b[7]
	p.Src, p.Dst = Addr(b[8:24]), Addr(b[24:40])
	p.Problem = Problem{}
	p.Frag, p.MoreFrags, p.Fragmented, p.FragOff, p.ID = false, false, false, 0, 0
	p.L3, p.Payload = b, nil
	// A source is one host, and ours are not seen on a wire (RFC 4291, 2.5.3 and 2.7); :: is for those without an address yet.
	// The v4-mapped form stands for IPv4 in this stack and must not come in from the side (RFC 4942, 2.2).
	if p.Src[0] == 0xff || p.Src.IsLoopback() || p.Src.Is4() {
		return DropIPSource
	}
	if p.Dst.Is4() {
		return DropIPDest
	}
	switch p.Proto = b[6]; p.Proto {
	case ProtoTCP, ProtoICMPv6, ProtoUDP:
		p.NextAt, p.L4 = 6, IPv6Len
		p.Payload = b[IPv6Len:]
		return DropNone
	}
	return walk(p, b)
}

// walk goes through the extension headers, in their order (RFC 8200, 4).
func walk(p *Packet, b []byte) Drop {
	at, nextAt, next := IPv6Len, 6, b[6]
	for n := 0; ; n++ {
		switch next {
		case ProtoHopByHop, ProtoRouting, ProtoDstOpts, ProtoFragment:
		default:
			p.Proto, p.NextAt, p.L4, p.Payload = next, uint16(nextAt), uint16(at), b[at:]
			if next == ProtoNone {
				return DropIPv6NoNext
			}
			return DropNone
		}
		if n == maxExtHeaders {
			return DropIPv6Chain
		}
		if next == ProtoHopByHop && n > 0 { // only right behind the IPv6 header (RFC 8200, 4.1)
			p.Problem = Problem{Send: true, Code: ICMP6UnknownNext, Ptr: uint16(nextAt)}
			return DropIPv6Header
		}
		if len(b) < at+8 {
			return DropIPv6Header
		}
		size := 8
		if next == ProtoFragment {
			if done, d := fragment(p, b, at, nextAt); done || d != DropNone {
				return d
			}
		} else if size = 8 * (1 + int(b[at+1])); len(b) < at+size {
			return DropIPv6Header
		}
		switch next {
		case ProtoHopByHop, ProtoDstOpts:
			if d := options(p, b[:at+size], at+2); d != DropNone {
				return d
			}
		case ProtoRouting:
			// We know no type of it, and type 0 is to be treated as unknown (RFC 8200, 4.4; RFC 5095, 3).
			if b[at+3] != 0 {
				p.Problem = Problem{Send: true, Code: ICMP6ErroneousField, Ptr: uint16(at + 2)}
				return DropIPv6Routing
			}
		}
		next, nextAt = b[at], at
		at += size
	}
}

// fragment takes a Fragment header. done is false for an atomic fragment, which is a whole packet (RFC 6946, 4).
func fragment(p *Packet, b []byte, at, nextAt int) (done bool, d Drop) {
	w := binary.BigEndian.Uint16(b[at+2:])
	p.Fragmented = true
	p.ID = binary.BigEndian.Uint32(b[at+4:])
	if w&^6 == 0 {
		return false, DropNone
	}
	p.Frag, p.MoreFrags, p.FragOff = true, w&1 != 0, w&^7
	p.Proto, p.NextAt, p.L4, p.Payload = b[at], uint16(nextAt), uint16(at+8), b[at+8:]
	if p.MoreFrags && len(p.Payload)%8 != 0 { // RFC 8200, 4.5
		p.Problem = Problem{Send: true, Code: ICMP6ErroneousField, Ptr: 4}
		return true, DropIPFragment
	}
	if at-IPv6Len+int(p.FragOff)+len(p.Payload) > 65535 { // ... of the whole, with the headers before this one
		p.Problem = Problem{Send: true, Code: ICMP6ErroneousField, Ptr: uint16(at + 2)}
		return true, DropIPFragment
	}
	return true, DropNone
}

// options looks at the options from b[at] to b's end. All that concern a host are padding and the router alert; others say by their
// two highest bits what to do (RFC 8200, 4.2).
func options(p *Packet, b []byte, at int) Drop {
	for n := 0; at < len(b); n++ {
		if n == maxExtOptions {
			return DropIPv6Chain
		}
		typ := b[at]
		if typ == optPad1 {
			at++
			continue
		}
		if at+2 > len(b) || at+2+int(b[at+1]) > len(b) {
			return DropIPv6Header
		}
		if typ != optPadN && typ != optRouterAlert {
			switch typ >> 6 {
			case 1:
				return DropIPv6Option
			case 2:
				p.Problem = Problem{Send: true, Group: true, Code: ICMP6UnknownOption, Ptr: uint16(at)}
				return DropIPv6Option
			case 3:
				p.Problem = Problem{Send: true, Code: ICMP6UnknownOption, Ptr: uint16(at)}
				return DropIPv6Option
			}
		}
		at += 2 + int(b[at+1])
	}
	return DropNone
}

// Options of extension headers.
const (
	optPad1        = 0
	optPadN        = 1
	optRouterAlert = 5
)

// PutIPv6 writes a header to b[:40]. n is the number of bytes behind it.
func PutIPv6(b []byte, src, dst Addr, next, tos, hopLimit uint8, flow uint32, n int) {
	_ = b[IPv6Len-1]
	binary.BigEndian.PutUint32(b, IPv6<<28|uint32(tos)<<20|flow&0xfffff)
	binary.BigEndian.PutUint32(b[4:], uint32(uint16(n))<<16|uint32(next)<<8|uint32(hopLimit))
	copy(b[8:24], src[:])
	copy(b[24:40], dst[:])
}

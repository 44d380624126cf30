package wire

import (
	"encoding/binary"
	"time"
)

// Options of neighbour discovery (RFC 4861, 4.6; RFC 3971, 5.3.2; RFC 8106, 5.1).
const (
	ndSourceLLA  = 1
	ndTargetLLA  = 2
	ndPrefixInfo = 3
	ndMTU        = 5
	ndNonce      = 14
	ndRDNSS      = 25
)

// Flags of a neighbour advertisement.
const (
	NDRouter    = 0x80
	NDSolicited = 0x40
	NDOverride  = 0x20
)

// ND is a neighbour solicitation or advertisement, or a router solicitation.
type ND struct {
	Type     uint8
	Flags    uint8 // of an advertisement
	Target   Addr  // not of a router solicitation
	LLA      MAC   // of the source in solicitations, of the target in advertisements
	HasLLA   bool
	HasNonce bool
	Nonce    [6]byte // of duplicate address detection (RFC 7527, 4.1)
}

// Prefix is a prefix information option of a router advertisement (RFC 4861, 4.6.2).
type Prefix struct {
	Addr             Addr
	Bits             uint8
	OnLink, Auto     bool
	Valid, Preferred time.Duration // Forever: without end
}

// DNSServer is an address of an RDNSS option (RFC 8106, 5.1).
type DNSServer struct {
	Addr     Addr
	Lifetime time.Duration
}

// Forever is a lifetime of 0xffffffff seconds.
const Forever = time.Duration(0xffffffff) * time.Second

// Limits of what one advertisement may say; more is left out.
const (
	maxPrefixes = 8
	maxServers  = 4
)

// RouterAdv is a router advertisement.
type RouterAdv struct {
	HopLimit    uint8 // 0: not said
	Preference  int8  // of the router as the default: -1, 0, 1 (RFC 4191, 2.2)
	Lifetime    time.Duration
	Reachable   time.Duration // 0: not said
	Retrans     time.Duration // 0: not said
	MTU         uint32        // 0: not said
	LLA         MAC
	HasLLA      bool
	NumPrefixes uint8
	NumServers  uint8
	Prefixes    [maxPrefixes]Prefix
	Servers     [maxServers]DNSServer
}

// ndLen is the length of each message without options, with the header of ICMPv6.
func ndLen(typ uint8) int {
	switch typ {
	case ICMP6RouterSol:
		return 8
	case ICMP6RouterAdv:
		return 16
	case ICMP6Redirect:
		return 40
	}
	return 24
}

// validND reports whether a message of neighbour discovery, whose checksum holds, is valid by what all of them have in common
// (RFC 4861, 6.1 and 7.1; RFC 6980, 5: not in fragments).
func validND(p *Packet) bool {
	b := p.Payload
	if p.TTL != 255 || p.Fragmented || len(b) < ndLen(b[0]) || b[1] != 0 {
		return false
	}
	for o := b[ndLen(b[0]):]; len(o) > 0; {
		if len(o) < 8 || o[1] == 0 || int(o[1])*8 > len(o) {
			return false
		}
		o = o[int(o[1])*8:]
	}
	return true
}

// ParseND parses a solicitation or a neighbour advertisement that ParseICMP6 has accepted.
func ParseND(p *Packet, n *ND) Drop {
	if !validND(p) {
		return DropNDInvalid
	}
	b := p.Payload
	*n = ND{Type: b[0]}
	lla := uint8(ndSourceLLA)
	if n.Type != ICMP6RouterSol {
		n.Target = Addr(b[8:24])
		if n.Target.IsMulticast() || n.Target == (Addr{}) || n.Target.Is4() {
			return DropNDInvalid
		}
	}
	if n.Type == ICMP6NeighborAdv {
		n.Flags, lla = b[4], ndTargetLLA
	}
	n.options(b[ndLen(n.Type):], lla)
	unspecified := p.Src == Addr{}
	switch n.Type {
	case ICMP6NeighborSol: // RFC 4861, 7.1.1
		if unspecified && (n.HasLLA || p.Dst != n.Target.SolicitedNode()) {
			return DropNDInvalid
		}
	case ICMP6NeighborAdv: // RFC 4861, 7.1.2
		if unspecified || p.Dst.IsMulticast() && n.Flags&NDSolicited != 0 {
			return DropNDInvalid
		}
	case ICMP6RouterSol: // RFC 4861, 6.1.1
		if unspecified && n.HasLLA {
			return DropNDInvalid
		}
	}
	return DropNone
}

func (n *ND) options(b []byte, lla uint8) {
	for ; len(b) > 0; b = b[int(b[1])*8:] {
		switch {
		case b[0] == lla && b[1] == 1 && !n.HasLLA:
			n.LLA, n.HasLLA = MAC(b[2:8]), true
			if n.LLA.IsMulticast() || n.LLA == (MAC{}) {
				n.LLA, n.HasLLA = MAC{}, false
			}
		case b[0] == ndNonce && b[1] == 1:
			n.Nonce, n.HasNonce = [6]byte(b[2:8]), true
		}
	}
}

// ParseRouterAdv parses a router advertisement that ParseICMP6 has accepted.
func ParseRouterAdv(p *Packet, r *RouterAdv) Drop {
	if !validND(p) || !p.Src.IsLinkLocal() { // RFC 4861, 6.1.2
		return DropNDInvalid
	}
	b := p.Payload
	*r = RouterAdv{
		HopLimit: b[4], Lifetime: time.Duration(binary.BigEndian.Uint16(b[6:])) * time.Second,
		Reachable: time.Duration(binary.BigEndian.Uint32(b[8:])) * time.Millisecond,
		Retrans:   time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Millisecond,
	}
	switch b[5] >> 3 & 3 {
	case 1:
		r.Preference = 1
	case 3:
		r.Preference = -1
	}
	for o := b[16:]; len(o) > 0; o = o[int(o[1])*8:] {
		r.option(o[:int(o[1])*8])
	}
	return DropNone
}

func (r *RouterAdv) option(o []byte) {
	switch {
	case o[0] == ndSourceLLA && len(o) == 8:
		r.LLA = MAC(o[2:8])
		r.HasLLA = !r.LLA.IsMulticast() && r.LLA != MAC{}
	case o[0] == ndMTU && len(o) == 8:
		r.MTU = binary.BigEndian.Uint32(o[4:])
	case o[0] == ndPrefixInfo && len(o) == 32 && int(r.NumPrefixes) < maxPrefixes && o[2] <= 128:
		r.Prefixes[r.NumPrefixes] = Prefix{
			Addr: Addr(o[16:32]), Bits: o[2], OnLink: o[3]&0x80 != 0, Auto: o[3]&0x40 != 0,
			Valid: seconds(o[4:]), Preferred: seconds(o[8:]),
		}
		r.NumPrefixes++
	case o[0] == ndRDNSS && len(o) >= 24:
		for a := o[8:]; len(a) >= 16 && int(r.NumServers) < maxServers; a = a[16:] {
			r.Servers[r.NumServers] = DNSServer{Addr(a[:16]), seconds(o[4:])}
			r.NumServers++
		}
	}
}

func seconds(b []byte) time.Duration { return time.Duration(binary.BigEndian.Uint32(b)) * time.Second }

// MaxNDLen is the length of the longest message that PutND writes.
const MaxNDLen = 24 + 8 + 8

// PutND writes a solicitation or a neighbour advertisement to b and returns its length.
func PutND(b []byte, src, dst Addr, n *ND) int {
	var body [MaxNDLen]byte
	at := ndLen(n.Type) - 4
	if n.Type != ICMP6RouterSol {
		body[0] = n.Flags
		copy(body[4:20], n.Target[:])
	}
	if n.HasLLA {
		body[at], body[at+1] = ndSourceLLA, 1
		if n.Type == ICMP6NeighborAdv {
			body[at] = ndTargetLLA
		}
		at += 2 + copy(body[at+2:], n.LLA[:])
	}
	if n.HasNonce {
		body[at], body[at+1] = ndNonce, 1
		at += 2 + copy(body[at+2:], n.Nonce[:])
	}
	return PutICMP6(b, src, dst, n.Type, 0, body[:at])
}

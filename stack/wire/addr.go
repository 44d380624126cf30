// Package wire parses and builds what goes over the wire: Ethernet, ARP, IPv4, ICMP and TCP headers, TCP options and
// Internet checksums. Parsers take any bytes, allocate nothing, and say why they refuse a frame by a Drop. Slices that they
// return point into the frame.
package wire

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
)

// Addr is an IP address. IPv4 addresses are in v4-mapped form (::ffff:a.b.c.d), so that code above this package needs no
// cases for the two versions.
type Addr [16]byte

const v4Prefix = uint64(0xffff) << 32 // bytes 8 to 15 of a v4-mapped address, without the address

// AddrFrom4 returns the v4-mapped form of a.
func AddrFrom4(a [4]byte) Addr { return addrFromU32(binary.BigEndian.Uint32(a[:])) }

func addrFromU32(v uint32) (a Addr) {
	binary.BigEndian.PutUint64(a[8:], v4Prefix|uint64(v))
	return a
}

// AddrFrom returns a as an Addr. The zero netip.Addr gives the zero Addr. Zones are dropped.
func AddrFrom(a netip.Addr) Addr {
	if !a.IsValid() {
		return Addr{}
	}
	return a.As16()
}

// Is4 reports whether a is an IPv4 address.
func (a Addr) Is4() bool {
	return binary.BigEndian.Uint64(a[:]) == 0 && binary.BigEndian.Uint32(a[8:]) == 0xffff
}

// As4 returns the last four bytes: the IPv4 address, if Is4.
func (a Addr) As4() [4]byte { return [4]byte(a[12:]) }

func (a Addr) u32() uint32 { return binary.BigEndian.Uint32(a[12:]) }

// Netip returns a as a netip.Addr, IPv4 addresses unmapped.
func (a Addr) Netip() netip.Addr { return netip.AddrFrom16(a).Unmap() }

func (a Addr) String() string { return a.Netip().String() }

// IsZero reports whether a is the zero value or the unspecified address 0.0.0.0.
func (a Addr) IsZero() bool {
	return a == Addr{} || a == addrFromU32(0)
}

// IsMulticast reports whether a is in 224.0.0.0/4 or ff00::/8.
func (a Addr) IsMulticast() bool {
	if a.Is4() {
		return a[12]>>4 == 0xe
	}
	return a[0] == 0xff
}

// IsBroadcast reports whether a is 255.255.255.255.
func (a Addr) IsBroadcast() bool { return a == addrFromU32(0xffffffff) }

// IsLoopback reports whether a is in 127.0.0.0/8 or ::1.
func (a Addr) IsLoopback() bool {
	if a.Is4() {
		return a[12] == 127
	}
	return a == Addr{15: 1}
}

// IsLinkLocal reports whether a is in fe80::/10 or 169.254.0.0/16: it means something on one link only.
func (a Addr) IsLinkLocal() bool {
	if a.Is4() {
		return a[12] == 169 && a[13] == 254
	}
	return a[0] == 0xfe && a[1]&0xc0 == 0x80
}

// Groups of every IPv6 node and router on a link (RFC 4291, 2.7.1), and of those that hear MLDv2 reports (RFC 3810, 5.2.14).
var (
	AllNodes     = Addr{0: 0xff, 1: 2, 15: 1}
	AllNodesHere = Addr{0: 0xff, 1: 1, 15: 1} // interface-local
	AllRouters   = Addr{0: 0xff, 1: 2, 15: 2}
	MLDv2Routers = Addr{0: 0xff, 1: 2, 15: 0x16}
)

// SolicitedNode is the group of those whose address ends like a (RFC 4291, 2.7.1).
func (a Addr) SolicitedNode() Addr {
	return Addr{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
}

// GroupMAC is the Ethernet address of the group a (RFC 1112, 6.4; RFC 2464, 7).
func (a Addr) GroupMAC() MAC {
	if a.Is4() {
		return MAC{1, 0, 0x5e, a[13] & 0x7f, a[14], a[15]}
	}
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the Ethernet broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (m MAC) String() string {
	var b [17]byte
	for i, v := range m {
		hex.Encode(b[3*i:], []byte{v})
		if i > 0 {
			b[3*i-1] = ':'
		}
	}
	return string(b[:])
}

// IsBroadcast reports whether m is ff:ff:ff:ff:ff:ff.
func (m MAC) IsBroadcast() bool { return m == Broadcast }

// IsMulticast reports whether m is a group address; broadcast is one.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// Words returns a as two big-endian numbers, of which AddrFromWords makes the same address.
func (a Addr) Words() (hi, lo uint64) {
	return binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:])
}

// AddrFromWords is the inverse of Words.
func AddrFromWords(hi, lo uint64) (a Addr) {
	binary.BigEndian.PutUint64(a[:], hi)
	binary.BigEndian.PutUint64(a[8:], lo)
	return a
}

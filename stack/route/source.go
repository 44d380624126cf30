package route

import (
	"encoding/binary"
	"math/bits"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Source returns the source address for packets to dst. For IPv4 it is the one whose subnet holds the next hop, else the first of
// that interface, else the first (RFC 1122, 3.3.4.3); for IPv6 the best by RFC 6724, 5.
func (t *Table) Source(dst wire.Addr) (src wire.Addr, ok bool) {
	index, hop, ok := t.Lookup(dst)
	if !ok {
		return src, false
	}
	var best *address
	for i := range t.addrs {
		a := &t.addrs[i]
		if a.state == Tentative || a.addr.Is4() != dst.Is4() {
			continue
		}
		if best == nil || dst.Is4() && score4(a, index, &hop) > score4(best, index, &hop) || !dst.Is4() && better6(a, best, &dst, index) {
			best = a
		}
	}
	if best == nil {
		return src, false
	}
	return best.addr, true
}

func score4(a *address, index int, hop *wire.Addr) int {
	switch {
	case a.index != index:
		return 1
	case a.subnet.contains(hop):
		return 3 + a.subnet.bits
	}
	return 2
}

// better6 reports whether a is a better source for dst than b. The rules are those of RFC 6724, 5; 4 (home addresses) and 7 (temporary
// addresses) never apply. Among equals the first stays.
func better6(a, b *address, dst *wire.Addr, index int) bool {
	if a.addr == *dst || b.addr == *dst { // rule 1
		return a.addr == *dst
	}
	if sa, sb, sd := scope(&a.addr), scope(&b.addr), scope(dst); sa != sb { // rule 2
		if sa < sb {
			return sa >= sd
		}
		return sb < sd
	}
	if da, db := a.state == Deprecated, b.state == Deprecated; da != db { // rule 3
		return db
	}
	if ia, ib := a.index == index, b.index == index; ia != ib { // rule 5
		return ia
	}
	if la, lb, ld := label(&a.addr), label(&b.addr), label(dst); (la == ld) != (lb == ld) { // rule 6
		return la == ld
	}
	return common(a, dst) > common(b, dst) // rule 8
}

// Scopes (RFC 4291, 2.7; RFC 6724, 3.1). Unique local addresses have global scope.
const (
	scopeLink   = 2
	scopeGlobal = 14
)

func scope(a *wire.Addr) int {
	switch {
	case a.IsMulticast():
		return int(a[1] & 15)
	case a.IsLinkLocal(), a.IsLoopback():
		return scopeLink
	}
	return scopeGlobal
}

// label is that of the default policy table (RFC 6724, 2.1).
func label(a *wire.Addr) int {
	hi := binary.BigEndian.Uint64(a[:])
	switch {
	case a.IsLoopback():
		return 0
	case hi>>48 == 0x2002:
		return 2
	case hi>>32 == 0x20010000:
		return 5
	case hi>>57 == 0xfc>>1:
		return 13
	case hi>>54 == 0xfec0>>6:
		return 11
	case hi>>48 == 0x3ffe:
		return 12
	case hi == 0 && binary.BigEndian.Uint32(a[8:]) == 0:
		return 3
	}
	return 1
}

// common is the number of leading bits that a and dst share, at most the length of a's subnet (RFC 6724, 2.2).
func common(a *address, dst *wire.Addr) int {
	n := bits.LeadingZeros64(binary.BigEndian.Uint64(a.addr[:]) ^ binary.BigEndian.Uint64(dst[:]))
	if n == 64 {
		n += bits.LeadingZeros64(binary.BigEndian.Uint64(a.addr[8:]) ^ binary.BigEndian.Uint64(dst[8:]))
	}
	return min(n, a.subnet.bits)
}

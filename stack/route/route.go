// Package route holds the addresses of the interfaces and the routes, and chooses the next hop. A Table does not change while
// it is used: build another and replace the pointer.
package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Table is a set of interface addresses and routes. Lookups may run in parallel.
type Table struct {
	routes []route // longest prefix first, then lowest metric, then in the order they were added
	addrs  []address
}

type route struct {
	prefix
	index   int       // of the interface
	gateway wire.Addr // zero: on link
	metric  int
}

type address struct {
	addr      wire.Addr
	subnet    prefix
	broadcast wire.Addr // zero if there is none
	index     int
}

// prefix is an address prefix in the form of wire.Addr.
type prefix struct {
	hi, lo         uint64
	maskHi, maskLo uint64
	bits           int
}

func makePrefix(p netip.Prefix) prefix {
	p = p.Masked()
	a := wire.AddrFrom(p.Addr())
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return prefix{
		hi: binary.BigEndian.Uint64(a[:]), lo: binary.BigEndian.Uint64(a[8:]),
		maskHi: mask(bits), maskLo: mask(bits - 64), bits: bits,
	}
}

// mask has the first n of 64 bits set.
func mask(n int) uint64 { return ^(^uint64(0) >> min(max(n, 0), 64)) }

func (p *prefix) contains(a *wire.Addr) bool {
	return (binary.BigEndian.Uint64(a[:])^p.hi)&p.maskHi == 0 && (binary.BigEndian.Uint64(a[8:])^p.lo)&p.maskLo == 0
}

// AddAddr gives interface index the address p.Addr() and a route to its subnet.
func (t *Table) AddAddr(index int, p netip.Prefix) error {
	a := p.Addr().Unmap()
	if !p.IsValid() || a != p.Addr() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
		return fmt.Errorf("route: %v is no interface address", p)
	}
	addr := wire.AddrFrom(a)
	if addr.IsBroadcast() {
		return fmt.Errorf("route: %v is no interface address", p)
	}
	if _, ok := t.Local(addr); ok {
		return fmt.Errorf("route: address %v is there twice", a)
	}
	e := address{addr: addr, subnet: makePrefix(p), index: index}
	if a.Is4() && p.Bits() < 31 { // RFC 3021: no broadcast address with 31 bits
		e.broadcast = lastAddr(e.subnet)
		if addr == e.broadcast {
			return fmt.Errorf("route: %v is the broadcast address of its subnet", p)
		}
		if a == p.Masked().Addr() {
			return fmt.Errorf("route: %v is the network address of its subnet", p)
		}
	}
	t.addrs = append(t.addrs, e)
	return t.AddRoute(p.Masked(), index, netip.Addr{}, 0)
}

func lastAddr(p prefix) (a wire.Addr) {
	binary.BigEndian.PutUint64(a[:], p.hi|^p.maskHi)
	binary.BigEndian.PutUint64(a[8:], p.lo|^p.maskLo)
	return a
}

// AddRoute adds a route to p through interface index. Without a gateway (the zero Addr) destinations are on link. A gateway
// must itself be on link at that interface. Among routes of the same length the lowest metric wins.
func (t *Table) AddRoute(p netip.Prefix, index int, gateway netip.Addr, metric int) error {
	if !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
		return fmt.Errorf("route: bad prefix %v", p)
	}
	r := route{prefix: makePrefix(p), index: index, metric: metric}
	if gateway.IsValid() {
		gateway = gateway.Unmap()
		if gateway.Is4() != p.Addr().Is4() {
			return fmt.Errorf("route: %v via %v mixes IP versions", p, gateway)
		}
		r.gateway = wire.AddrFrom(gateway)
		if !slices.ContainsFunc(t.routes, func(x route) bool {
			return x.index == index && x.gateway == wire.Addr{} && x.contains(&r.gateway)
		}) {
			return fmt.Errorf("route: gateway %v of %v is not on link", gateway, p)
		}
	}
	i, _ := slices.BinarySearchFunc(t.routes, r, func(x, r route) int {
		return cmp.Or(cmp.Compare(r.bits, x.bits), cmp.Compare(x.metric, r.metric), -1) // behind its equals
	})
	t.routes = slices.Insert(t.routes, i, r)
	return nil
}

// Lookup returns the interface and the next hop for dst: the gateway, or dst itself if it is on link. ok is false if no route
// covers dst.
func (t *Table) Lookup(dst wire.Addr) (index int, nextHop wire.Addr, ok bool) {
	for i := range t.routes {
		if r := &t.routes[i]; r.contains(&dst) {
			if r.gateway != (wire.Addr{}) {
				return r.index, r.gateway, true
			}
			return r.index, dst, true
		}
	}
	return 0, wire.Addr{}, false
}

// Local reports whether a is an address of this host, and of which interface.
func (t *Table) Local(a wire.Addr) (index int, ok bool) {
	for i := range t.addrs {
		if t.addrs[i].addr == a {
			return t.addrs[i].index, true
		}
	}
	return 0, false
}

// IsBroadcast reports whether a is 255.255.255.255 or the broadcast address of one of our subnets. TCP answers neither
// (RFC 9293, MUST-57).
func (t *Table) IsBroadcast(a wire.Addr) bool {
	if a.IsBroadcast() {
		return true
	}
	for i := range t.addrs {
		if t.addrs[i].broadcast == a && a != (wire.Addr{}) {
			return true
		}
	}
	return false
}

// Source returns the source address for packets to dst: the one whose subnet holds the next hop, else the first of that
// interface, else the first of dst's IP version (RFC 1122, 3.3.4.3).
func (t *Table) Source(dst wire.Addr) (src wire.Addr, ok bool) {
	index, hop, ok := t.Lookup(dst)
	if !ok {
		return src, false
	}
	best := 0
	for i := range t.addrs {
		a := &t.addrs[i]
		if a.addr.Is4() != dst.Is4() {
			continue
		}
		score := 1
		if a.index == index {
			score = 2
			if a.subnet.contains(&hop) {
				score = 3 + a.subnet.bits
			}
		}
		if score > best {
			best, src = score, a.addr
		}
	}
	return src, best > 0
}

// Addrs returns the addresses of interface index, in the order they were added.
func (t *Table) Addrs(index int) []wire.Addr {
	var r []wire.Addr
	for i := range t.addrs {
		if t.addrs[i].index == index {
			r = append(r, t.addrs[i].addr)
		}
	}
	return r
}

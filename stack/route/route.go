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
	mtu6   int // of IPv6 packets, as a router says; 0: the port's
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
	state     State
}

// State of an address (RFC 4862, 2).
type State uint8

// States.
const (
	Preferred  State = iota
	Deprecated       // works, but is no source for new connections if there is another
	Tentative        // being verified: nothing is sent from it or received at it
)

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
	if err := t.AddOffLink(index, p, Preferred); err != nil {
		return err
	}
	return t.AddRoute(p.Masked(), index, netip.Addr{}, 0)
}

// AddOffLink is AddAddr for an address in the given state, without a route: an IPv6 prefix is on link only if somebody says so (RFC
// 5942, 4).
func (t *Table) AddOffLink(index int, p netip.Prefix, state State) error {
	a := p.Addr().Unmap()
	if !p.IsValid() || a != p.Addr() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
		return fmt.Errorf("route: %v is no interface address", p)
	}
	addr := wire.AddrFrom(a)
	if addr.IsBroadcast() {
		return fmt.Errorf("route: %v is no interface address", p)
	}
	if t.Has(addr) {
		return fmt.Errorf("route: address %v is there twice", a)
	}
	e := address{addr: addr, subnet: makePrefix(p), index: index, state: state}
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
	return nil
}

// SetMTU6 says how long IPv6 packets may be, if less than the port allows (RFC 4861, 6.3.4).
func (t *Table) SetMTU6(n int) { t.mtu6 = n }

// MTU6 is what SetMTU6 said; 0: nothing.
func (t *Table) MTU6() int { return t.mtu6 }

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

// Match returns the prefix length, of dst's own IP version, and the metric of the route that Lookup takes.
func (t *Table) Match(dst wire.Addr) (bits, metric int, ok bool) {
	for i := range t.routes {
		if r := &t.routes[i]; r.contains(&dst) {
			if bits = r.bits; dst.Is4() {
				bits -= 96
			}
			return bits, r.metric, true
		}
	}
	return 0, 0, false
}

// Local reports whether a is an address of this host that packets may come to, and of which interface.
func (t *Table) Local(a wire.Addr) (index int, ok bool) {
	for i := range t.addrs {
		if t.addrs[i].addr == a {
			return t.addrs[i].index, t.addrs[i].state != Tentative
		}
	}
	return 0, false
}

// Has reports whether a is an address of this host, though perhaps a tentative one.
func (t *Table) Has(a wire.Addr) bool {
	return slices.ContainsFunc(t.addrs, func(x address) bool { return x.addr == a })
}

// Tentative reports whether an address of a's family is still being verified.
func (t *Table) Tentative(a wire.Addr) bool {
	return slices.ContainsFunc(t.addrs, func(x address) bool { return x.state == Tentative && x.addr.Is4() == a.Is4() })
}

// InGroup reports whether this host is in the IPv6 multicast group g: that of all nodes, or of one of its addresses, tentative ones
// included (RFC 4291, 2.8).
func (t *Table) InGroup(g wire.Addr) bool {
	if g == wire.AllNodes || g == wire.AllNodesHere {
		return true
	}
	return g[1] == 2 && slices.ContainsFunc(t.addrs, func(x address) bool { return !x.addr.Is4() && x.addr.SolicitedNode() == g })
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

// Addrs returns the addresses of interface index that are not tentative, in the order they were added.
func (t *Table) Addrs(index int) []wire.Addr {
	var r []wire.Addr
	for i := range t.addrs {
		if t.addrs[i].index == index && t.addrs[i].state != Tentative {
			r = append(r, t.addrs[i].addr)
		}
	}
	return r
}

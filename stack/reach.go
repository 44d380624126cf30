package stack

import (
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Reach tells the length in bits and the metric of the route to dst, for programs that choose among stacks. A stack does not reach its own
// addresses.
func (s *Stack) Reach(dst netip.Addr) (bits, metric int, ok bool) {
	a, t := wire.AddrFrom(dst), s.routes.Load()
	if t.Has(a) {
		return 0, 0, false
	}
	return t.Match(a)
}

// HasAddr reports whether addr is an address of the interface.
func (s *Stack) HasAddr(addr netip.Addr) bool { return s.routes.Load().Has(wire.AddrFrom(addr)) }

package stack

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Binding is an IPv4 address with the routes and name servers that come and go with it.
type Binding struct {
	Addr   netip.Prefix
	Routes []Route
	DNS    []netip.Addr // in order of preference
}

// Readdress replaces one binding by another in one step, as a DHCP client does: workers see the one or the other. A nil binding is none.
// What used an address that is gone ends: connections with syscall.ECONNABORTED, and so does the next call of a UDP socket that is bound
// to it. If the new binding cannot be used, nothing changes.
func (s *Stack) Readdress(from, to *Binding) error {
	err := s.change(func(a *addressing) error {
		if from != nil {
			i := slices.Index(a.four, from.Addr)
			if i < 0 {
				return fmt.Errorf("stack: %v is no address of this stack", from.Addr)
			}
			a.four = slices.Delete(a.four, i, i+1)
			for _, r := range from.Routes {
				if i := slices.Index(a.static, r); i >= 0 {
					a.static = slices.Delete(a.static, i, i+1)
				}
			}
			a.dns = nil
		}
		if to != nil {
			a.four = append(a.four, to.Addr)
			a.static = append(a.static, to.Routes...)
			a.dns = to.DNS
		}
		return nil
	})
	if err != nil || from == nil || to != nil && to.Addr.Addr() == from.Addr.Addr() {
		return err
	}
	gone := wire.AddrFrom(from.Addr.Addr())
	s.each(func(w *Worker) { w.engine.AbortLocal(gone) })
	for _, ep := range s.udpPorts.All() {
		if ep.Local().Addr() == from.Addr.Addr() {
			ep.Fail(syscall.ECONNABORTED)
		}
	}
	return nil
}

// InUse asks on the link whether another host has an IPv4 address, before it is used (RFC 5227, 2.1). It takes up to seven seconds, or until
// ctx ends. One such check runs at a time.
func (s *Stack) InUse(ctx context.Context, addr netip.Addr) (conflict bool, err error) {
	w := s.workers[0]
	result := make(chan bool, 1)
	if !w.do(func() { w.neigh.Probe(wire.AddrFrom(addr), w.now, func(conflict bool) { result <- conflict }) }) {
		return false, ErrClosed
	}
	select {
	case conflict = <-result:
		return conflict, nil
	case <-w.done:
		return false, ErrClosed
	case <-ctx.Done():
		w.do(w.neigh.EndProbe)
		return false, ctx.Err()
	}
}

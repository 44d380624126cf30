package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack"
)

// NewResolver makes a resolver that asks name servers over d, by UDP, and by TCP where an answer does not fit (RFC 1035, 4.2). Each attempt takes the next
// server; without any it asks those that d's stack has learned from DHCP and from routers by then (Stack.DNS). It is Go's own resolver:
// the host's configuration (the search list and number of attempts of resolv.conf, the hosts file) applies, but for the servers.
//
//	d := sock.Dialer{Stack: st}
//	d.Resolver = sock.NewResolver(d, netip.MustParseAddrPort("10.0.0.2:53"))
func NewResolver(d Dialer, servers ...netip.AddrPort) *net.Resolver {
	d.Resolver = nil // servers are addresses
	return newResolver(d.DialContext, func() []netip.AddrPort {
		if len(servers) > 0 {
			return servers
		}
		return learnedServers(d.Stack)
	})
}

// Resolver is NewResolver for several stacks: each server is asked over the stack that has the best route to it.
func (h *Host) Resolver(servers ...netip.AddrPort) *net.Resolver {
	over := *h
	over.Dialer.Resolver = nil
	return newResolver(over.DialContext, func() []netip.AddrPort {
		if len(servers) > 0 {
			return servers
		}
		return learnedServers(over.Stacks...)
	})
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newResolver(dial dialFunc, servers func() []netip.AddrPort) *net.Resolver {
	var next, last atomic.Uint32
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		all := servers()
		if len(all) == 0 {
			return nil, errors.New("sock: no name servers")
		}
		if isUDP(network) {
			last.Store(next.Add(1) - 1)
		}
		// The server whose answer was cut is asked again by TCP, unless others look up meanwhile: then it may be another one.
		return dial(ctx, network, all[last.Load()%uint32(len(all))].String())
	}}
}

// learnedServers are the name servers that stacks have learned.
func learnedServers(stacks ...*stack.Stack) (all []netip.AddrPort) {
	for _, st := range stacks {
		for _, a := range st.DNS() {
			all = append(all, netip.AddrPortFrom(a.WithZone(""), dnsPort))
		}
	}
	return all
}

const dnsPort = 53

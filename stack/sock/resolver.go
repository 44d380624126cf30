package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
)

// NewResolver makes a resolver that asks name servers over d, by UDP, and by TCP where an answer does not fit (RFC 1035, 4.2). Each attempt takes the next
// server. It is Go's own resolver: the host's configuration (the search list and number of attempts of resolv.conf, the hosts file)
// applies, but for the servers.
//
//	d := sock.Dialer{Stack: st}
//	d.Resolver = sock.NewResolver(d, netip.MustParseAddrPort("10.0.0.2:53"))
func NewResolver(d Dialer, servers ...netip.AddrPort) *net.Resolver {
	d.Resolver = nil // servers are addresses
	var next, last atomic.Uint32
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if len(servers) == 0 {
			return nil, errors.New("sock: no name servers")
		}
		if isUDP(network) {
			last.Store(next.Add(1) - 1)
		}
		// The server whose answer was cut is asked again by TCP, unless others look up meanwhile: then it may be another one.
		return d.DialContext(ctx, network, servers[last.Load()%uint32(len(servers))].String())
	}}
}

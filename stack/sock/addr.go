package sock

import (
	"context"
	"net"
	"net/netip"
)

// networks are the names of TCP that package net knows; a Conn holds the index.
var networks = [...]string{"tcp", "tcp4", "tcp6"}

func networkIndex(name string) (uint8, error) {
	for i, n := range networks {
		if n == name {
			return uint8(i), nil
		}
	}
	return 0, net.UnknownNetworkError(name)
}

// Resolver looks up the addresses of a host. *net.Resolver is one.
type Resolver interface {
	// LookupNetIP returns the addresses of host; network is "ip", "ip4" or "ip6".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolve parses "host:port" and returns at least one address. The host is an address, or a name for r, or empty: then the address is the
// zero one. The port is a number or the name of a service.
func resolve(ctx context.Context, r Resolver, network, address string) ([]netip.AddrPort, error) {
	if _, err := networkIndex(network); err != nil && !isUDP(network) {
		return nil, err
	}
	version := network[len("tcp"):] // or udp
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	if host == "" && version == "4" {
		host = "0.0.0.0"
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, uint16(port))}, nil
	}
	var ips []netip.Addr
	if ip, e := netip.ParseAddr(host); e == nil {
		ips = []netip.Addr{ip}
	} else if r == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	} else if ips, err = r.LookupNetIP(ctx, "ip"+version, host); err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, ip := range ips {
		if ip = ip.Unmap(); version == "" || ip.Is4() == (version == "4") {
			all = append(all, netip.AddrPortFrom(ip, uint16(port)))
		}
	}
	if len(all) == 0 {
		return nil, &net.AddrError{Err: "no suitable address found", Addr: host}
	}
	return all, nil
}

// tcpAddr is the address as package net has it; nil for the zero one.
func tcpAddr(ap netip.AddrPort) net.Addr {
	if ap == (netip.AddrPort{}) {
		return nil
	}
	return net.TCPAddrFromAddrPort(ap)
}

// addr is an address of the connection as package net has it. The zone of a link-local one is the name of the port.
func (c *Conn) addr(ap netip.AddrPort) net.Addr {
	a := net.TCPAddrFromAddrPort(ap)
	if ip := ap.Addr(); ip.Is6() && ip.IsLinkLocalUnicast() {
		a.Zone = c.st.Port().Info().Name
	}
	return a
}

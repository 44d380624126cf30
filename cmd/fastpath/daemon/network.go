package daemon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// network is the stacks of all ports as applications see them.
type network struct {
	ports     []*port
	backlog   int
	keepAlive bool

	mu        sync.Mutex
	listeners []*listener
}

var _ apps.Network = (*network)(nil)

// listener is a listener on one stack.
type listener struct {
	*sock.Listener
	net  *network
	port *port
}

// Listen implements apps.Network. An unspecified address means all ports.
func (n *network) Listen(_ context.Context, addr netip.AddrPort) (net.Listener, error) {
	var ls []*listener
	for _, p := range n.ports {
		if !addr.Addr().IsUnspecified() && !p.has(addr.Addr()) {
			continue
		}
		lc := sock.ListenConfig{Stack: p.stack, Backlog: n.backlog, KeepAlive: -1, KeepAliveConfig: n.keep()}
		l, err := lc.Listen(context.Background(), listenNetwork(addr), withoutZone(addr).String())
		if err != nil {
			for _, l := range ls {
				l.Close()
			}
			return nil, err
		}
		ls = append(ls, &listener{l, n, p})
	}
	if len(ls) == 0 {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: errors.New("no port has this address")}
	}
	n.mu.Lock()
	n.listeners = append(n.listeners, ls...)
	n.mu.Unlock()
	all := make([]net.Listener, len(ls))
	for i, l := range ls {
		all[i] = l
	}
	return sock.Join(all...), nil
}

// ListenPacket implements apps.Network. An unspecified address means all ports.
func (n *network) ListenPacket(_ context.Context, addr netip.AddrPort) (all []apps.PacketConn, err error) {
	network := "udp"
	if addr.Addr() == netip.IPv4Unspecified() {
		network = "udp4"
	}
	for _, p := range n.ports {
		if !addr.Addr().IsUnspecified() && !p.has(addr.Addr()) {
			continue
		}
		c, err := sock.ListenUDP(p.stack, network, withoutZone(addr))
		if err != nil {
			for _, c := range all {
				c.Close()
			}
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, &net.OpError{Op: "listen", Net: "udp", Addr: net.UDPAddrFromAddrPort(addr), Err: errors.New("no port has this address")}
	}
	return all, nil
}

// has reports whether a is an address of the port. A zone must be the port's name.
func (p *port) has(a netip.Addr) bool {
	if z := a.Zone(); z != "" && z != p.conf.Name {
		return false
	}
	return p.stack.HasAddr(a.WithZone(""))
}

// all returns the open listeners.
func (n *network) all() []*listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.listeners)
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.net.mu.Lock()
	l.net.listeners = slices.DeleteFunc(l.net.listeners, func(x *listener) bool { return x == l })
	l.net.mu.Unlock()
	return l.Listener.Close()
}

// keep is the keepalive of connections, as the configuration wants it: its times are the stacks' settings.
func (n *network) keep() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: n.keepAlive, Idle: -1, Interval: -1, Count: -1}
}

// Dial implements apps.Network, over the port whose route to addr is the longest; a zone names the port. A port does not reach itself.
func (n *network) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	h := sock.Host{Dialer: sock.Dialer{KeepAlive: -1, KeepAliveConfig: n.keep()}}
	for _, p := range n.ports {
		if z := addr.Addr().Zone(); z == "" || z == p.conf.Name {
			h.Stacks = append(h.Stacks, p.stack)
		}
	}
	return h.DialContext(ctx, listenNetwork(addr), withoutZone(addr).String())
}

// withoutZone is addr for a stack, which has one link only.
func withoutZone(addr netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(addr.Addr().WithZone(""), addr.Port())
}

// listenNetwork is what to listen on: 0.0.0.0 in a configuration means IPv4 alone, [::] both families.
func listenNetwork(addr netip.AddrPort) string {
	if addr.Addr() == netip.IPv4Unspecified() {
		return "tcp4"
	}
	return "tcp"
}

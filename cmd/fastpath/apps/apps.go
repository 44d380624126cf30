// Package apps holds the applications that the daemon serves: http, echo, udp-echo, discard, source and proxy. They know only net.Listener,
// net.Conn and sockets, so that they run on fastpath's stack and on the kernel's.
package apps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/conf"
)

// Network makes and accepts connections.
type Network interface {
	Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
	Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
	// ListenPacket makes the UDP sockets that together have the address.
	ListenPacket(ctx context.Context, addr netip.AddrPort) ([]PacketConn, error)
}

// Kernel is the kernel's TCP and UDP.
type Kernel struct{}

// Listen implements Network.
func (Kernel) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", addr.String())
}

// Dial implements Network.
func (Kernel) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr.String())
}

// ListenPacket implements Network.
func (Kernel) ListenPacket(_ context.Context, addr netip.AddrPort) ([]PacketConn, error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return []PacketConn{c}, nil
}

// App serves connections.
type App interface {
	// Serve accepts connections from l until Shutdown or Close, and then returns nil. It is called once.
	Serve(l net.Listener) error
	// Shutdown closes the listener and waits until the last connection has ended. When ctx ends, those that are left are reset.
	Shutdown(ctx context.Context) error
}

// NewPacket makes the application for datagrams that c describes.
func NewPacket(c conf.App, log *slog.Logger) (PacketApp, error) {
	if c.Kind == conf.AppUDPEcho {
		return &udpEcho{log: log.With("app", c.Name)}, nil
	}
	return nil, fmt.Errorf("apps: unknown kind %q", c.Kind)
}

// Counts are what the applications of a daemon count together.
type Counts struct {
	BackendFailures atomic.Uint64 // connections of proxies that were reset because their backend could not be reached
}

// New makes the application for connections that c describes. A proxy with via = "fastpath" reaches its backend through fastpath.
func New(c conf.App, fastpath Network, counts *Counts, log *slog.Logger) (App, error) {
	log = log.With("app", c.Name)
	switch c.Kind {
	case conf.AppHTTP:
		return newHTTP(c, log), nil
	case conf.AppEcho:
		return newConns(c, log, echo), nil
	case conf.AppDiscard:
		return newConns(c, log, discard), nil
	case conf.AppSource:
		return newConns(c, log, source(c)), nil
	case conf.AppProxy:
		var via Network = Kernel{}
		if c.Via == conf.ViaFastpath {
			via = fastpath
		}
		if via == nil {
			return nil, errors.New("apps: no network to reach the backend through")
		}
		return newConns(c, log, proxy(c, via, counts, log)), nil
	}
	return nil, fmt.Errorf("apps: unknown kind %q", c.Kind)
}

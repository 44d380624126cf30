package daemon

import (
	"context"
	"errors"
	"fmt"
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
		l, err := lc.Listen(context.Background(), "tcp", withoutZone(addr).String())
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
	if len(ls) == 1 {
		return ls[0], nil
	}
	return newMulti(ls), nil
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

// Dial implements apps.Network, over the port in whose network addr lies, else over one that has a gateway. A port does not reach itself.
func (n *network) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	p := n.route(addr.Addr())
	if p == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: fmt.Errorf("no port reaches %v", addr.Addr())}
	}
	d := sock.Dialer{Stack: p.stack, KeepAlive: -1, KeepAliveConfig: n.keep()}
	return d.DialContext(ctx, "tcp", withoutZone(addr).String())
}

// withoutZone is addr for a stack, which has one link only.
func withoutZone(addr netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(addr.Addr().WithZone(""), addr.Port())
}

func (n *network) route(a netip.Addr) (best *port) {
	bits := -1
	for _, p := range n.ports {
		if z := a.Zone(); z != "" && z != p.conf.Name {
			continue
		}
		if b, _, ok := p.stack.Reach(a.WithZone("")); ok && b > bits {
			best, bits = p, b
		}
	}
	return best
}

// multi accepts from listeners on several stacks.
type multi struct {
	ls     []*listener
	conns  chan net.Conn
	errs   chan error
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

func newMulti(ls []*listener) *multi {
	m := &multi{ls: ls, conns: make(chan net.Conn), errs: make(chan error), closed: make(chan struct{})}
	for _, l := range ls {
		m.wg.Go(func() { m.accept(l) })
	}
	return m
}

func (m *multi) accept(l *listener) {
	for {
		c, err := l.AcceptConn()
		if err != nil {
			select {
			case m.errs <- err:
				continue
			case <-m.closed:
				return
			}
		}
		select {
		case m.conns <- c:
		case <-m.closed:
			_ = c.Abort() // the error says that it is closed already
			return
		}
	}
}

// Accept implements net.Listener.
func (m *multi) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.errs:
		return nil, err
	case <-m.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: m.Addr(), Err: net.ErrClosed}
	}
}

// Addr implements net.Listener.
func (m *multi) Addr() net.Addr { return m.ls[0].Addr() }

// Close implements net.Listener.
func (m *multi) Close() error {
	err := net.ErrClosed
	m.once.Do(func() {
		close(m.closed)
		var errs []error
		for _, l := range m.ls {
			errs = append(errs, l.Close())
		}
		m.wg.Wait()
		err = errors.Join(errs...)
	})
	return err
}

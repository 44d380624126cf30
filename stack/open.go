package stack

import (
	"fmt"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Listen makes a listener with room for backlog connections that are not accepted yet, on an address of the stack, on 0.0.0.0 (any
// of IPv4) or on "::" or the zero Addr (any of both families). Port 0 takes a free one.
func (s *Stack) Listen(addr netip.AddrPort, backlog int) (*tcp.Listener, error) {
	return s.ListenAs(addr, backlog, false, nil)
}

// ListenOnly6 is Listen for IPv6 alone: "::" means any IPv6 address (RFC 3493, 5.3).
func (s *Stack) ListenOnly6(addr netip.AddrPort, backlog int) (*tcp.Listener, error) {
	return s.ListenAs(addr, backlog, true, nil)
}

// ListenAs is Listen or, with only6, ListenOnly6, with what the listener's connections begin with, if setup is not nil. It fails with
// tcp.PortInUse, or tcp.NotLocal for an address that is not the stack's.
func (s *Stack) ListenAs(addr netip.AddrPort, backlog int, only6 bool, setup *tcp.Setup) (*tcp.Listener, error) {
	a := wire.AddrFrom(addr.Addr())
	if !a.IsZero() && !s.routes.Load().Has(a) {
		return nil, fmt.Errorf("stack: %v is no address of this stack: %w", addr.Addr(), tcp.NotLocal)
	}
	if addr.Port() != 0 {
		return s.listen(a, addr.Port(), backlog, only6, setup)
	}
	for p := uint16(ephemeral); p != 0; p++ {
		if l, err := s.listen(a, p, backlog, only6, setup); err != tcp.PortInUse {
			return l, err
		}
	}
	return nil, tcp.PortInUse
}

// ephemeral is the first port tried for a listener that does not care (RFC 6335, 6).
const ephemeral = 49152

func (s *Stack) listen(a wire.Addr, port uint16, backlog int, only6 bool, setup *tcp.Setup) (*tcp.Listener, error) {
	l := tcp.NewListener(a, port, backlog)
	l.SetUp(setup)
	if only6 {
		l.Only6()
	}
	var err error
	done := 0
	all := s.each(func(w *Worker) {
		if err == nil {
			if err = w.engine.Listen(l); err == nil {
				done++
			}
		}
	})
	if err == nil && all {
		return l, nil
	}
	for _, w := range s.workers[:done] {
		w.do(func() { w.engine.Unlisten(l) })
	}
	if err == nil {
		err = ErrClosed
	}
	return nil, err
}

// CloseListener ends l: connections that were not accepted are reset.
func (s *Stack) CloseListener(l *tcp.Listener) {
	s.each(func(w *Worker) { w.engine.Unlisten(l) })
	l.Close()
}

// Connect starts an active open. A local address that is not valid is chosen by route; local port 0 is chosen by the worker, so that
// the replies come to it. The connection is in SYN-SENT: wait on its Wr until Up.
func (s *Stack) Connect(local, remote netip.AddrPort) (*tcp.Conn, error) {
	return s.ConnectAs(local, remote, nil)
}

// ConnectWith is Connect with the modules that the connection is to have.
func (s *Stack) ConnectWith(local, remote netip.AddrPort, modules tcp.Choice) (*tcp.Conn, error) {
	return s.ConnectAs(local, remote, &tcp.Setup{Modules: modules})
}

// ConnectAs is Connect with what the connection begins with, if setup is not nil. Errors are those of connect(2): tcp.NoRoute, tcp.NotLocal
// for a local address that is not ours or if no port is free, tcp.PortInUse, tcp.Refused for port 0, tcp.NoMemory, or ErrClosed.
func (s *Stack) ConnectAs(local, remote netip.AddrPort, setup *tcp.Setup) (*tcp.Conn, error) {
	k := tcp.Tuple{Remote: wire.AddrFrom(remote.Addr()), RemotePort: remote.Port(), LocalPort: local.Port()}
	routes := s.routes.Load()
	if _, _, ok := routes.Lookup(k.Remote); !ok || k.Remote.IsZero() || k.Remote.IsMulticast() || routes.IsBroadcast(k.Remote) {
		return nil, tcp.NoRoute // RFC 9293, MUST-46
	}
	if remote.Port() == 0 {
		return nil, tcp.Refused // nobody can listen there
	}
	if local.Addr().IsValid() && !local.Addr().IsUnspecified() {
		k.Local = wire.AddrFrom(local.Addr()) // RFC 9293, MUST-43
		if _, ok := routes.Local(k.Local); !ok {
			return nil, fmt.Errorf("stack: %v is no address of this stack: %w", local.Addr(), tcp.NotLocal)
		}
	} else if src, ok := routes.Source(k.Remote); ok {
		k.Local = src // RFC 9293, MUST-44
	} else if routes.Tentative(k.Remote) {
		return nil, ErrTentative
	} else {
		return nil, tcp.NoRoute
	}
	i := int(s.next.Add(1)) % len(s.workers)
	if k.LocalPort != 0 && len(s.workers) > 1 {
		i = s.steer.tuple(&k)
	}
	w := s.workers[i]
	var c *tcp.Conn
	var err error
	if !w.do(func() {
		c, err = w.engine.ConnectAs(k, setup)
	}) {
		return nil, ErrClosed
	}
	return c, err
}

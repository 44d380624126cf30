package stack

import (
	"net/netip"
	"syscall"

	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ListenUDP makes an endpoint that receives from anybody on local, which is an address of the stack or unspecified. Port 0 takes a free one.
// only says which version of IP an unspecified address stands for: 4, 6, or 0 for both.
func (s *Stack) ListenUDP(local netip.AddrPort, only int) (*udp.Endpoint, error) {
	if a := local.Addr(); a.IsValid() && !a.IsUnspecified() {
		if !s.owns(wire.AddrFrom(a)) {
			return nil, syscall.EADDRNOTAVAIL
		}
	}
	return s.bindUDP(udp.Config{Local: local, Only4: only == 4, Only6: only == 6})
}

// DialUDP makes an endpoint that sends to remote and receives from there only. A local address that is not valid is chosen by route, and
// port 0 by chance.
func (s *Stack) DialUDP(local, remote netip.AddrPort) (*udp.Endpoint, error) {
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	dst := wire.AddrFrom(remote.Addr())
	if remote.Port() == 0 || !remote.Addr().IsValid() {
		return nil, syscall.EINVAL
	}
	r := s.routes.Load()
	broadcast, err := s.reachUDP(dst)
	if err != nil {
		return nil, err
	}
	if a := local.Addr(); !a.IsValid() || a.IsUnspecified() {
		src, ok := r.Source(dst)
		if !ok && !broadcast {
			return nil, syscall.ENETUNREACH
		}
		local = netip.AddrPortFrom(src.Netip(), local.Port())
	} else if _, ok := r.Local(wire.AddrFrom(a)); !ok {
		return nil, syscall.EADDRNOTAVAIL
	}
	return s.bindUDP(udp.Config{Local: local, Remote: remote, Only4: dst.Is4(), Only6: !dst.Is4()})
}

// owns reports whether packets may come to a, and leave from it.
func (s *Stack) owns(a wire.Addr) bool {
	_, ok := s.routes.Load().Local(a)
	return ok
}

// bindUDP gives an endpoint its port, its home and its place in the table of each worker.
func (s *Stack) bindUDP(cfg udp.Config) (*udp.Endpoint, error) {
	cfg.Space, cfg.Check, cfg.Own = s.spaceUDP, s.reachUDP, s.owns
	ep, err := s.udpPorts.Bind(cfg)
	if err != nil {
		return nil, err
	}
	home := s.workers[int(s.next.Add(1))%len(s.workers)]
	if !home.do(func() { home.udp.Adopt(ep) }) {
		s.udpPorts.Unbind(ep)
		return nil, ErrClosed
	}
	if !s.each(func(w *Worker) { w.udp.Add(ep) }) {
		s.CloseUDP(ep)
		return nil, ErrClosed
	}
	return ep, nil
}

// CloseUDP ends an endpoint: what was written is still sent, what was not read is gone. Nobody may use it any more.
func (s *Stack) CloseUDP(ep *udp.Endpoint) {
	s.udpPorts.Unbind(ep)
	ended := false
	for _, w := range s.workers {
		if !w.do(func() { w.udp.Remove(ep) }) && ep.IsHome(w.udp) {
			ended = true
		}
	}
	ep.Free(ended)
}

// spaceUDP is the most data of a datagram to dst, or of one that is not to be cut.
func (s *Stack) spaceUDP(dst wire.Addr, whole bool) int {
	most, headers, mtu := wire.MaxUDP4, wire.IPv4Len+wire.UDPLen, s.mtu
	if !dst.Is4() {
		most, headers = wire.MaxUDP6, wire.IPv6Len+wire.UDPLen
		if m := s.routes.Load().MTU6(); m != 0 {
			mtu = min(mtu, m)
		}
	}
	if whole {
		return min(most, mtu-headers)
	}
	return most
}

// reachUDP reports whether dst is a broadcast address, and why nothing can be sent there.
func (s *Stack) reachUDP(dst wire.Addr) (broadcast bool, err error) {
	r := s.routes.Load()
	if r.IsBroadcast(dst) {
		return true, nil
	}
	if dst.IsZero() || dst.IsLoopback() {
		return false, syscall.ENETUNREACH
	}
	if _, ours := r.Local(dst); ours { // a port does not reach itself
		return false, syscall.EHOSTUNREACH
	}
	if _, _, ok := r.Lookup(dst); !ok && !dst.IsMulticast() {
		return false, syscall.ENETUNREACH
	}
	return false, nil
}

// UDPSockets returns the figures of all UDP endpoints.
func (s *Stack) UDPSockets() (all []udp.Info) {
	s.each(func(w *Worker) {
		w.udp.Endpoints(func(ep *udp.Endpoint) {
			i := ep.Info()
			i.Worker = w.index
			all = append(all, i)
		})
	})
	return all
}

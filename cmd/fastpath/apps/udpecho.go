package apps

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// PacketConn is a UDP socket, of the kernel or of fastpath.
type PacketConn interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	LocalAddr() net.Addr
	Close() error
}

// addressed is a PacketConn of fastpath, which knows which of the host's addresses a datagram was sent to.
type addressed interface {
	ReadMsg(b []byte) (n int, from netip.AddrPort, to netip.Addr, err error)
	WriteMsg(b []byte, from netip.Addr, to netip.AddrPort) (int, error)
}

// PacketApp serves datagrams.
type PacketApp interface {
	// ServePackets answers what comes to the sockets until Shutdown, and then returns nil. It is called once.
	ServePackets(cs []PacketConn) error
	// Shutdown closes the sockets and returns when nothing is answered any more.
	Shutdown(ctx context.Context) error
}

// udpEcho sends datagrams back to where they came from (RFC 862).
type udpEcho struct {
	log *slog.Logger

	mu     sync.Mutex
	cs     []PacketConn
	closed bool
	wg     sync.WaitGroup
}

// ServePackets implements PacketApp.
func (a *udpEcho) ServePackets(cs []PacketConn) error {
	a.mu.Lock()
	a.cs = cs
	if a.closed {
		closePackets(cs)
	}
	a.mu.Unlock()
	errs := make([]error, len(cs))
	for i, c := range cs {
		a.wg.Go(func() {
			if errs[i] = a.serve(c); errs[i] != nil {
				closePackets(cs) // the others do not go on without it
			}
		})
	}
	a.wg.Wait()
	return errors.Join(errs...)
}

func (a *udpEcho) serve(c PacketConn) error {
	read := func(b []byte) (n int, from netip.AddrPort, to netip.Addr, err error) {
		n, from, err = c.ReadFromUDPAddrPort(b)
		return n, from, to, err
	}
	write := func(b []byte, _ netip.Addr, to netip.AddrPort) (int, error) { return c.WriteToUDPAddrPort(b, to) }
	if a, ok := c.(addressed); ok {
		read, write = a.ReadMsg, a.WriteMsg // the answer comes from where the question went (RFC 1122, 4.1.3.5)
	}
	b := make([]byte, 65535)
	own := c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	for {
		n, from, to, err := read(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil && !temporary(err):
			return err
		case err != nil || answersItself(from.Port(), own):
			continue
		}
		_, err = write(b[:n], to, from)
		if errors.Is(err, syscall.EINVAL) { // it went to a broadcast address, from which nothing comes
			_, err = c.WriteToUDPAddrPort(b[:n], from)
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			a.log.Debug("datagram not answered", "peer", from, "err", err)
		}
	}
}

// answersItself reports whether whoever listens on a port is known to answer everything, so that two of them, brought together by a forged
// source, would never stop: echo, quote of the day, characters, time, and this very service.
func answersItself(port, own uint16) bool {
	switch port {
	case own, 0, 7, 13, 17, 19, 37:
		return true
	}
	return false
}

func closePackets(cs []PacketConn) {
	for _, c := range cs {
		_ = c.Close() // a second time is no error that anybody needs
	}
}

// Shutdown implements PacketApp.
func (a *udpEcho) Shutdown(context.Context) error {
	a.mu.Lock()
	a.closed = true
	closePackets(a.cs)
	a.mu.Unlock()
	a.wg.Wait()
	return nil
}

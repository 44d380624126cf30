package sock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/fastpath-tcp/fastpath/stack"
)

// Host is several stacks as one host: it dials over the stack with the longest prefix for the destination, and listens on all.
type Host struct {
	Stacks []*stack.Stack
	// Dialer is used for every dial, with its Stack set; LocalAddr is for programs that know which stack it belongs to.
	Dialer Dialer
}

// Stack returns the stack whose route to dst has the longest prefix, and among such the lowest metric; nil if none has a route. A stack
// does not reach itself: one that has dst as its address is passed over.
func (h *Host) Stack(dst netip.Addr) (best *stack.Stack) {
	bits, metric := -1, 0
	for _, s := range h.Stacks {
		b, m, ok := s.Reach(dst)
		if ok && (b > bits || b == bits && m < metric) {
			best, bits, metric = s, b, m
		}
	}
	return best
}

// Dial is DialContext without a context.
func (h *Host) Dial(network, address string) (net.Conn, error) {
	return h.DialContext(context.Background(), network, address)
}

// DialContext connects to address, by TCP or UDP, as Dialer's does.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := h.Dialer
	ctx, cancel := d.withDeadline(ctx)
	defer cancel()
	aps, err := resolve(ctx, d.Resolver, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	delay := d.FallbackDelay
	if isUDP(network) {
		delay = -1 // nothing tells whether datagrams arrive
	}
	return happily(ctx, aps, delay, func(ctx context.Context, ap netip.AddrPort) (net.Conn, error) { return h.dial(ctx, network, ap) })
}

func (h *Host) dial(ctx context.Context, network string, ap netip.AddrPort) (net.Conn, error) {
	d := h.Dialer
	if d.Stack = h.Stack(ap.Addr()); d.Stack == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addrFor(network, ap), Err: errNoStack}
	}
	return d.DialContext(ctx, network, ap.String())
}

// errNoStack is the error of a Host without a way to an address.
var errNoStack = errors.New("no stack has a route there")

func addrFor(network string, ap netip.AddrPort) net.Addr {
	if isUDP(network) {
		return net.UDPAddrFromAddrPort(ap)
	}
	return net.TCPAddrFromAddrPort(ap)
}

// Listen listens with each of the configurations that lc makes for the stacks that have addr; for an unspecified address these are all.
// Port 0 is not allowed with several of them, which would take different ports.
func (h *Host) Listen(network string, addr netip.AddrPort, lc func(*stack.Stack) ListenConfig) (net.Listener, error) {
	var ls []net.Listener
	fail := func(err error) (net.Listener, error) {
		for _, l := range ls {
			l.Close()
		}
		return nil, err
	}
	for _, s := range h.Stacks {
		if a := addr.Addr(); a.IsValid() && !a.IsUnspecified() && !s.HasAddr(a) {
			continue
		}
		if len(ls) > 0 && addr.Port() == 0 {
			return fail(&net.OpError{Op: "listen", Net: network, Addr: addrFor(network, addr), Err: errors.New("port 0 on several stacks")})
		}
		c := lc(s)
		c.Stack = s
		l, err := c.listen(network, addr.String(), addr)
		if err != nil {
			return fail(err)
		}
		ls = append(ls, l)
	}
	if len(ls) == 0 {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: addrFor(network, addr), Err: fmt.Errorf("no stack has the address %v", addr.Addr())}
	}
	return Join(ls...), nil
}

// Join makes one listener of several: it accepts from all of them, and closing it closes them. A single one is returned as it is.
func Join(ls ...net.Listener) net.Listener {
	if len(ls) == 1 {
		return ls[0]
	}
	j := &joined{ls: ls, conns: make(chan net.Conn), errs: make(chan error), closed: make(chan struct{})}
	for _, l := range ls {
		j.wg.Go(func() { j.accept(l) })
	}
	return j
}

type joined struct {
	ls     []net.Listener
	conns  chan net.Conn
	errs   chan error
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

func (j *joined) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case j.errs <- err:
				continue
			case <-j.closed:
				return
			}
		}
		select {
		case j.conns <- c:
		case <-j.closed: // reset, as what nobody has accepted
			if a, ok := c.(*Conn); ok {
				_ = a.Abort() // the error says that it is closed already
			} else {
				_ = c.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (j *joined) Accept() (net.Conn, error) {
	select {
	case c := <-j.conns:
		return c, nil
	case err := <-j.errs:
		return nil, err
	case <-j.closed:
		return nil, &net.OpError{Op: "accept", Net: j.Addr().Network(), Addr: j.Addr(), Err: net.ErrClosed}
	}
}

// Addr implements net.Listener. It is the first one's.
func (j *joined) Addr() net.Addr { return j.ls[0].Addr() }

// Close implements net.Listener.
func (j *joined) Close() error {
	err := error(&net.OpError{Op: "close", Net: j.Addr().Network(), Addr: j.Addr(), Err: net.ErrClosed})
	j.once.Do(func() {
		close(j.closed)
		var errs []error
		for _, l := range j.ls {
			errs = append(errs, l.Close())
		}
		j.wg.Wait()
		err = errors.Join(errs...)
	})
	return err
}

package sock

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Listener accepts connections. It implements net.Listener.
type Listener struct {
	st     *stack.Stack
	l      *tcp.Listener
	addr   *net.TCPAddr
	mu     sync.Mutex // one goroutine waits at a time
	closed atomic.Bool
}

var _ net.Listener = (*Listener)(nil)

// DefaultBacklog is the number of connections that may wait to be accepted.
const DefaultBacklog = 4096

// Listen listens on an address of the stack, such as "10.0.0.1:80", ":80" or "10.0.0.1:0", where port 0 takes a free one. network is
// "tcp" or "tcp4".
func Listen(st *stack.Stack, network, address string) (*Listener, error) {
	ap, err := resolve(network, address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return ListenAddr(st, ap, DefaultBacklog)
}

// ListenAddr is Listen for an address that is parsed already, with the given backlog.
func ListenAddr(st *stack.Stack, ap netip.AddrPort, backlog int) (*Listener, error) {
	l, err := st.Listen(ap, backlog)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(ap), Err: sysError("bind", err)}
	}
	return &Listener{st: st, l: l, addr: net.TCPAddrFromAddrPort(l.Addr())}, nil
}

// resolve parses "host:port". There is no name resolution: the host is an address or empty.
func resolve(network, address string) (netip.AddrPort, error) {
	if network != "tcp" && network != "tcp4" {
		return netip.AddrPort{}, net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ap, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return ap, &net.AddrError{Err: fmt.Sprintf("not an address and port (%v)", err), Addr: address}
	}
	return ap, nil
}

// Addr is the listener's address.
func (l *Listener) Addr() net.Addr { return l.addr }

// Pending is the number of connections that wait for Accept.
func (l *Listener) Pending() int { return l.l.Pending() }

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn is Accept with the connection's own type.
func (l *Listener) AcceptConn() (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for armed := false; ; {
		c, err := l.l.TryAccept()
		switch {
		case err != tcp.ErrWouldBlock:
			if armed {
				l.l.Ready.Disarm()
			}
			if err != nil {
				return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
			}
			return newConn(l.st, c), nil
		case !armed:
			l.l.Ready.Arm() // then look once more
			armed = true
		default:
			l.l.Ready.Wait()
			armed = false
		}
	}
}

// Close stops listening. Connections that were not accepted are reset.
func (l *Listener) Close() error {
	if l.closed.Swap(true) {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	l.st.CloseListener(l.l)
	return nil
}

// Dialer opens connections over a stack.
type Dialer struct {
	Stack     *stack.Stack
	LocalAddr netip.AddrPort // optional: the stack chooses what is not given, address or port
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to address, such as "10.0.0.2:80". It fits http.Transport.DialContext.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ap, err := resolve(network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c, err := d.DialAddr(ctx, ap)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// DialAddr connects to an address that is parsed already. When ctx ends first, the attempt is given up.
func (d *Dialer) DialAddr(ctx context.Context, ap netip.AddrPort) (*Conn, error) {
	fail := func(err error) (*Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(ap), Err: sysError("connect", err)}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	c, err := d.Stack.Connect(d.LocalAddr, ap)
	if err != nil {
		return fail(err)
	}
	for !c.Up() {
		c.Wr.Arm()
		if c.Up() {
			c.Wr.Disarm()
		} else if !c.Wr.WaitOr(ctx.Done()) {
			c.Abort()
			return fail(ctx.Err())
		}
	}
	if e := c.Err(); e != tcp.OK {
		c.Close() // frees what is left of it
		return fail(e)
	}
	return newConn(d.Stack, c), nil
}

package sock

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
)

// UDPConn is a UDP socket. As net.UDPConn it implements net.PacketConn and net.Conn, and several goroutines may use it at once. Sending
// to broadcast addresses is allowed, as in package net.
//
// A datagram that is longer than the reader's buffer is cut. Addresses of IPv4 are never in the form of IPv6.
type UDPConn struct {
	ep      *udp.Endpoint
	st      *stack.Stack
	clock   stack.Clock
	network string

	rmu, wmu           sync.Mutex // one reader, one writer at a time
	postedRd, postedWr int64      // deadlines that the worker knows
	closed             atomic.Bool
}

var (
	_ net.PacketConn = (*UDPConn)(nil)
	_ net.Conn       = (*UDPConn)(nil)
)

// ListenPacket makes a UDP socket on an address of the stack, such as "10.0.0.1:53", ":53" or ":0", where port 0 takes a free one.
// network is "udp", "udp4" or "udp6".
func ListenPacket(st *stack.Stack, network, address string) (*UDPConn, error) {
	if !isUDP(network) {
		return nil, &net.OpError{Op: "listen", Net: network, Err: net.UnknownNetworkError(network)}
	}
	aps, err := resolve(context.Background(), nil, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return ListenUDP(st, network, aps[0])
}

// ListenUDP is ListenPacket for an address that is parsed already.
func ListenUDP(st *stack.Stack, network string, ap netip.AddrPort) (*UDPConn, error) {
	only, err := versionOf(network, ap.Addr())
	var ep *udp.Endpoint
	if err == nil {
		if !ap.Addr().IsValid() {
			ap = netip.AddrPortFrom(netip.IPv4Unspecified(), ap.Port())
			if only == 6 {
				ap = netip.AddrPortFrom(netip.IPv6Unspecified(), ap.Port())
			}
		}
		ep, err = st.ListenUDP(ap, only)
	}
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: net.UDPAddrFromAddrPort(ap), Err: callError("bind", err)}
	}
	return newUDPConn(st, ep, network), nil
}

// DialUDP makes a UDP socket that exchanges datagrams with remote only, and learns when nobody listens there: the next call then returns
// syscall.ECONNREFUSED. The stack chooses what of local is not given, address or port.
func DialUDP(st *stack.Stack, network string, local, remote netip.AddrPort) (*UDPConn, error) {
	_, err := versionOf(network, remote.Addr())
	var ep *udp.Endpoint
	if err == nil {
		ep, err = st.DialUDP(local, remote)
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Source: udpAddr(local), Addr: udpAddr(remote), Err: callError("connect", err)}
	}
	return newUDPConn(st, ep, network), nil
}

func newUDPConn(st *stack.Stack, ep *udp.Endpoint, network string) *UDPConn {
	ep.SetBroadcast(true)
	return &UDPConn{ep: ep, st: st, clock: st.Clock(), network: network}
}

// versionOf is the version of IP that a socket of this network and address is limited to, 0 for both.
func versionOf(network string, a netip.Addr) (int, error) {
	a = a.Unmap()
	switch network {
	case "udp":
		switch {
		case a.Is4() && !a.IsUnspecified():
			return 4, nil
		case a.Is6() && !a.IsUnspecified():
			return 6, nil
		}
		return 0, nil
	case "udp4":
		if a.Is6() {
			return 0, &net.AddrError{Err: "non-IPv4 address", Addr: a.String()}
		}
		return 4, nil
	case "udp6":
		if a.Is4() {
			return 0, &net.AddrError{Err: "non-IPv6 address", Addr: a.String()}
		}
		return 6, nil
	}
	return 0, net.UnknownNetworkError(network)
}

func isUDP(network string) bool { return network == "udp" || network == "udp4" || network == "udp6" }

// dialUDP is DialContext for UDP. Addresses of a name are tried in turn until there is a way to one.
func (d *Dialer) dialUDP(ctx context.Context, network, address string) (net.Conn, error) {
	aps, err := resolve(ctx, d.Resolver, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	var first error
	for _, ap := range aps {
		c, err := DialUDP(d.Stack, network, d.LocalAddr, ap)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// udpAddr is ap as package net has it, nil if it is not valid.
func udpAddr(ap netip.AddrPort) net.Addr {
	if !ap.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(ap)
}

// LocalAddr is the address of this end, a *net.UDPAddr.
func (c *UDPConn) LocalAddr() net.Addr { return udpAddr(c.ep.Local()) }

// RemoteAddr is the peer's address, a *net.UDPAddr, or nil if the socket is not connected.
func (c *UDPConn) RemoteAddr() net.Addr { return udpAddr(c.ep.Remote()) }

// Endpoint is the stack's half of the socket, for options and figures that package net does not have.
func (c *UDPConn) Endpoint() *udp.Endpoint { return c.ep }

// Read reads the next datagram, from wherever it comes.
func (c *UDPConn) Read(p []byte) (int, error) {
	if len(p) == 0 && !c.closed.Load() { // as package poll has it: nothing is taken
		return 0, nil
	}
	n, _, err := c.read(p, "read")
	return n, err
}

// ReadFrom implements net.PacketConn. The address is a *net.UDPAddr.
func (c *UDPConn) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := c.read(p, "recvfrom")
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDP is ReadFrom with the address's own type.
func (c *UDPConn) ReadFromUDP(p []byte) (int, *net.UDPAddr, error) {
	n, from, err := c.read(p, "recvfrom")
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDPAddrPort is ReadFrom without an allocation for the address.
func (c *UDPConn) ReadFromUDPAddrPort(p []byte) (n int, from netip.AddrPort, err error) {
	return c.read(p, "recvfrom")
}

// ReadMsg is ReadFromUDPAddrPort, and says which address the datagram was sent to, for those who listen on all: it is what IP_PKTINFO tells
// of a kernel's socket. It may be a broadcast address.
func (c *UDPConn) ReadMsg(p []byte) (n int, from netip.AddrPort, to netip.Addr, err error) {
	return c.readMsg(p, "recvmsg")
}

func (c *UDPConn) read(p []byte, call string) (n int, from netip.AddrPort, err error) {
	n, from, _, err = c.readMsg(p, call)
	return n, from, err
}

func (c *UDPConn) readMsg(p []byte, call string) (n int, from netip.AddrPort, to netip.Addr, err error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	for armed := false; ; {
		if err = c.usable(&c.ep.RdDeadline); err == nil {
			n, _, from, to, err = c.ep.TryReadMsg(p)
		}
		if err != udp.ErrWouldBlock {
			looked(armed, &c.ep.Rd)
			break
		}
		armed = await(c.ep, armed, &c.ep.Rd, &c.ep.RdDeadline, &c.postedRd)
	}
	if err != nil {
		err = c.opError("read", call, c.RemoteAddr(), err)
	}
	return n, from, to, err
}

// Write sends a datagram to the peer of a connected socket.
func (c *UDPConn) Write(p []byte) (int, error) {
	return c.write(p, netip.Addr{}, netip.AddrPort{}, "write")
}

// WriteTo implements net.PacketConn. The address is a *net.UDPAddr.
func (c *UDPConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	a, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, &net.OpError{Op: "write", Net: c.network, Source: c.LocalAddr(), Addr: addr, Err: syscall.EINVAL}
	}
	return c.WriteToUDP(p, a)
}

// WriteToUDP is WriteTo with the address's own type.
func (c *UDPConn) WriteToUDP(p []byte, addr *net.UDPAddr) (int, error) {
	if addr == nil {
		return 0, c.opError("write", "", nil, errMissingAddress)
	}
	return c.WriteToUDPAddrPort(p, addr.AddrPort())
}

// WriteToUDPAddrPort is WriteTo without an allocation for the address.
func (c *UDPConn) WriteToUDPAddrPort(p []byte, addr netip.AddrPort) (int, error) {
	return c.writeTo(p, netip.Addr{}, addr, "sendto")
}

// WriteMsg is WriteToUDPAddrPort from an address of the stack, for those who listen on all; syscall.EINVAL says that it is none. One that is
// not valid is chosen by route.
func (c *UDPConn) WriteMsg(p []byte, from netip.Addr, to netip.AddrPort) (int, error) {
	return c.writeTo(p, from.Unmap(), to, "sendmsg")
}

func (c *UDPConn) writeTo(p []byte, from netip.Addr, addr netip.AddrPort, call string) (int, error) {
	switch {
	case c.ep.Connected():
		return 0, c.opError("write", "", udpAddr(addr), net.ErrWriteToConnected)
	case !addr.IsValid():
		return 0, c.opError("write", "", nil, errMissingAddress)
	}
	return c.write(p, from, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), call)
}

var errMissingAddress error = &net.AddrError{Err: "missing address"}

func (c *UDPConn) write(p []byte, from netip.Addr, to netip.AddrPort, call string) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	err := c.writing(func() error { return c.ep.TryWriteMsg(p, from, to) })
	if err != nil {
		a := udpAddr(to)
		if a == nil {
			a = c.RemoteAddr()
		}
		return 0, c.opError("write", call, a, err)
	}
	return len(p), nil
}

// Flush waits until the datagrams that were written have left, as writing does: to the write deadline at most.
func (c *UDPConn) Flush() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.writing(c.ep.Sent); err != nil {
		return c.opError("write", "", c.RemoteAddr(), err)
	}
	return nil
}

// writing looks by try until there is something else to say than to wait, or the deadline has passed. The caller holds wmu.
func (c *UDPConn) writing(try func() error) error {
	for armed := false; ; {
		err := c.usable(&c.ep.WrDeadline)
		if err == nil {
			err = try()
		}
		if err != udp.ErrWouldBlock {
			looked(armed, &c.ep.Wr)
			return err
		}
		armed = await(c.ep, armed, &c.ep.Wr, &c.ep.WrDeadline, &c.postedWr)
	}
}

// usable returns the error of a call that may not wait: closed, or past its deadline.
func (c *UDPConn) usable(deadline *atomic.Int64) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return overdue(c.clock, deadline)
}

// SetDeadline sets both deadlines. The zero time means none; calls that wait take it up.
func (c *UDPConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of reading.
func (c *UDPConn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(&c.ep.RdDeadline, &c.ep.Rd, t)
}

// SetWriteDeadline sets the deadline of writing. A write waits while the send buffer is full.
func (c *UDPConn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(&c.ep.WrDeadline, &c.ep.Wr, t)
}

func (c *UDPConn) setDeadline(d *atomic.Int64, w *tcp.Waiter, t time.Time) error {
	if err := c.option(); err != nil {
		return err
	}
	moveDeadline(c.clock, d, w, t)
	return nil
}

// option returns the error of setting an option of a closed socket.
func (c *UDPConn) option() error {
	if c.closed.Load() {
		return &net.OpError{Op: "set", Net: c.network, Addr: c.LocalAddr(), Err: net.ErrClosed}
	}
	return nil
}

// SetReadBuffer limits the memory of datagrams that wait to be read. Each takes a piece of 2, 16 or 64 KiB; the default is 212992 bytes.
func (c *UDPConn) SetReadBuffer(bytes int) error {
	c.ep.SetBuffers(max(bytes, 1), 0)
	return c.option()
}

// SetWriteBuffer limits the memory of datagrams that wait to be sent.
func (c *UDPConn) SetWriteBuffer(bytes int) error {
	c.ep.SetBuffers(0, max(bytes, 1))
	return c.option()
}

// SetDontFragment says that datagrams leave whole or not at all, for programs that look for the path's MTU themselves (RFC 8899), as QUIC's
// do: what is longer than the interface takes is refused with EMSGSIZE, and over IPv4 routers may not cut it (IP_PMTUDISC_PROBE).
func (c *UDPConn) SetDontFragment(on bool) error {
	c.ep.SetWhole(on)
	return c.option()
}

// PathMTU is the longest IP packet, in bytes with its headers, that routers have said to take about datagrams of this socket within the last
// ten minutes, 0 if they have said nothing. Over IPv4 they do only after SetDontFragment. Anybody who has seen a datagram can say so: it
// is for choosing what to probe next.
func (c *UDPConn) PathMTU() int { return c.ep.PathMTU(c.clock.Now()) }

// Close ends the socket. Calls that wait return net.ErrClosed; what was written before is still sent.
func (c *UDPConn) Close() error {
	if c.closed.Swap(true) {
		return c.opError("close", "", c.RemoteAddr(), net.ErrClosed)
	}
	c.ep.Rd.Wake()
	c.ep.Wr.Wake()
	c.rmu.Lock() // the calls that waited have left
	c.wmu.Lock()
	defer c.rmu.Unlock()
	defer c.wmu.Unlock()
	c.st.CloseUDP(c.ep)
	return nil
}

func (c *UDPConn) opError(op, call string, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: c.network, Source: c.LocalAddr(), Addr: addr, Err: callError(call, err)}
}

// callError gives an error number the name of its system call, as package net has it.
func callError(call string, err error) error {
	if e, ok := err.(syscall.Errno); ok {
		return os.NewSyscallError(call, e)
	}
	return err
}

package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Dialer opens connections over a stack, like net.Dialer. Its zero value with a Stack has net's defaults.
type Dialer struct {
	Stack     *stack.Stack
	LocalAddr netip.AddrPort // optional: the stack chooses what is not given, address or port
	Timeout   time.Duration  // of the whole dial; 0: none but TCP's own
	Deadline  time.Time      // of the whole dial; the earliest of Timeout, Deadline and the context's counts
	// KeepAlive is the period of keepalive: 0 means 15 s, less than 0 none. KeepAliveConfig goes before it, if its Enable is set.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	// FastOpen sends the first Write with the SYN to servers that have given a cookie, and asks others for one (RFC 7413). To the former
	// Dial then returns at once, and what it would have said, the first Read or Write says. The server may get what is in the first Write
	// twice.
	FastOpen bool
	// Control, if set, is called before a connection is opened and may change what it begins with.
	Control func(network, address string, o *Options) error
	// Resolver looks up host names; without it there are addresses only. A name's addresses of one family are tried in turn, those of the other
	// family beside them after FallbackDelay: 0 means 300 ms, less than 0 that all are tried in turn.
	Resolver      Resolver
	FallbackDelay time.Duration
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to address, such as "10.0.0.2:80". network is "tcp" or "udp", with or without a 4 or 6 behind. It fits http.Transport.DialContext.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := d.withDeadline(ctx)
	defer cancel()
	if isUDP(network) {
		return d.dialUDP(ctx, network, address)
	}
	aps, err := resolve(ctx, d.Resolver, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return happily(ctx, aps, d.FallbackDelay, func(ctx context.Context, ap netip.AddrPort) (net.Conn, error) {
		c, err := d.dial(ctx, network, ap)
		if err != nil {
			return nil, err // no Conn at all
		}
		return c, nil
	})
}

// DialAddr connects to an address that is parsed already. When ctx ends first, the attempt is given up.
func (d *Dialer) DialAddr(ctx context.Context, ap netip.AddrPort) (*Conn, error) {
	ctx, cancel := d.withDeadline(ctx)
	defer cancel()
	return d.dial(ctx, "tcp", ap)
}

func (d *Dialer) dial(ctx context.Context, network string, ap netip.AddrPort) (*Conn, error) {
	fail := func(call string, err error) (*Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Source: tcpAddr(d.LocalAddr), Addr: net.TCPAddrFromAddrPort(ap), Err: sysError(call, err)}
	}
	if err := ctx.Err(); err != nil {
		return fail("", contextError(err))
	}
	o := newOptions(d.Stack, d.KeepAlive, d.KeepAliveConfig)
	o.FastOpen = d.FastOpen
	if d.Control != nil {
		if err := d.Control(network, ap.String(), o); err != nil {
			return fail("", err)
		}
	}
	setup, err := o.setup(d.Stack)
	if err != nil {
		return fail("setsockopt", err)
	}
	if z := ap.Addr().Zone(); z != "" && z != d.Stack.Port().Info().Name {
		return fail("connect", tcp.NoRoute) // another port's link
	}
	c, err := d.Stack.ConnectAs(d.LocalAddr, ap, setup)
	if errors.Is(err, stack.ErrTentative) { // for a second or two after the start
		if err := d.Stack.Settled(ctx); err != nil {
			return fail("", contextError(err))
		}
		c, err = d.Stack.ConnectAs(d.LocalAddr, ap, setup)
	}
	if err != nil {
		if d.LocalAddr != (netip.AddrPort{}) && (errors.Is(err, tcp.PortInUse) || errors.Is(err, tcp.NotLocal)) {
			return fail("bind", err)
		}
		return fail("connect", err)
	}
	for !c.Up() {
		c.Wr.Arm()
		if c.Up() {
			c.Wr.Disarm()
		} else if !c.Wr.WaitOr(ctx.Done()) {
			c.Abort()
			return fail("", contextError(ctx.Err()))
		}
	}
	if e := c.Err(); e != tcp.OK {
		c.Close() // frees what is left of it
		return fail("connect", e)
	}
	i, _ := networkIndex(network) // resolve knows it
	return newConn(d.Stack, c, i), nil
}

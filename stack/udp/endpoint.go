package udp

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Endpoint is a UDP socket. The Try methods belong to applications: one goroutine reads and one writes at a time; they never
// block. Who wants to wait arms Rd or Wr.
type Endpoint struct {
	eng *Engine // its home
	cfg Config

	local, remote         wire.Addr // local unspecified: any
	localPort, remotePort uint16    // remotePort 0: not connected

	// Rd and Wr are where a reader and a writer wait. A deadline is a plugins.Time, 0 for none; who waits calls DeadlineChanged first.
	Rd, Wr                 tcp.Waiter
	RdDeadline, WrDeadline atomic.Int64

	rx, tx queue
	err    atomic.Uint32 // syscall.Errno that the next call returns
	down   atomic.Bool   // the stack has ended

	broadcast, whole atomic.Bool
	ttl, tos         atomic.Uint32

	pathMTU   atomic.Uint32 // what a router has said; until pathUntil
	pathUntil atomic.Int64

	mailed   atomic.Bool
	mailNext *Endpoint

	// The home worker's.
	guest   tcp.Guest
	slot    uint32
	leaving bool

	in, out, drops atomic.Uint64
}

// Config describes an endpoint.
type Config struct {
	Local  netip.AddrPort // an address of the stack, or unspecified; the port is not 0
	Remote netip.AddrPort // optional: only from there it receives, and there it sends
	Only4  bool           // an unspecified Local stands for the addresses of one version of IP only
	Only6  bool
	// Space is the room for data in a datagram to an address, bytes, or in one that is not to be cut: beyond it it is refused.
	Space func(dst wire.Addr, whole bool) int
	// Check says whether there is a way to an address, and whether it is a broadcast address.
	Check func(dst wire.Addr) (broadcast bool, err error)
	// Own says whether packets may come to an address, and leave from it.
	Own func(a wire.Addr) bool
}

// DefaultTTL is the time to live of datagrams (RFC 1700), Linux's too.
const DefaultTTL = 64

// NewEndpoint makes an endpoint that no engine knows yet.
func NewEndpoint(cfg Config) *Endpoint {
	ep := &Endpoint{
		cfg: cfg, local: wire.AddrFrom(cfg.Local.Addr()), localPort: cfg.Local.Port(), remotePort: cfg.Remote.Port(),
	}
	if cfg.Remote.IsValid() {
		ep.remote = wire.AddrFrom(cfg.Remote.Addr())
	}
	ep.rx.limit.Store(DefaultBuffer)
	ep.tx.limit.Store(DefaultBuffer)
	ep.ttl.Store(DefaultTTL)
	return ep
}

// match is how closely a datagram matches, 0 if it does not.
func (ep *Endpoint) match(src, dst wire.Addr, srcPort uint16) int {
	score := 1
	switch {
	case ep.local == dst:
		score += 2
	case !ep.local.IsZero(), dst.Is4() && ep.cfg.Only6, !dst.Is4() && ep.cfg.Only4:
		return 0
	}
	if ep.remotePort != 0 {
		if ep.remotePort != srcPort || ep.remote != src {
			return 0
		}
		score += 4
	}
	return score
}

// overlaps reports whether two endpoints of one port would want the same datagrams, so that the second one is refused.
func (ep *Endpoint) overlaps(o *Endpoint) bool {
	a, b := ep.local, o.local
	if !a.IsZero() && !b.IsZero() {
		return a == b
	}
	takes := func(x *Endpoint, v4 bool) bool {
		if !x.local.IsZero() {
			return x.local.Is4() == v4
		}
		return v4 && !x.cfg.Only6 || !v4 && !x.cfg.Only4
	}
	return takes(ep, true) && takes(o, true) || takes(ep, false) && takes(o, false)
}

// Local is this end's address, unspecified if it is not bound to one.
func (ep *Endpoint) Local() netip.AddrPort { return ep.cfg.Local }

// Remote is the other end's address, not valid if the endpoint is not connected.
func (ep *Endpoint) Remote() netip.AddrPort { return ep.cfg.Remote }

// Connected reports whether the endpoint has one peer.
func (ep *Endpoint) Connected() bool { return ep.remotePort != 0 }

// SetBuffers limits the memory of what waits to be read and to be sent, in bytes; 0 leaves a limit as it is.
func (ep *Endpoint) SetBuffers(read, write int) {
	if read != 0 {
		ep.rx.limit.Store(int64(min(max(read, minBuffer), maxBuffer)))
	}
	if write != 0 {
		ep.tx.limit.Store(int64(min(max(write, minBuffer), maxBuffer)))
	}
}

// SetBroadcast allows or forbids sending to broadcast addresses (RFC 1122, 3.3.6). By default it is forbidden.
func (ep *Endpoint) SetBroadcast(on bool) { ep.broadcast.Store(on) }

// SetTTL sets the time to live, or hop limit, of what is sent, and SetTOS the type of service, or traffic class.
func (ep *Endpoint) SetTTL(ttl uint8) { ep.ttl.Store(uint32(ttl)) }

// SetTOS sets the type of service, or traffic class, of what is sent.
func (ep *Endpoint) SetTOS(tos uint8) { ep.tos.Store(uint32(tos)) }

// SetWhole says that datagrams leave whole or not at all: with DF over IPv4, and without fragments. For applications that look for the
// path's MTU themselves (RFC 8899, 3): what is longer than the interface takes is refused with EMSGSIZE, and what routers say of longer ones is
// in PathMTU; it does not keep the application from sending probes.
func (ep *Endpoint) SetWhole(on bool) { ep.whole.Store(on) }

// PathMTU is the longest IP packet that the routers on the way take, bytes, as far as they have said about datagrams of this endpoint
// within the ten minutes before now; 0 if they have said nothing. Over IPv4 they say it with SetWhole only.
func (ep *Endpoint) PathMTU(now plugins.Time) int {
	if now >= plugins.Time(ep.pathUntil.Load()) {
		return 0
	}
	return int(ep.pathMTU.Load())
}

// pending takes the error that has come in meanwhile, as SO_ERROR does.
func (ep *Endpoint) pending() error {
	if ep.err.Load() == 0 {
		return nil
	}
	if e := ep.err.Swap(0); e != 0 {
		return syscall.Errno(e)
	}
	return nil
}

// TryRead copies the next datagram to p, as much as fits; what does not is lost. n is what was copied and size the datagram's length.
// Errors of datagrams sent before come first, each once: syscall.ECONNREFUSED and others (connected endpoints only).
func (ep *Endpoint) TryRead(p []byte) (n, size int, from netip.AddrPort, err error) {
	n, size, from, _, err = ep.TryReadMsg(p)
	return n, size, from, err
}

// TryReadMsg is TryRead, and says which address the datagram was sent to: one of the stack's, or a broadcast address.
func (ep *Endpoint) TryReadMsg(p []byte) (n, size int, from netip.AddrPort, to netip.Addr, err error) {
	if err := ep.pending(); err != nil {
		return 0, 0, from, to, err
	}
	c := ep.rx.front()
	if c == nil {
		if ep.down.Load() {
			return 0, 0, from, to, net.ErrClosed
		}
		return 0, 0, from, to, ErrWouldBlock
	}
	addr, port, local, data := content(c)
	n, size = copy(p, data), len(data)
	ep.rx.pop(ep.eng.env.Arena)
	return n, size, netip.AddrPortFrom(addr.Netip(), port), local.Netip(), nil
}

// TryWrite sends p to an address; to the peer if it is not valid. Errors are syscall.EDESTADDRREQ without any, EMSGSIZE for what does
// not fit into a packet, EACCES for a broadcast that is not allowed, ENETUNREACH without a route, ENOBUFS without memory, and those
// that TryRead may return.
func (ep *Endpoint) TryWrite(p []byte, to netip.AddrPort) error {
	return ep.TryWriteMsg(p, netip.Addr{}, to)
}

// TryWriteMsg is TryWrite from an address of the stack, which must be the endpoint's, if it has one; EINVAL says that it cannot be. One that
// is not valid is chosen.
func (ep *Endpoint) TryWriteMsg(p []byte, from netip.Addr, to netip.AddrPort) error {
	if ep.down.Load() {
		return net.ErrClosed
	}
	if err := ep.pending(); err != nil {
		return err
	}
	dst, port := ep.remote, ep.remotePort
	if to.IsValid() {
		dst, port = wire.AddrFrom(to.Addr()), to.Port()
	}
	if port == 0 {
		if to.IsValid() {
			return syscall.EINVAL
		}
		return syscall.EDESTADDRREQ
	}
	if dst.Is4() && (ep.cfg.Only6 || !ep.local.IsZero() && !ep.local.Is4()) || !dst.Is4() && (ep.cfg.Only4 || ep.local.Is4() && !ep.local.IsZero()) {
		return syscall.EAFNOSUPPORT
	}
	src := ep.local
	if from.IsValid() {
		a := wire.AddrFrom(from)
		if a.Is4() != dst.Is4() || !src.IsZero() && a != src || !ep.cfg.Own(a) {
			return syscall.EINVAL
		}
		src = a
	}
	broadcast, err := ep.cfg.Check(dst)
	switch {
	case err != nil:
		return err
	case broadcast && !ep.broadcast.Load():
		return syscall.EACCES
	case len(p) > ep.cfg.Space(dst, ep.whole.Load()):
		return syscall.EMSGSIZE
	}
	class := mem.ClassFor(len(p))
	if !ep.tx.reserve(class) {
		return ErrWouldBlock
	}
	c := ep.eng.env.Arena.Get(class)
	if c == nil {
		ep.tx.release(class)
		return syscall.ENOBUFS
	}
	fill(c, dst, port, src, p)
	ep.tx.push(c)
	ep.eng.mail.push(ep)
	return nil
}

// Sent returns ErrWouldBlock while datagrams wait to be sent, and nil when there are none.
func (ep *Endpoint) Sent() error {
	switch {
	case ep.down.Load():
		return net.ErrClosed
	case ep.tx.bytes.Load() > 0:
		return ErrWouldBlock
	}
	return nil
}

// DeadlineChanged tells the worker about deadlines, so that it wakes who waits.
func (ep *Endpoint) DeadlineChanged() { ep.eng.mail.push(ep) }

// Fail has the next call return an error, and wakes who waits.
func (ep *Endpoint) Fail(e syscall.Errno) {
	ep.err.Store(uint32(e))
	ep.Rd.Wake()
	ep.Wr.Wake()
}

// IsHome reports whether e is the endpoint's home.
func (ep *Endpoint) IsHome(e *Engine) bool { return ep.eng == e }

// Free frees what was not read, after the last engine has removed the endpoint. ended means that the home engine has stopped, so that
// it will not send what was written either.
func (ep *Endpoint) Free(ended bool) {
	ep.rx.drain(ep.eng.env.Arena)
	if ended {
		ep.tx.drain(ep.eng.env.Arena)
	}
}

// Info are an endpoint's figures.
type Info struct {
	Local, Remote        netip.AddrPort
	RecvQueue, SendQueue int64  // bytes of memory
	RecvLimit, SendLimit int64  // bytes of memory
	In, Out              uint64 // datagrams
	Drops                uint64 // datagrams that found the receive queue full, or no memory
	Worker               int    // its home
}

// Info returns the figures. Any goroutine may ask.
func (ep *Endpoint) Info() Info {
	return Info{
		Local: ep.cfg.Local, Remote: ep.cfg.Remote, RecvQueue: ep.rx.bytes.Load(), SendQueue: ep.tx.bytes.Load(),
		RecvLimit: ep.rx.limit.Load(), SendLimit: ep.tx.limit.Load(), In: ep.in.Load(), Out: ep.out.Load(), Drops: ep.drops.Load(),
	}
}

// deadline is when a wait ends, as an atomic holds it.
func deadline(d *atomic.Int64) plugins.Time {
	if t := d.Load(); t != 0 {
		return plugins.Time(t)
	}
	return plugins.Never
}

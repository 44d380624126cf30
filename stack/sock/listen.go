package sock

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Listener accepts connections. It implements net.Listener and has the methods of *net.TCPListener but SyscallConn and File.
type Listener struct {
	st       *stack.Stack
	l        *tcp.Listener
	addr     *net.TCPAddr
	network  uint8
	mu       sync.Mutex // one goroutine waits at a time
	deadline alarm
	closed   atomic.Bool
}

var _ net.Listener = (*Listener)(nil)

// DefaultBacklog is the number of connections that may wait to be accepted.
const DefaultBacklog = 4096

// ListenConfig makes listeners, like net.ListenConfig. Its zero value with a Stack has net's defaults.
type ListenConfig struct {
	Stack   *stack.Stack
	Backlog int // connections that may wait to be accepted; default DefaultBacklog
	// KeepAlive is the period of keepalive of accepted connections: 0 means 15 s, less than 0 none. KeepAliveConfig goes before it, if
	// its Enable is set.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	// Control, if set, is called before the listener is made and may change what its connections begin with.
	Control func(network, address string, o *Options) error
	// Resolver looks up host names; without it there are addresses only.
	Resolver Resolver
}

// Listen listens on an address of the stack, such as "10.0.0.1:80", ":80" or "10.0.0.1:0", where port 0 takes a free one, with net's
// defaults. network is "tcp", "tcp4" or "tcp6".
func Listen(st *stack.Stack, network, address string) (*Listener, error) {
	lc := ListenConfig{Stack: st}
	return lc.Listen(context.Background(), network, address)
}

// ListenAddr is Listen for an address that is parsed already, with the given backlog.
func ListenAddr(st *stack.Stack, ap netip.AddrPort, backlog int) (*Listener, error) {
	lc := ListenConfig{Stack: st, Backlog: max(backlog, 1)}
	return lc.listen("tcp", ap.String(), ap)
}

// Listen listens on an address of the stack. ctx bounds the look-up of a name only.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (*Listener, error) {
	aps, err := resolve(ctx, lc.Resolver, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return lc.listen(network, address, aps[0])
}

func (lc *ListenConfig) listen(network, address string, ap netip.AddrPort) (*Listener, error) {
	fail := func(err error) (*Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: net.TCPAddrFromAddrPort(ap), Err: sysError("bind", err)}
	}
	if network == "tcp" && ap.Addr().IsUnspecified() { // any of both families, as in package net
		ap = netip.AddrPortFrom(netip.Addr{}, ap.Port())
	}
	o := newOptions(lc.Stack, lc.KeepAlive, lc.KeepAliveConfig)
	if lc.Control != nil {
		if err := lc.Control(network, address, o); err != nil {
			return fail(err)
		}
	}
	setup, err := o.setup(lc.Stack)
	if err != nil {
		return fail(err)
	}
	backlog := lc.Backlog
	if backlog == 0 {
		backlog = DefaultBacklog
	}
	l, err := lc.Stack.ListenAs(ap, backlog, network == "tcp6", setup)
	if err != nil {
		return fail(err)
	}
	i, _ := networkIndex(network) // resolve knows it
	return &Listener{st: lc.Stack, l: l, addr: net.TCPAddrFromAddrPort(l.Addr()), network: i}, nil
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
	var one [1]*tcp.Conn
	if _, err := l.accept(one[:]); err != nil {
		return nil, err
	}
	return newConn(l.st, one[0], l.network), nil
}

// AcceptBatch waits for connections and takes up to len(dst) of them, as many as there are; it returns their number.
func (l *Listener) AcceptBatch(dst []*Conn) (int, error) {
	var batch [64]*tcp.Conn
	n, err := l.accept(batch[:min(len(dst), len(batch))])
	for i, c := range batch[:n] {
		dst[i] = newConn(l.st, c, l.network)
	}
	return n, err
}

func (l *Listener) accept(dst []*tcp.Conn) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for armed := false; ; {
		n, err := 0, error(nil)
		if l.deadline.passed() && !l.closed.Load() {
			err = os.ErrDeadlineExceeded
		} else if n, err = l.l.TryAcceptBatch(dst); err == tcp.Aborted {
			err = net.ErrClosed
		}
		switch {
		case err != tcp.ErrWouldBlock:
			if armed {
				l.l.Ready.Disarm()
			}
			if err != nil {
				err = l.opError("accept", err)
			}
			return n, err
		case !armed:
			l.l.Ready.Arm() // then look once more
			armed = true
		default:
			l.l.Ready.Wait()
			armed = false
		}
	}
}

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: networks[l.network], Addr: l.addr, Err: err}
}

// SetDeadline sets the time after which Accept fails with os.ErrDeadlineExceeded. The zero time means none; calls that wait take it up.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.closed.Load() {
		return l.opError("set", net.ErrClosed)
	}
	l.deadline.set(t, l.l.Ready.Wake)
	return nil
}

// Close stops listening. Connections that were not accepted are reset.
func (l *Listener) Close() error {
	if l.closed.Swap(true) {
		return l.opError("close", net.ErrClosed)
	}
	l.deadline.set(time.Time{}, l.l.Ready.Wake)
	l.st.CloseListener(l.l)
	return nil
}

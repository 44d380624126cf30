package tcp

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Listener takes connections for one local address and port. All workers of a stack share it: each accepts the flows that come
// to it.
//
// The SYN queue holds as many half-open connections as the backlog says, at least 128. When it is full, SYNs are answered with cookies
// (see SynCookies). The accept queue holds backlog connections. When it is full, SYNs and the last ACKs of handshakes are dropped:
// both ends try again for as long as their retransmissions last.
type Listener struct {
	addr  wire.Addr // zero: any; 0.0.0.0: any of IPv4
	only  bool      // an addr of zero means IPv6 only
	port  uint16
	max   int
	setup *Setup // of its connections; nil: nothing of their own

	Ready Waiter // woken when Accept may succeed

	mu     sync.Mutex
	queue  []*Conn // established, not accepted yet
	closed bool
	syns   atomic.Int32   // the SYN queue: half-open connections
	fast   atomic.Int32   // connections that are open before their handshake is over, and those killed
	killed []plugins.Time // of those that were reset: when their place is free again
}

// NewListener makes a listener for addr (the zero Addr means any address of the host, 0.0.0.0 any of IPv4) with room for backlog
// connections that are not accepted yet. Register it with every worker's engine.
func NewListener(addr wire.Addr, port uint16, backlog int) *Listener {
	return &Listener{addr: addr, port: port, max: max(backlog, 1)}
}

// SetUp makes the listener's connections begin with s. Call it before the listener is registered.
func (l *Listener) SetUp(s *Setup) { l.setup = s }

// tuning is what l's connections begin with.
func (l *Listener) tuning() *Tuning {
	if l.setup == nil || l.setup.Tuning == nil {
		return &noTuning
	}
	return l.setup.Tuning
}

// Only6 makes a listener for any address one for IPv6 alone (RFC 3493, 5.3). Call it before the listener is registered.
func (l *Listener) Only6() { l.only = true }

// Addr is the address that the listener was made for; "::" means any, of both families.
func (l *Listener) Addr() netip.AddrPort { return netip.AddrPortFrom(l.addr.Netip(), l.port) }

// hears reports whether the listener is for any address of a family.
func (l *Listener) hears(v4 bool) bool {
	if v4 {
		return l.addr.IsZero() && !l.only
	}
	return l.addr == wire.Addr{}
}

// TryAccept returns a connection, ErrWouldBlock, or Aborted after Close.
func (l *Listener) TryAccept() (*Conn, error) {
	var one [1]*Conn
	_, err := l.TryAcceptBatch(one[:])
	return one[0], err
}

// TryAcceptBatch takes as many connections as wait and fit into dst, and returns their number. Errors are TryAccept's.
func (l *Listener) TryAcceptBatch(dst []*Conn) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, Aborted
	}
	if len(l.queue) == 0 {
		return 0, ErrWouldBlock
	}
	n := copy(dst, l.queue)
	clear(l.queue[:n])
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return n, nil
}

// Pending is the number of connections that wait to be accepted.
func (l *Listener) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// Close makes Accept fail and resets what was not accepted. Take the listener out of the engines first.
func (l *Listener) Close() {
	l.mu.Lock()
	q := l.queue
	l.queue, l.closed = nil, true
	l.mu.Unlock()
	for _, c := range q {
		c.Abort()
	}
	l.Ready.Wake()
}

// offer queues an established connection. It returns false if the queue is full or the listener closed.
func (l *Listener) offer(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queue) >= l.max {
		return false
	}
	l.queue = append(l.queue, c)
	return true
}

func (l *Listener) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed || len(l.queue) >= l.max
}

// overlaps reports whether there are addresses that both listeners hear.
func (l *Listener) overlaps(o *Listener) bool {
	for _, v4 := range [...]bool{true, false} {
		if l.hears(v4) && (o.hears(v4) || !o.addr.IsZero() && o.addr.Is4() == v4) {
			return true
		}
	}
	return l.addr == o.addr && !l.addr.IsZero()
}

// Listen registers l. It fails with PortInUse if another listener has the port and an address of l's, as in Linux. Connections that have
// the port go on, whatever their state (RFC 9293, MUST-41 and MUST-42).
func (e *Engine) Listen(l *Listener) error {
	for _, o := range e.listeners {
		if o.port == l.port && (l.overlaps(o) || o.overlaps(l)) {
			return PortInUse
		}
	}
	e.listeners = append(e.listeners, l)
	return nil
}

// Unlisten takes l out. Connections in the handshake are dropped.
func (e *Engine) Unlisten(l *Listener) {
	for i, o := range e.listeners {
		if o == l {
			e.listeners = append(e.listeners[:i:i], e.listeners[i+1:]...)
			break
		}
	}
	for i := range e.slots {
		switch en := &e.slots[i]; {
		case en.half != nil && en.half.listener == l:
			e.dropHalf(uint32(i))
		case en.conn != nil && en.conn.listener == l && en.conn.state == SynReceived:
			e.destroy(en.conn, Aborted)
		}
	}
}

// listener finds the listener for a tuple. There is at most one.
func (e *Engine) listener(k *Tuple) *Listener {
	for _, l := range e.listeners {
		if l.port == k.LocalPort && (l.addr == k.Local || l.hears(k.Local.Is4())) {
			return l
		}
	}
	return nil
}

// listenSegment is the LISTEN state (RFC 9293, 3.10.7.2).
func (e *Engine) listenSegment(l *Listener, k *Tuple, t *wire.TCP) {
	var o wire.Options
	e.readOptions(t, &o)
	switch {
	case t.Flags&wire.RST != 0:
	case t.Flags&wire.ACK != 0:
		if !e.cookieAck(l, k, t, &o) {
			e.refuse(k, t)
		}
	case t.Flags&wire.SYN != 0 && t.Flags&wire.FIN == 0:
		e.passiveOpen(l, k, t, &o, 0)
	}
}

// passiveOpen answers a SYN. A full accept queue drops it: the peer tries again, when there may be room. A full SYN queue has it
// answered by a cookie, or dropped if there are to be none.
func (e *Engine) passiveOpen(l *Listener, k *Tuple, t *wire.TCP, o *wire.Options, minISS uint32) {
	full := int(l.syns.Load()) >= max(l.max, minSynBacklog)
	if full {
		e.Stats.ReqQFull++
	}
	if l.full() {
		e.Stats.ListenOverflows++
		e.Stats.ListenDrops++
		return
	}
	if full && e.cfg.SynCookies == CookiesOff || e.env.Budget.Level() == mem.Full {
		e.Stats.ListenDrops++
		return
	}
	s := e.readSYN(k, t, o)
	s.ecn, s.ipECN = e.ecnMode(l.setup).takeUp(t.Flags), e.ipECN
	if (full || e.cfg.SynCookies == CookiesAlways) && minISS == 0 {
		e.sendCookie(l, k, &s)
		return
	}
	iss := minISS
	if iss == 0 {
		iss = e.isn(k)
	}
	if e.fastSyn(l, k, t, o, &s, iss) {
		return
	}
	if slot, ok := e.newHalf(l, k, &s, iss); ok {
		e.sendSynAck(slot)
	} else {
		e.Stats.ListenDrops++
	}
}

// minSynBacklog keeps small backlogs from refusing a burst of SYNs.
const minSynBacklog = 128

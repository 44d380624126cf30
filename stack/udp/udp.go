// Package udp is UDP (RFC 768; RFC 1122, 4.1): endpoints, what they receive and send, and the table that finds them.
//
// An Endpoint belongs to a stack. Each worker has an Engine with a table of its own that holds the stack's endpoints, so that a datagram
// is delivered by whichever worker gets it, without a lock and without a way to another worker. One of the engines is the
// endpoint's home: what it sends leaves there, and its deadlines are timed there.
//
// The datagrams that wait are chunks of the stack's arena, one each, charged to the memory budget: a reader that does not
// read costs its receive buffer at most, and what does not fit is dropped and counted.
//
// Errors are those of the system calls (syscall.ECONNREFUSED, EMSGSIZE …), ErrWouldBlock, and net.ErrClosed.
package udp

import (
	"errors"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/timer"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ErrWouldBlock says that there is nothing to read, or no room to write.
var ErrWouldBlock = errors.New("udp: would block")

// Buffer limits in bytes of memory, not of payload: a datagram takes a chunk of at least 2 KiB. The defaults are Linux's.
const (
	DefaultBuffer = 212992
	minBuffer     = 2 * 2048
	maxBuffer     = 1 << 30
)

// Link sends datagrams; the worker implements it.
type Link interface {
	// QueueUDP queues an endpoint, which has datagrams to send, for its turn.
	QueueUDP(g *tcp.Guest)
	SendUDP(d *Datagram) Sent
}

// Datagram is one that is to be sent. Its data is only borrowed.
type Datagram struct {
	Src, Dst         wire.Addr // Src unspecified: the link chooses
	SrcPort, DstPort uint16
	TTL, TOS         uint8
	MTU              int  // of the path, where that is known to be less than the link's; else 0
	Whole            bool // never in fragments
	Data             []byte
}

// Sent is what became of a datagram.
type Sent uint8

// Results of SendUDP.
const (
	SentOK   Sent = iota
	SentFull      // no room in the FIFO, or no buffer: it stays, and is tried again
	SentLost      // it cannot be sent: no route any more
)

// Env is what an engine needs from its worker.
type Env struct {
	Arena  *mem.Arena
	Link   Link
	Wake   func(*tcp.Waiter) // wakes an application goroutine
	Kicked func()            // an application has left the first message in an empty mailbox
}

// Stats are an engine's counters.
type Stats struct {
	InDatagrams  uint64 // delivered to endpoints
	NoPorts      uint64 // for which there was no endpoint
	InErrors     uint64 // malformed, or with a wrong checksum
	RcvbufErrors uint64 // dropped because a receive queue was full
	MemErrors    uint64 // dropped for want of memory
	OutDatagrams uint64
	SndbufErrors uint64 // accepted from the application and not sent, because the route has gone
	IcmpErrors   uint64 // told to connected endpoints
}

// Engine is one worker's UDP. It is passive, as tcp.Engine is: the worker calls Begin, Input, and then Run; what is to be sent leaves with
// connections' segments (tcp.Guest).
type Engine struct {
	env   Env
	now   plugins.Time
	wheel *timer.Wheel
	mail  mailbox
	ports map[uint16][]*Endpoint

	home []*Endpoint // by slot: those whose home this is
	free []uint32
	due  []uint32
	out  Datagram // the one that is being sent

	Stats Stats
}

// New makes an engine. now is the present time.
func New(env Env, now plugins.Time) *Engine {
	e := &Engine{env: env, now: now, wheel: timer.New(now), ports: map[uint16][]*Endpoint{}}
	e.mail.kicked = env.Kicked
	return e
}

// Begin starts a turn.
func (e *Engine) Begin(now plugins.Time) { e.now = now }

// Idle reports whether Run has nothing to do now.
func (e *Engine) Idle() bool { return !e.Kicked() && e.wheel.Next() > e.now }

// Kicked reports whether an application has left a message.
func (e *Engine) Kicked() bool { return e.mail.head.Load() != nil }

// Deadline is the next time at which Run has something to do; Never if there is none.
func (e *Engine) Deadline() plugins.Time { return e.wheel.Next() }

// Input delivers a datagram that was sent to dst, which is an address of this host or a broadcast address. It reports whether there is
// an endpoint for it; if its queue was full, drop says so.
func (e *Engine) Input(src, dst wire.Addr, u *wire.UDP) (found bool, drop wire.Drop) {
	ep := e.Find(src, dst, u)
	if ep == nil {
		e.Stats.NoPorts++
		return false, wire.DropUDPPort
	}
	return true, e.deliver(ep, src, dst, u)
}

// Find returns the endpoint that matches a datagram most closely.
func (e *Engine) Find(src, dst wire.Addr, u *wire.UDP) (best *Endpoint) {
	most := 0
	for _, ep := range e.ports[u.DstPort] {
		if s := ep.match(src, dst, u.SrcPort); s > most {
			best, most = ep, s
		}
	}
	return best
}

// ICMPError tells the endpoint that sent a datagram from k.Local to k.Remote that it cannot be delivered. Only connected endpoints are
// told, as Linux does it: others could not say which of their datagrams it was (RFC 1122, 4.1.3.3).
func (e *Engine) ICMPError(local, remote wire.Addr, localPort, remotePort uint16, typ, code uint8) {
	errno := errnoOf(remote.Is4(), typ, code)
	if errno == 0 {
		return
	}
	for _, ep := range e.ports[localPort] {
		if ep.remotePort == remotePort && ep.remote == remote && (ep.local == local || ep.local.IsZero()) {
			ep.err.Store(uint32(errno))
			e.Stats.IcmpErrors++
			e.env.Wake(&ep.Rd)
			e.env.Wake(&ep.Wr)
		}
	}
}

// Add makes the engine deliver to ep.
func (e *Engine) Add(ep *Endpoint) {
	e.ports[ep.localPort] = append(e.ports[ep.localPort], ep)
}

// Adopt makes the engine ep's home.
func (e *Engine) Adopt(ep *Endpoint) {
	ep.eng, ep.guest.Flow = e, (*sender)(ep)
	if n := len(e.free); n > 0 {
		ep.slot = e.free[n-1]
		e.free = e.free[:n-1]
		e.home[ep.slot] = ep
		return
	}
	ep.slot = uint32(len(e.home))
	e.home = append(e.home, ep)
	e.wheel.Grow(len(e.home))
}

// Remove ends delivery to ep. At its home the datagrams that were written before still leave.
func (e *Engine) Remove(ep *Endpoint) {
	l := e.ports[ep.localPort]
	for i := range l {
		if l[i] == ep {
			l[i] = l[len(l)-1]
			l[len(l)-1] = nil
			l = l[:len(l)-1]
			break
		}
	}
	if len(l) == 0 {
		delete(e.ports, ep.localPort)
	} else {
		e.ports[ep.localPort] = l
	}
	if ep.eng == e {
		ep.leaving = true
		e.wheel.Stop(ep.slot)
		e.env.Link.QueueUDP(&ep.guest)
	}
}

// release ends the engine's part of an endpoint that has left.
func (e *Engine) release(ep *Endpoint) {
	ep.leaving = false
	e.home[ep.slot] = nil
	e.free = append(e.free, ep.slot)
}

// Shutdown ends all endpoints, at the end of the worker: calls that wait return, and what was not sent is gone.
func (e *Engine) Shutdown() {
	e.mail.take()
	for _, ep := range e.home {
		if ep != nil {
			ep.down.Store(true)
			e.dropUnsent(ep)
			ep.Rd.Wake()
			ep.Wr.Wake()
		}
	}
	e.home = nil
	clear(e.ports)
}

// Endpoints calls f with each endpoint whose home this is.
func (e *Engine) Endpoints(f func(*Endpoint)) {
	for _, ep := range e.home {
		if ep != nil && !ep.leaving {
			f(ep)
		}
	}
}

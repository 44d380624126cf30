package tcp

import (
	"encoding/binary"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

const (
	// fastCookieLen is the length of the cookies that we give (as Linux does).
	fastCookieLen = 8
	// fastCookiePeriod is how often the key of cookies changes: a cookie is good in the period in which it was given and in the next.
	fastCookiePeriod = time.Hour
	// fastKilled is how long a connection that was reset before its handshake was over keeps its place, since whoever has a cookie and
	// a spoofed address could otherwise have new ones without end (RFC 7413, 5.1).
	fastKilled = 60 * time.Second
)

// fastCookie is the cookie of a peer: a keyed hash of the two addresses (RFC 7413, 4.1.2), age periods ago.
func (e *Engine) fastCookie(k *Tuple, age uint64) (b [wire.MaxCookie]byte) {
	a, bb, c, d, _ := k.words()
	period := uint64(e.now/plugins.Time(fastCookiePeriod)) - age
	binary.LittleEndian.PutUint64(b[:], e.env.Keys.FastOpen.siphash(a, bb, c, d, period))
	return b
}

// fastQueue is how many connections to l may be open before their handshake is over; 0: no Fast Open.
func (e *Engine) fastQueue(l *Listener) int {
	if l.setup != nil && l.setup.FastOpenQueue != 0 {
		return max(l.setup.FastOpenQueue, 0)
	}
	return e.cfg.FastOpenQueue
}

// fastSyn takes a SYN with a Fast Open option (RFC 7413, 4.1.3 and 4.2.2). It returns true if that has opened a connection; else the SYN
// is one like others, whose data is not taken, and the SYN-ACK has a cookie if the peer has no good one.
func (e *Engine) fastSyn(l *Listener, k *Tuple, t *wire.TCP, o *wire.Options, s *synInfo, iss uint32) bool {
	limit := e.fastQueue(l)
	if o.Set&wire.OptFastOpen == 0 || limit == 0 {
		return false
	}
	if o.NCookie == 0 {
		e.Stats.FastOpenCookies++
		s.giveCookie = true
		return false
	}
	old := false
	if good := o.NCookie == fastCookieLen && o.Cookie == e.fastCookie(k, 0); !good {
		old = o.NCookie == fastCookieLen && o.Cookie == e.fastCookie(k, 1)
		s.giveCookie = true
		if !old {
			e.Stats.FastOpenPassiveFails++
			return false
		}
	}
	if !l.fastRoom(limit, e.now) {
		e.Stats.FastOpenOverflows++
		return false
	}
	return e.fastAccept(l, k, t, s, iss)
}

// fastAccept opens a connection by the SYN alone: its data is taken, and the application may answer before the handshake is over.
func (e *Engine) fastAccept(l *Listener, k *Tuple, t *wire.TCP, s *synInfo, iss uint32) bool {
	c := e.newConn(k)
	if c == nil {
		return false
	}
	e.received(c, l, s, iss)
	c.listener = nil
	c.sndUna = iss + 1
	fo := &fastOpen{used: true, pending: true, synAck: true, peer: *s, listener: l}
	c.more().fo = fo
	l.fast.Add(1)
	e.establish(c)
	e.touch(c)
	if len(t.Payload) > 0 {
		data := *t
		data.Seq, data.Flags = s.irs+1, wire.ACK
		e.text(c, &data)
	}
	fo.peer.data = uint16(c.rcvNxt - s.irs - 1)
	e.Stats.PassiveOpens++
	e.Stats.FastOpenPassive++
	if !l.offer(c) {
		e.reset(c)
		e.destroy(c, Aborted)
		return true
	}
	e.env.Wake(&l.Ready)
	c.setTimer(timerState, e.now.Add(rtoInitial))
	return true
}

// sendFastSynAck sends the SYN-ACK of a connection that is open already.
func (e *Engine) sendFastSynAck(c *Conn, fo *fastOpen) bool {
	if !e.synAck(&c.Tuple, &fo.peer, c.iss, e.tsVal(c), fo.tries, c.Tuned()) {
		return false
	}
	fo.synAck = false
	c.count.SegsOut++
	c.ackNow, c.ackPend, c.lastAckSent = false, 0, c.rcvNxt
	c.stopTimer(timerDelAck)
	return true
}

// fastExpired sends the SYN-ACK again, or gives up.
func (e *Engine) fastExpired(c *Conn, fo *fastOpen) {
	if int(fo.tries) >= e.cfg.SynAckRetries {
		e.Stats.AttemptFails++
		e.destroy(c, TimedOut)
		return
	}
	fo.tries++
	if x := c.ecn(); x != nil && fo.tries >= 2 {
		x.ect = false // as for other SYN-ACKs: see sendSynAck
	}
	fo.synAck = true
	c.setTimer(timerState, e.now.Add(min(rtoInitial<<min(fo.tries, 10), rtoMax)))
	e.makeReady(c)
}

// fastGone gives back the place of a connection that ends before its handshake is over.
func (e *Engine) fastGone(c *Conn, why Errno) {
	fo := c.fo()
	if fo == nil || !fo.pending {
		return
	}
	fo.pending = false
	if why == Reset {
		fo.listener.fastReset(e.now.Add(fastKilled))
	} else {
		fo.listener.fast.Add(-1)
	}
}

// fastRoom reports whether fewer than limit connections are open before their handshake is over. Those that were reset count for a time.
func (l *Listener) fastRoom(limit int, now plugins.Time) bool {
	if int(l.fast.Load()) < limit {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.killed) && l.killed[n] <= now {
		n++
	}
	l.killed = l.killed[:copy(l.killed, l.killed[n:])]
	return int(l.fast.Add(-int32(n))) < limit
}

func (l *Listener) fastReset(until plugins.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = append(l.killed, until)
}

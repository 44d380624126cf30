package tcp

import (
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// fastOpen is what a connection keeps that was opened by TCP Fast Open (RFC 7413), or tried to be.
type fastOpen struct {
	used bool // data in the SYN was taken

	// Of a client.
	wait   bool // the SYN waits for the first write
	ask    bool // the SYN has the option: with a cookie, or, to ask for one, without
	n      uint8
	cookie [wire.MaxCookie]byte
	mss    uint16 // the peer's, from when it gave the cookie
	data   uint16 // bytes that the first SYN carried

	// Of a server, until the handshake is over.
	pending  bool
	synAck   bool // the SYN-ACK is due
	tries    uint8
	peer     synInfo
	listener *Listener
}

// fo is the connection's state of Fast Open; nil without.
func (c *Conn) fo() *fastOpen {
	if c.x == nil {
		return nil
	}
	return c.x.fo
}

// askFastOpen prepares an active open by Fast Open (RFC 7413, 4.1.3): with a cookie the SYN waits for data, without it asks for one. A
// peer behind a path that drops SYNs with data is left alone.
func (e *Engine) askFastOpen(c *Conn) {
	p := e.cookies.find(c.Tuple.Remote)
	if p != nil && p.blocked(e.now) {
		return
	}
	fo := &fastOpen{ask: true}
	c.more().fo = fo
	if p != nil && p.n > 0 {
		fo.n, fo.cookie, fo.mss, fo.wait = p.n, p.cookie, p.mss, true
		c.flags.Or(flagUp | flagDeferred)
	}
}

// startFastOpen sends the SYN that waited for data, or for whatever else the application does.
func (e *Engine) startFastOpen(c *Conn) {
	c.fo().wait = false
	c.flags.And(^flagDeferred)
	c.ackNow = true
	c.setTimer(timerState, e.now.Add(rtoInitial))
	e.makeReady(c)
}

// fastSYN adds to a client's first SYN the option, and returns how many bytes of data go with it. A SYN that is sent again has neither
// (RFC 7413, 4.1.3.1).
func (c *Conn) fastSYN(o *wire.Options) (n uint32) {
	fo := c.fo()
	if fo == nil || !fo.ask || c.sndNxt != c.iss {
		return 0
	}
	o.Set |= wire.OptFastOpen
	o.NCookie, o.Cookie = fo.n, fo.cookie
	if fo.n == 0 {
		return 0
	}
	var buf [60]byte
	room := min(uint32(fo.mss), c.mss) - uint32(len(wire.PutOptions(buf[:0], o)))
	n = uint32(min(uint64(room), c.snd.Tail()))
	fo.data = uint16(n)
	return n
}

// fastAnswer takes the SYN-ACK's part in Fast Open: a cookie, and how much of the SYN's data was taken. The rest is sent as if it
// had never been (RFC 7413, 4.1.3).
func (e *Engine) fastAnswer(c *Conn, t *wire.TCP, o *wire.Options, mss uint16) {
	fo := c.fo()
	if fo == nil {
		return
	}
	p := e.cookies.find(c.Tuple.Remote)
	if o.Set&wire.OptFastOpen != 0 && o.NCookie > 0 && fo.ask {
		p = e.cookies.store(c.Tuple.Remote)
		p.n, p.cookie, p.mss = o.NCookie, o.Cookie, mss
	}
	if fo.data == 0 {
		return
	}
	fo.used = t.Ack != c.iss+1
	if fo.used {
		e.Stats.FastOpenActive++
	} else {
		e.Stats.FastOpenActiveFails++
	}
	if p != nil {
		p.answered(c.synRetries == 0, e.now)
	}
}

// skipSynData makes what the peer has acknowledged of the SYN's data part of the stream's past.
func (c *Conn) skipSynData(ack uint32) {
	if fo := c.fo(); fo == nil || fo.data == 0 || fo.pending {
		return
	}
	c.unaOff = uint64(ack - c.iss - 1)
	c.sndNxt = ack
	c.snd.Release(c.unaOff)
}

// fastOpenAcked ends the handshake of a connection that a server has opened early.
func (e *Engine) fastOpenAcked(c *Conn, ack uint32) {
	fo := c.fo()
	if fo == nil || !fo.pending || !seq.AfterEq(ack, c.iss+1) {
		return
	}
	fo.pending, fo.synAck = false, false
	fo.listener.fast.Add(-1)
	c.stopTimer(timerState)
}

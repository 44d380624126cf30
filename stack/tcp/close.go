package tcp

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// shutdownWrite queues the FIN behind the data (RFC 9293, 3.10.4).
func (e *Engine) shutdownWrite(c *Conn) {
	if c.finQueued {
		return
	}
	switch c.state {
	case Established:
		c.state = FinWait1
	case CloseWait:
		c.state = LastAck
	case SynSent, SynReceived: // the FIN follows the handshake
	default:
		return
	}
	c.finQueued = true
}

// closed is the application's Close. It returns true if the connection is gone.
func (e *Engine) closed(c *Conn) bool {
	c.orphan = true
	unread := c.rcv.Tail() != c.rcv.Head() || c.newData || c.ooo.Len() > 0
	c.rcv.Reset()
	switch {
	case c.state == SynSent && (c.fo() == nil || c.snd.Tail() == 0): // what goes with a SYN was written, and is to be delivered
		e.destroy(c, Aborted)
		return true
	case unread:
		e.Stats.AbortOnClose++
		e.reset(c)
		e.destroy(c, Aborted)
		return true
	}
	if !e.adoptOrphan(c) {
		return true
	}
	e.shutdownWrite(c)
	if c.state == FinWait2 {
		c.setTimer(timerState, e.now.Add(e.finWait2(c)))
	}
	return false
}

// abort is the application's Abort.
func (e *Engine) abort(c *Conn) {
	c.orphan = true
	if c.state != SynSent {
		e.reset(c)
	}
	e.destroy(c, Aborted)
}

// finAcked moves on when the peer has acknowledged our FIN.
func (e *Engine) finAcked(c *Conn) {
	switch c.state {
	case FinWait1:
		c.state = FinWait2
		if c.orphan {
			c.setTimer(timerState, e.now.Add(e.finWait2(c)))
		}
	case Closing:
		e.timeWait(c)
	case LastAck:
		e.destroy(c, OK)
	}
}

// peerFinished moves on when the peer's FIN and everything before it was received.
func (e *Engine) peerFinished(c *Conn) {
	c.finRcvd = true
	c.ackNow = true
	e.makeReady(c)
	switch c.state {
	case Established:
		c.state = CloseWait
	case FinWait1:
		c.state = Closing
	case FinWait2:
		e.timeWait(c)
	}
}

// gotReset ends a connection that the peer has reset (RFC 9293, 3.10.7.4, second). In SYN-RECEIVED it matters who has opened it (MUST-11).
func (e *Engine) gotReset(c *Conn) {
	switch {
	case c.state == SynReceived && c.listener != nil:
		e.Stats.AttemptFails++
		e.destroy(c, Reset)
	case c.state == SynReceived:
		e.Stats.AttemptFails++
		e.destroy(c, Refused)
	default:
		e.Stats.EstabResets++
		e.destroy(c, Reset)
	}
}

// destroy lets go of a connection: the application finds errno, or the end of the stream (RFC 9293, MUST-12).
func (e *Engine) destroy(c *Conn, why Errno) {
	if c.state == Closed {
		return
	}
	if c.state == SynReceived && c.listener != nil {
		c.listener.syns.Add(-1)
	}
	e.remove(c.slot)
	e.letGo(c, why)
	e.freeSlot(c.slot)
}

// letGo is destroy without the slot, which a TIME-WAIT record may take over.
func (e *Engine) letGo(c *Conn, why Errno) {
	e.fastGone(c, why)
	e.closeModules(c)
	c.state = Closed
	e.outs.idle(c)
	e.release(c)
	c.ooo.Reset()
	e.Stats.Conns--
	if c.counted {
		e.Stats.Orphans--
	}
	if !c.orphan {
		c.rcv.Commit(c.rcvOff)
	}
	c.errno.Store(uint32(why))
	f := flagUp | flagDone
	if c.finRcvd {
		f |= flagEOF
	}
	// Whoever of engine and application comes second frees the streams.
	if old := c.flags.Or(f); old&flagClosed != 0 || c.listener != nil {
		c.snd.Reset()
		c.rcv.Reset()
	}
	e.env.Wake(&c.Rd)
	e.env.Wake(&c.Wr)
}

// lastSeg is what the last segments of a connection are made of, when it is gone itself.
type lastSeg struct {
	tuple              Tuple
	sndNxt, rcvNxt     uint32
	tsOffset, tsRecent uint32
	tsOK               bool
}

func (c *Conn) lastSeg() lastSeg {
	return lastSeg{c.Tuple, c.sndNxt, c.rcvNxt, c.tsOffset, c.tsRecent, c.tsOK}
}

// send sends such a segment, with timestamps where they were negotiated (RFC 7323, 3.2).
func (l *lastSeg) send(e *Engine, flags, window uint16) {
	var buf [12]byte
	opts := buf[:0]
	if l.tsOK {
		opts = wire.PutTS(opts, tsTick(e.now)+l.tsOffset, l.tsRecent)
	}
	e.control(&l.tuple, l.sndNxt, l.rcvNxt, flags, window, opts)
}

// timeWait is what remains of a connection in TIME-WAIT.
type timeWait struct {
	lastSeg
	nextAck plugins.Time
	window  uint16
}

// lastWord is what a TIME-WAIT record keeps of c.
func (c *Conn) lastWord() timeWait { return timeWait{lastSeg: c.lastSeg(), window: c.window()} }

// timeWait replaces the connection by a TIME-WAIT record, and acknowledges the peer's FIN if that was not done yet.
func (e *Engine) timeWait(c *Conn) {
	if e.Stats.TimeWaits >= uint64(e.cfg.MaxTimeWaits) { // the peer's last word may get no answer then, but memory is bounded
		e.Stats.TimeWaitOverflows++
		if tw := c.lastWord(); c.ackNow {
			e.timeWaitAck(&tw)
		}
		e.destroy(c, OK)
		return
	}
	var tw *timeWait
	if n := len(e.twFree); n > 0 {
		tw, e.twFree = e.twFree[n-1], e.twFree[:n-1]
	} else {
		tw = new(timeWait)
	}
	*tw = c.lastWord()
	unacked := c.ackNow
	e.letGo(c, OK)
	en := &e.slots[c.slot]
	en.conn, en.tw = nil, tw
	en.gen++
	e.Stats.TimeWaits++
	e.wheel.Set(c.slot, e.now.Add(e.cfg.TimeWait)) // RFC 9293, MUST-13
	if unacked {
		e.timeWaitAck(tw)
	}
}

func (e *Engine) timeWaitAck(tw *timeWait) { tw.send(e, wire.ACK, tw.window) }

// timeWaitSegment is the TIME-WAIT state (RFC 9293, 3.10.7.4; RFC 6191).
func (e *Engine) timeWaitSegment(tw *timeWait, k *Tuple, t *wire.TCP) {
	var o wire.Options
	e.readOptions(t, &o)
	hasTS := tw.tsOK && o.Set&wire.OptTS != 0
	old := hasTS && int32(o.TSVal-tw.tsRecent) < 0
	if t.Flags&(wire.SYN|wire.ACK|wire.RST) == wire.SYN && !old &&
		(seq.After(t.Seq, tw.rcvNxt) || hasTS && int32(o.TSVal-tw.tsRecent) > 0 || !tw.tsOK && o.Set&wire.OptTS != 0) {
		// A new incarnation: its ISS lies above what the old one sent (RFC 6191, 2).
		iss := tw.sndNxt + 65535 + 2
		if l := e.listener(k); l != nil {
			e.dropTimeWait(e.slotOf(k))
			e.passiveOpen(l, k, t, &o, max(iss, 1))
			return
		}
	}
	if t.Flags&wire.RST != 0 {
		if t.Seq == tw.rcvNxt && !old { // others would end TIME-WAIT too soon (RFC 1337)
			e.dropTimeWait(e.slotOf(k))
		}
		return
	}
	if hasTS && !old && seq.BeforeEq(t.Seq, tw.rcvNxt) {
		tw.tsRecent = o.TSVal
	}
	if len(t.Payload) == 0 && t.Flags&(wire.SYN|wire.FIN) == 0 && t.Seq == tw.rcvNxt {
		return // a plain acknowledgement needs no answer
	}
	if t.Flags&wire.FIN != 0 { // the peer's FIN again: our last ACK was lost
		e.wheel.Set(e.slotOf(k), e.now.Add(e.cfg.TimeWait))
	}
	if tw.nextAck > e.now {
		return
	}
	tw.nextAck = e.now.Add(dupAckEvery)
	e.timeWaitAck(tw)
}

// slotOf is the slot of a tuple that is in the table.
func (e *Engine) slotOf(k *Tuple) uint32 {
	h := e.hash(k)
	mask := uint32(len(e.table.cells) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if c := e.table.cells[i]; c.hash == h && c.ref > deleted && *e.tuple(c.ref - 2) == *k {
			return c.ref - 2
		}
	}
}

func (e *Engine) dropTimeWait(slot uint32) {
	e.remove(slot)
	e.twFree = append(e.twFree, e.slots[slot].tw)
	e.freeSlot(slot)
	e.Stats.TimeWaits--
}

// reset tells the peer that the connection is gone.
func (e *Engine) reset(c *Conn) {
	l := c.lastSeg()
	e.sendReset(&l)
}

// resetHalf does so for a half-open connection.
func (e *Engine) resetHalf(h *halfOpen) {
	e.sendReset(&lastSeg{h.tuple, h.iss + 1, h.peer.irs + 1, e.tsOffset(&h.tuple), h.peer.tsVal, h.peer.tsOK})
}

// sendReset sends a reset at once, or when there is room, since nothing would send it again: thousands of connections may be reset in one turn.
func (e *Engine) sendReset(l *lastSeg) {
	e.Stats.OutRsts++
	if !e.room() && len(e.resets) < maxResets {
		e.resets = append(e.resets, *l)
		return
	}
	e.putReset(l)
}

func (e *Engine) putReset(l *lastSeg) { l.send(e, wire.RST|wire.ACK, 0) }

const maxResets = 1 << 16

// room reports whether a segment can be sent now.
func (e *Engine) room() bool {
	if e.env.Pool.Free() == 0 {
		e.env.Pool.Collect() // what others have given back, as Get does: nobody else may call it
	}
	return e.env.Fifo.Room() > 0 && e.env.Pool.Free() > 0
}

// SendResets sends resets that wait for room, and reports whether none is left.
func (e *Engine) SendResets() bool {
	n := 0
	for ; n < len(e.resets) && e.room(); n++ {
		e.putReset(&e.resets[n])
	}
	if n > 0 {
		e.resets = e.resets[:copy(e.resets, e.resets[n:])]
	}
	return len(e.resets) == 0
}

// refuse answers a segment that belongs to no connection (RFC 9293, 3.10.7.1).
func (e *Engine) refuse(k *Tuple, t *wire.TCP) {
	if t.Flags&wire.RST != 0 {
		return
	}
	if !e.refusals.take(e.now, ResetsPerSecond) {
		e.Stats.ResetsLimited++
		return
	}
	e.Stats.OutRsts++
	if t.Flags&wire.ACK != 0 {
		e.control(k, t.Ack, 0, wire.RST, 0, nil)
		return
	}
	e.control(k, 0, t.Seq+t.SeqLen(), wire.RST|wire.ACK, 0, nil)
}

// control sends a segment without data. It returns false if there is no room, no buffer, or the link address is not known yet.
func (e *Engine) control(k *Tuple, sq, ack uint32, flags uint16, wnd uint16, opts []byte) bool {
	return e.controlData(k, sq, ack, flags, wnd, opts, &noTuning, 0, nil, 0)
}

// controlData is control with an IPv4 ID, which Linux gives only to what a socket sends (RFC 6864: it means nothing where DF is set), with
// TTL and DiffServ field that the application has set, and with the first size bytes of c's stream.
func (e *Engine) controlData(k *Tuple, sq, ack uint32, flags uint16, wnd uint16, opts []byte, set *Tuning, id uint16, c *Conn, size uint32) bool {
	e.nextHop = neigh.Ref{}
	mac, ok := e.env.Link.Resolve(&e.nextHop, k.Remote)
	if !ok && flags&wire.RST == 0 || ok && e.env.Fifo.Room() == 0 {
		return false
	}
	b := e.env.Pool.Get()
	if b == nil {
		e.Stats.NoBuffers++
		return false
	}
	var h [maxHdr]byte
	at := e.template(&h, k, mac, set)
	n := wire.TCPLen + len(opts) + int(size)
	b.SetLen(at + n)
	f := b.Bytes()
	copy(f[:at], h[:])
	copy(f[at+wire.TCPLen:], opts)
	if size > 0 {
		e.copyPayload(c, f[at+wire.TCPLen+len(opts):], 0, size)
	}
	if at == tcpAt4 {
		wire.PutIPv4(f[wire.EthLen:], k.Local, k.Remote, wire.ProtoTCP, set.diffServ(), set.ttl(), id, wire.IPv4Len+n)
	} else {
		binary.BigEndian.PutUint16(f[wire.EthLen+4:], uint16(n))
	}
	s := f[at:]
	wire.PutTCP(s, &wire.TCP{SrcPort: k.LocalPort, DstPort: k.RemotePort, Seq: sq, Ack: ack, Flags: flags, Window: wnd}, wire.TCPLen+len(opts))
	binary.BigEndian.PutUint16(s[wire.TCPChecksum:], wire.Fold(wire.Sum(s, wire.PseudoSum(k.Local, k.Remote, wire.ProtoTCP, n))))
	e.Stats.SegsOut++
	if !ok { // a reset, which nothing would send again
		e.env.Link.Hold(e.nextHop, b)
		return true
	}
	e.env.Fifo.Push(b)
	return true
}

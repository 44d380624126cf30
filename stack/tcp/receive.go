package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/stream"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// touch lists c among the connections that got segments in this turn.
func (e *Engine) touch(c *Conn) {
	if !c.touched {
		c.touched = true
		e.touched = append(e.touched, c)
	}
}

// text takes the segment's data and FIN (RFC 9293, 3.10.7.4, seventh and eighth).
func (e *Engine) text(c *Conn, t *wire.TCP) {
	data, s := t.Payload, t.Seq
	fin := t.Flags&wire.FIN != 0
	if !c.state.canReceive() {
		// After the peer's FIN: nothing new may come. A repeated FIN or data is answered.
		e.duplicate(c, s, s+uint32(len(data)))
		return
	}
	if c.orphan && len(data) > 0 && seq.After(s+uint32(len(data)), c.rcvNxt) {
		// Nobody will read it: tell the peer (RFC 9293, 3.10.4; RFC 2525, 2.17).
		e.Stats.AbortOnData++
		e.reset(c)
		e.destroy(c, Aborted)
		return
	}
	if seq.Before(s, c.rcvNxt) { // the front is a duplicate
		cut := c.rcvNxt - s
		e.Stats.DupSegs++
		if cut >= uint32(len(data)) && !fin || cut > uint32(len(data)) {
			e.duplicate(c, s, s+uint32(len(data)))
			return
		}
		e.repeated(c, s, s+min(cut, uint32(len(data))))
		data, s = data[min(cut, uint32(len(data))):], c.rcvNxt
	}
	if room := c.rcvAdv - s; uint32(len(data)) > room { // the tail is beyond the window
		data, fin = data[:room], false
		c.ackNow = true
	}
	off := c.rcvOff + uint64(s-c.rcvNxt)
	if fin && !c.finSeen {
		c.finSeen, c.finSeq = true, s+uint32(len(data))
	}
	if c.finSeen && seq.After(s+uint32(len(data)), c.finSeq) {
		data = data[:max(int32(c.finSeq-s), 0)] // nothing comes after the FIN
	}
	c.count.DataSegsIn++
	e.Stats.BytesIn += uint64(len(data))
	if s == c.rcvNxt {
		e.inOrder(c, data, t.Flags&wire.PSH != 0)
	} else {
		e.outOfOrder(c, off, data)
	}
	e.quickAckState(c, uint32(len(data)))
}

// inOrder appends the next bytes, and what waited behind them. push: the segment has PSH.
func (e *Engine) inOrder(c *Conn, data []byte, push bool) {
	n := uint64(len(data))
	if n > 0 && !e.store(c, data) {
		e.Stats.RcvMemDrops++ // the peer sends it again
		c.ackNow = true
		return
	}
	c.rcvOff += n
	c.rcvNxt += uint32(n)
	c.ackPend += uint32(n)
	c.rcvMSS = max(c.rcvMSS, uint32(n))
	var twice seq.Range
	if c.ooo.Len() > 0 {
		c.ackNow = true                             // a segment that fills a gap is acknowledged at once (RFC 5681, 4.2)
		if r := c.ooo.First(); r.Start < c.rcvOff { // its end had come before (RFC 2883, 4.2)
			twice = seq.Range{Start: c.rcvSeq(r.Start), End: c.rcvSeq(min(r.End, c.rcvOff))}
		}
		c.ooo.Trim(c.rcvOff)
		if r := c.ooo.First(); r.Len() > 0 && r.Start <= c.rcvOff {
			c.rcvNxt += uint32(r.End - c.rcvOff)
			c.ackPend += uint32(r.End - c.rcvOff)
			c.rcvOff = r.End
			c.ooo.Trim(c.rcvOff)
		}
	}
	c.batchPushed = push && c.newData
	c.newData = true
	if c.finSeen && c.rcvNxt == c.finSeq {
		c.rcvNxt++
		c.rcvAdv = seq.Max(c.rcvAdv, c.rcvNxt) // the FIN may lie just behind the window
		e.peerFinished(c)
	}
	if !twice.Empty() && c.state != Closed {
		e.repeated(c, twice.Start, twice.End)
	}
}

// store writes the next bytes of the stream. If memory is out it drops what came out of order, which may hold what the next bytes
// need: a receiver may do so, and the peer has kept it (RFC 2018, 8).
func (e *Engine) store(c *Conn, data []byte) bool {
	if c.rcv.WriteAt(c.rcvOff, data) {
		return true
	}
	if c.ooo.Len() == 0 {
		return false
	}
	e.Stats.RcvPruned++
	c.ackNow = true
	c.rcv.Commit(c.rcvOff) // what is not committed would go too
	c.rcv.Prune()
	c.ooo.Clear()
	return c.rcv.WriteAt(c.rcvOff, data)
}

// outOfOrder keeps a segment that came early. Its bytes go to their place in the stream.
func (e *Engine) outOfOrder(c *Conn, off uint64, data []byte) {
	e.Stats.OutOfOrder++
	c.count.OOO++
	c.ackNow = true // RFC 5681, 4.2
	if len(data) == 0 {
		return
	}
	end := off + uint64(len(data))
	if c.ooo.SetLimit(c.maxPieces()); !c.ooo.Room(off, end) {
		e.Stats.RcvPieceDrops++
		return
	}
	if !e.mayKeep(c, end-off) || !c.rcv.WriteAt(off, data) {
		e.Stats.RcvMemDrops++
		return
	}
	if c.dsackLo != c.dsackHi && c.sackOK {
		e.ackInBurst(c) // the range that a duplicate lies in must be the second block (RFC 2883, 4)
		c.ackNow = true
	}
	room := c.sackRoom()
	_, dup, _ := c.ooo.Add(off, end)
	if dup.Len() > 0 {
		room--
	}
	// The segment's range is the first block of an acknowledgement (RFC 2018, 4), and a burst is acknowledged once: before ranges that
	// have changed in it are more than that reports, those are acknowledged that changed first.
	if c.ooo.Fresh() > room && c.sackOK {
		e.ackInBurst(c)
	}
	if dup.Len() > 0 {
		e.repeated(c, c.rcvSeq(dup.Start), c.rcvSeq(dup.End)) // RFC 2883, 4.2
	}
}

// DSACKsPerSecond bounds the acknowledgements that a worker sends within bursts because each can report one duplicate: whoever knows a
// connection's window can send copies of old segments, and is not to be answered by as many frames.
const DSACKsPerSecond = 500

// repeated notes that [lo, hi) came twice, to be reported once, by the next acknowledgement (RFC 2883, 4). Of a burst, what came twice one
// after the other, in order, is one report; before another duplicate is noted, the last one's acknowledgement leaves.
func (e *Engine) repeated(c *Conn, lo, hi uint32) {
	if c.dsackLo != c.dsackHi && c.sackOK {
		if c.dsackHi == lo {
			lo = c.dsackLo
		} else {
			if e.dsacks.take(e.now, DSACKsPerSecond) {
				e.ackInBurst(c)
			}
			if c.dsackLo != c.dsackHi { // there were too many, or the FIFO is full
				e.Stats.DSACKsDropped++
			}
		}
	}
	c.dsackLo, c.dsackHi = lo, hi
	c.ackNow = true
}

// mayKeep reports whether n bytes that came early may be kept: under memory pressure a stream keeps its share at most, and each piece may
// need a chunk of its own. The peer has what is dropped (RFC 2018, 8).
func (e *Engine) mayKeep(c *Conn, n uint64) bool {
	held := c.ooo.Bytes() + uint64(c.ooo.Len()*mem.Small.Size())
	return held+n <= e.env.Budget.Share()
}

// maxPieces bounds the pieces that came early. A long path holds as many holes as it loses segments in a round trip, so the bound grows
// with the buffer: the chunks that pieces may need beside their bytes are at most half of it.
func (c *Conn) maxPieces() int {
	return max(stream.DefaultRanges, int(c.rcvBuf)/(2*mem.Small.Size()))
}

// duplicate answers a segment that brings nothing new, with a D-SACK (RFC 2883, 4.1).
func (e *Engine) duplicate(c *Conn, lo, hi uint32) {
	e.Stats.DupSegs++
	if lo != hi {
		e.repeated(c, lo, hi)
	}
	c.ackNow = true
	c.quickAcks = max(c.quickAcks, 2) // our acknowledgement was lost, or the delay is too long
	e.makeReady(c)
}

// quickAckPhase is how many acknowledgements go out at once when data begins to flow, so that the sender's window opens.
const quickAckPhase = 16

// atoMin is the least acknowledgement time-out.
const atoMin = 40 * time.Millisecond

// quickAckState follows the arrival of data (as Linux does): the first data, or data after a pause of an RTO, starts a phase of
// immediate acknowledgements; afterwards the time-out adapts to the gaps.
func (e *Engine) quickAckState(c *Conn, n uint32) {
	if n == 0 {
		return
	}
	gap := e.now.Sub(c.lastData)
	switch {
	case c.lastData == 0:
		c.ato = atoMin
		c.quickAcks = quickAckPhase
	case gap <= atoMin/2:
		c.ato = c.ato/2 + atoMin/2
	case gap < c.ato:
		c.ato = min(c.ato/2+gap, 5*atoMin)
	case gap > c.rto():
		c.quickAcks = quickAckPhase
	}
	c.lastData = e.now
}

// ackTouched publishes what arrived in this turn and decides for each connection whether to acknowledge now: once per batch,
// however many segments it had (RFC 9293, MUST-59), and else within half a second (MUST-40).
//
// Two segments or more of which the last has PSH are acknowledged at once: the peer has nothing to add that the acknowledgement could
// wait for. A single one is a request or a keystroke, and waits for the answer, which it then shares a segment with. So does Linux, where
// the second segment with PSH makes the acknowledgement due when the application has read it (ICSK_ACK_PUSHED2).
func (e *Engine) ackTouched() {
	e.run.c = nil
	for i, c := range e.touched {
		e.touched[i] = nil
		c.touched = false
		if c.state == Closed {
			continue
		}
		if c.newData && !c.orphan {
			c.newData = false
			c.rcv.Commit(c.rcvOff)
			if c.finRcvd {
				c.flags.Or(flagEOF)
			}
			e.env.Wake(&c.Rd)
			e.tuneReceive(c)
		}
		switch {
		case c.ackNow:
			e.makeReady(c)
		case c.ackPend == 0:
		case c.ackPend >= 2*max(c.rcvMSS, 1) || c.quickAcks > 0 && !c.pingpong || c.batchPushed:
			// At least every second full segment (RFC 9293, MUST-58; RFC 5681, 4.2).
			c.ackNow = true
			e.makeReady(c)
		case c.due[timerDelAck] == never:
			e.Stats.DelayedAcks++
			c.setTimer(timerDelAck, e.now.Add(min(c.ato, e.cfg.DelAck)))
		}
	}
	e.touched = e.touched[:0]
}

// advertise moves the right edge of the window that the peer is told (RFC 9293, 3.8.6.2.2): never back, and forward only if the
// step is worth a segment (MUST-39). Under memory pressure windows do not grow.
func (e *Engine) advertise(c *Conn) {
	held := uint32(c.rcvOff - c.rcv.Head())
	free := uint32(0)
	if held < c.rcvBuf {
		free = c.rcvBuf - held
	}
	switch e.env.Budget.Level() {
	case mem.Pressure:
		free = min(free, max(c.rcvAdv-c.rcvNxt, pressureWindow)) &^ (1<<c.rcvScale - 1)
	case mem.Full:
		free = min(free, c.rcvAdv-c.rcvNxt) &^ (1<<c.rcvScale - 1)
	}
	unit := uint32(1) << c.rcvScale
	told := c.rcvAdv - c.rcvNxt
	most := min((free+unit-1)&^(unit-1), 0xffff<<c.rcvScale)
	if most > told && most-told >= min(c.rcvBuf/2, max(c.rcvMSS, c.mss)) {
		told = most
	}
	// The field counts in units: what is told is rounded up, as Linux does, so that the edge does not seem to move back (RFC 7323,
	// 2.4), unless that is beyond what fits.
	if up := (told + unit - 1) &^ (unit - 1); up <= most {
		told = up
	}
	c.rcvAdv = c.rcvNxt + told
}

// pressureWindow is the window that a connection keeps under memory pressure.
const pressureWindow = 16 << 10

// windowUpdate tells the peer that the reader made room, if it is worth it: the window at least doubles, or was closed.
func (e *Engine) windowUpdate(c *Conn) {
	if !c.state.canReceive() {
		return
	}
	e.tuneReceive(c)
	old := c.rcvAdv - c.rcvNxt
	edge := c.rcvAdv
	e.advertise(c)
	now := c.rcvAdv - c.rcvNxt
	if c.rcvAdv == edge {
		return
	}
	if now >= 2*old || old < 2*c.mss {
		c.ackNow = true
		e.makeReady(c)
	} else {
		c.rcvAdv = edge // the next segment tells it
	}
}

package tcp

import (
	"slices"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

type sendResult uint8

const (
	sendDone sendResult = iota // nothing more may leave now
	sendMore                   // so many segments were sent that others have their turn
	sendFull                   // no room or no buffers
)

// send is one connection's turn.
func (e *Engine) send(c *Conn) sendResult {
	if !e.prepareHeader(c) {
		e.waitForLink(c)
		return sendDone
	}
	switch c.state {
	case SynSent, SynReceived:
		return e.sendHandshake(c)
	}
	if c.probeNow {
		if !e.emit(c, c.sndUna-1, wire.ACK, 0, 0) {
			return sendFull
		}
		c.probeNow = false
	}
	if fo := c.fo(); fo != nil && fo.synAck && !e.sendFastSynAck(c, fo) {
		return sendFull
	}
	r := sendDone
	if c.state.canSend() && !c.resume[plugins.Rtx] {
		before := c.sndNxt
		e.idleCwnd = false
		if r = e.sendData(c); r != sendMore { // what the port has no room for is a piece of its own, charged when it leaves
			e.endBurst(c)
		}
		if c.sndNxt != before || e.idleCwnd {
			c.validateCwnd(e.idleCwnd)
			if c.lowat {
				e.limitUnsent(c)
			}
		}
	}
	for c.ackNow && r != sendFull {
		if !e.emit(c, c.sndNxt, wire.ACK, 0, 0) {
			return sendFull
		}
	}
	return r
}

// waitForLink lists c among the connections that wait for a link address. Those that have ended meanwhile make room first.
func (e *Engine) waitForLink(c *Conn) {
	if c.unresolved {
		return
	}
	c.unresolved = true
	if len(e.waiting) == cap(e.waiting) {
		e.waiting = slices.DeleteFunc(e.waiting, func(c *Conn) bool { return c.state == Closed })
	}
	e.waiting = append(e.waiting, c)
}

// retryWaiting takes up connections that waited for a link address, when one has become known.
func (e *Engine) retryWaiting() {
	if len(e.syn.acks) > 0 && (e.retry || e.syn.noRoom) {
		e.retrySynAcks()
	}
	if !e.retry {
		return
	}
	e.retry = false
	for _, c := range e.waiting {
		c.unresolved = false
		if c.state != Closed {
			e.makeReady(c)
		}
	}
	clear(e.waiting)
	e.waiting = e.waiting[:0]
}

// sendData sends retransmissions, then new data, as far as window, congestion window and pacing allow.
func (e *Engine) sendData(c *Conn) sendResult {
	if c.sndNxt == c.sndUna && c.finSent {
		return sendDone // everything is acknowledged, the FIN too
	}
	e.release(c)
	c.effectiveCwnd()
	large := e.largeSegs(c)
	budget := max(quantum, large)
	if c.wantProbe {
		c.wantProbe = false
		// What is lost goes first, if that has become known since: its answer tells as much (RFC 8985, 7.2).
		if c.out.log.lost == 0 && !e.probeTail(c) {
			c.wantProbe = true
			return sendFull
		}
	}
	for ; c.sendNew > 0; c.sendNew-- {
		n, fin, why := e.nextSegment(c)
		if why != goAhead || !e.paced(c) || !e.mayQueue(c, n, false) {
			c.sendNew = 0
			break
		}
		if e.sendNew(c, n, fin, 1, 0) == 0 {
			return sendFull
		}
		c.holdLost = true // RFC 5682, 3.1 step 2b: what answers the new data decides
	}
	for !c.holdLost && !c.out.lost.empty() {
		if budget == 0 {
			return sendMore
		}
		if e.portFull() {
			return sendFull
		}
		most := min(budget, e.port.backlog.segments(c.mss))
		sent, ok, r := e.resendNext(c, most)
		if !ok {
			return r
		}
		budget -= min(sent, budget)
	}
	if c.path() != nil && !e.pathTurn(c) {
		return sendDone
	}
	for {
		n, fin, why := e.nextSegment(c)
		if why != goAhead {
			e.stopped(c, why)
			return sendDone
		}
		if budget == 0 {
			return sendMore
		}
		first := c.burst.left == 0
		if !e.paced(c) {
			return sendDone
		}
		if first && e.defers(c, fin, large) {
			e.stopped(c, deferred)
			return sendDone
		}
		if e.portFull() {
			return sendFull
		}
		if c.x != nil {
			e.feedbackFirst(c, n)
		}
		run := e.runLength(c, n, fin, min(budget, e.port.backlog.segments(n)), large)
		if !e.mayQueue(c, n*run, false) {
			return sendDone
		}
		sent := e.sendNew(c, n, fin, run, large)
		if sent == 0 {
			return sendFull
		}
		budget -= sent
	}
}

// runLength is how many segments may leave together, of which the first is n bytes long: full ones, as far as data, windows, the burst
// and the room allow, and not the one that carries the FIN. large is how many fit a large frame.
func (e *Engine) runLength(c *Conn, n uint32, fin bool, budget, large uint32) uint32 {
	if n != c.mss || fin {
		return 1
	}
	room := c.snd.Tail() - c.off(c.sndNxt)
	if c.finQueued {
		room-- // the last byte's segment is the FIN's
	}
	room = min(room, uint64(c.sndUna+c.sndWnd-c.sndNxt))
	if f := c.inFlight(); f < c.cwnd {
		room = min(room, uint64(c.cwnd-f))
	} else {
		return 1
	}
	most := min(budget, large)
	if large == 0 {
		most = min(budget, maxRun, uint32(e.env.Fifo.Room()))
	}
	if c.line.Rate != plugins.Unlimited {
		most = min(most, (c.burst.left+n-1)/n)
	} else {
		most = min(most, c.cwnd/2/n) // two runs at least fit into the window, so that acknowledgements keep coming (cwnd quota)
	}
	return max(min(most, uint32(room/uint64(n))), 1)
}

type why uint8

const (
	goAhead   why = iota
	noData        // nothing to send
	noWindow      // the peer's window is full
	noCwnd        // the congestion window is full
	heldSmall     // Nagle, or a window too small to be worth a segment
	deferred      // the next acknowledgement will allow a larger piece
)

// nextSegment decides what new segment may leave: n payload bytes and perhaps the FIN (RFC 9293, 3.8.6.2.1 and MUST-38).
func (e *Engine) nextSegment(c *Conn) (n uint32, fin bool, stop why) {
	if c.finSent {
		return 0, false, noData
	}
	queued := c.snd.Tail() - c.off(c.sndNxt)
	n = uint32(min(queued, uint64(c.mss)))
	fin = c.finQueued && queued == uint64(n)
	if n == 0 && !fin {
		return 0, false, noData
	}
	flight := c.sndNxt - c.sndUna
	room := uint32(0)
	if flight < c.sndWnd { // else the peer may have taken some of it back (RFC 9293, MUST-34)
		room = c.sndWnd - flight
	}
	if n > room {
		// A window smaller than a segment is used only when nothing is outstanding and it is half of the largest seen.
		if room == 0 || flight > 0 || room < c.maxSndWnd/2 {
			return 0, false, noWindow
		}
		n, fin = room, false
	}
	inFlight := c.inFlight()
	if inFlight > 0 && uint64(inFlight)+uint64(n) > uint64(c.cwnd) {
		return 0, false, noCwnd
	}
	if n < c.mss && !fin && e.holdSmall(c, n, queued) {
		return 0, false, heldSmall
	}
	return n, fin, goAhead
}

// holdSmall is Nagle's algorithm with Minshall's rule: a small segment waits only while an earlier small one is unacknowledged. The
// application can turn it off (RFC 9293, MUST-17).
func (e *Engine) holdSmall(c *Conn, n uint32, queued uint64) bool {
	if uint64(n) < queued {
		return false // limited by the window, not by the data
	}
	if c.flush {
		return false
	}
	opts := c.opts.Load()
	if opts&OptCork != 0 {
		return true
	}
	return opts&OptNoDelay == 0 && c.sndNxt != c.sndUna && seq.After(c.sndSml, c.sndUna) && seq.BeforeEq(c.sndSml, c.sndNxt)
}

// validateCwnd notes, after something was sent or deferred, whether the congestion window limits the flow, and how much of it was used in this
// round: what is not used does not grow (RFC 7661, 4; as Linux does).
// What it still allows, but is too short to be worth sending, counts as used.
func (c *Conn) validateCwnd(short bool) {
	flight := c.inFlight()
	limited := short || uint64(flight)+uint64(c.mss) > uint64(c.cwnd)
	if limited || seq.AfterEq(c.sndUna, c.cwndSeq) || !c.cwndLimited && flight > c.maxFlight {
		c.cwndLimited, c.maxFlight, c.cwndSeq = limited, flight, c.sndNxt
	}
}

// stopped records why a connection stopped sending.
func (e *Engine) stopped(c *Conn, w why) {
	switch {
	case w == noWindow:
		c.spend(chronoRwnd, e.now)
	case w == noData && c.Wr.Armed() && c.out.log.n > 0:
		c.spend(chronoSndbuf, e.now)
	case c.out.log.n > 0:
		c.spend(chronoBusy, e.now)
	}
	switch w {
	case noWindow:
		if c.sndNxt == c.sndUna && c.due[timerState] == plugins.Never {
			e.armPersist(c)
		}
	case noData:
		c.flush = false
		e.markAppLimited(c)
	case heldSmall:
		if c.sndNxt == c.sndUna && c.due[timerState] == plugins.Never && c.opts.Load()&OptCork != 0 {
			c.setTimer(timerState, e.now.Add(corkTimeout)) // a corked segment leaves after 200 ms at the latest (RFC 9293, MUST-60)
		}
	}
}

// markAppLimited notes that the sender has run out of data, so that rate samples of what is in flight are lower bounds
// (draft-ietf-ccwg-bbr, 4.1.2.4).
func (e *Engine) markAppLimited(c *Conn) {
	f := c.inFlight()
	if f < c.cwnd && c.out.log.lost == 0 {
		if c.appLimited == 0 {
			e.Stats.AppLimitedMarks++
		}
		c.appLimited = max(c.stat.delivered+uint64(f), 1)
	}
}

// dataReady is called when the application has written or closed: the flow restarts if it was idle.
func (e *Engine) dataReady(c *Conn) {
	if fo := c.fo(); fo != nil && fo.wait {
		e.startFastOpen(c)
		return
	}
	if c.isOpen && c.sndNxt == c.sndUna && !c.finSent && c.snd.Tail() > c.off(c.sndNxt) {
		e.Stats.IdleStarts++
		e.markAppLimited(c)
		s := e.newSample(c, cong.KindRestart)
		s.Interval = e.now.Sub(c.lastSend)
	}
	if c.chrono == chronoIdle && c.isOpen && c.snd.Tail() > c.unaOff {
		c.spend(chronoBusy, e.now)
	}
	e.makeReady(c)
}

// sendNew sends the next segment of n bytes, with the FIN if fin, and then up to run-1 full ones; large of them fit a large frame. Up to
// maxRun share an entry of the log. It returns how many left.
func (e *Engine) sendNew(c *Conn, n uint32, fin bool, run, large uint32) (sent uint32) {
	sq, off := c.sndNxt, c.off(c.sndNxt)
	flags := wire.ACK
	if fin {
		flags |= wire.FIN
	}
	for sent < run {
		k := min(run-sent, max(large, 1))
		push := uint16(0)
		if sent+k == run && e.pushes(c, sq+k*n, n, run) {
			push = wire.PSH
		}
		if k > 1 {
			k = e.emitLarge(c, sq, flags|push, off, k*n) / n
		} else if !e.emit(c, sq, flags|push, off, n) {
			k = 0
		}
		if k == 0 {
			break
		}
		sent, sq, off = sent+k, sq+k*n, off+uint64(k*n)
		if sent == run {
			flags |= push
		}
	}
	if sent == 0 {
		return 0
	}
	e.sentNew(c, sq, n, flags)
	return sent
}

// sentNew notes that what is new up to end has left in segments of n bytes, the last of which had the flags.
func (e *Engine) sentNew(c *Conn, end, n uint32, flags uint16) {
	fin, push := flags&wire.FIN != 0, flags&wire.PSH != 0
	if push {
		c.pushed = end
	}
	if fin {
		end++
	}
	e.outs.inUse(c)
	for sq := c.sndNxt; sq != end; {
		to := end
		if to-sq > maxRun*n+1 { // the FIN takes no room
			to = sq + maxRun*n
		}
		s := c.out.log.push()
		*s = segment{seq: sq, end: to, fin: fin && to == end, push: push && to == end}
		e.recordSent(c, s, to, 0)
		sq = to
	}
	if n < c.mss {
		c.sndSml = end
	}
	c.sndNxt = end
	if fin {
		c.finSent = true
	}
}

// pushes reports whether the last of run segments of n bytes, which ends at end, asks the peer to hand on what it has: behind it is nothing
// to send (RFC 9293, MUST-61) or no window, or half of the largest window has gone without. So does the last of several that leave
// together, unless a small one follows (as in Linux, so that a receiver need not wait for more to join them).
func (e *Engine) pushes(c *Conn, end, n, run uint32) bool {
	if n == 0 {
		return false
	}
	left := c.snd.Tail() - c.off(end)
	if left == 0 || n < c.mss || end-c.pushed > c.maxSndWnd/2 {
		return true
	}
	if run == 1 || left >= uint64(c.mss) {
		return run > 1
	}
	small := uint32(left)
	return end+small-c.sndUna > c.sndWnd || c.inFlight()+run*n+small > c.cwnd || e.holdSmall(c, small, left)
}

// recordSent stamps a log entry with its departure and tells the rtx module, of all up to end, which left with it. The departure time
// is the send time of RTT, RACK and delivery rate.
func (e *Engine) recordSent(c *Conn, s *segment, end uint32, flags uint8) {
	packets := s.packets(c.mss)
	s.txID, s.run, s.unit = c.txID+1, uint8(min(packets, 255)-1), uint16(c.mss)
	c.txID += packets
	s.time = e.now
	c.burst.sentPaced(end - s.seq)
	e.queued(c, end-s.seq, packets)
	s.delivered, s.deliveredTime, s.firstSent, s.lost = c.stat.delivered, c.stat.deliveredTime, c.stat.firstSent, c.stat.lost
	s.appLimited = c.appLimited != 0
	ev := e.rtxEvent(c, rtx.EvSent)
	ev.Seq, ev.End, ev.TxID, ev.Time, ev.MSS, ev.Wnd = s.seq, end, c.txID, s.time, c.mss, c.sndWnd
	if s.appLimited {
		flags |= rtx.FlagAppLimited
	}
	if s.fin {
		flags |= rtx.FlagFIN
	}
	ev.Flags = flags
	if c.out.prr.on {
		c.out.prr.out += uint64(end - s.seq)
	}
	if c.due[timerBackstop] == plugins.Never {
		e.armBackstop(c)
	}
}

// resendNext sends the first lost segments again, up to most packets. ok is false if they must wait; the result says why.
func (e *Engine) resendNext(c *Conn, most uint32) (sent uint32, ok bool, r sendResult) {
	c.out.lost.trim(c.sndUna)
	if c.out.lost.empty() {
		return 0, true, sendDone
	}
	log, lost := &c.out.log, c.out.lost.first()
	for p := log.seek(lost.Start); ; p = log.next(p) {
		s := log.get(p)
		if s == nil || seq.AfterEq(s.seq, lost.End) {
			break
		}
		if s.mark&rtx.MarkLost != 0 {
			return e.resend(c, p, 0, most)
		}
	}
	c.out.lost.trim(lost.End)
	return 0, true, sendDone
}

// resend sends what is at p again: all of it or, if not everything may leave now, its first packets.
func (e *Engine) resend(c *Conn, p place, flags uint8, most uint32) (sent uint32, ok bool, r sendResult) {
	log := &c.out.log
	s := log.get(p)
	first := min(s.len(), c.mss) // the least that is worth a packet
	n := s.len()
	// The peer may have shrunk its window: only the head goes out then, as a probe (RFC 9293, 3.8.6).
	if edge := c.sndUna + c.sndWnd; seq.After(s.end, edge) {
		if n = first; seq.Before(s.seq, edge) {
			n = max(n, edge-s.seq)
		}
		if seq.After(s.seq+n, edge) && s.seq != c.sndUna {
			return 0, false, sendDone
		}
	}
	probe := flags&rtx.FlagProbe != 0
	if f := c.inFlight(); !probe && f > 0 {
		if uint64(f)+uint64(first) > uint64(c.cwnd) {
			c.cwndLimited = true
			return 0, false, sendDone
		}
		n = min(n, c.cwnd-f)
	} else if !probe {
		n = min(n, max(c.cwnd, first))
	}
	if !probe && !e.paced(c) {
		return 0, false, sendDone
	}
	if c.line.Rate != plugins.Unlimited && !probe {
		n = min(n, max(c.burst.left+c.mss-1, first))
	}
	n = min(n, min(most, max(uint32(e.env.Fifo.Room()), 1))*c.mss)
	if !probe && !e.mayQueue(c, n, true) {
		return 0, false, sendDone
	}
	p, s = e.cutPackets(c, p, n)
	if !probe && s.packets(c.mss) > 1 {
		s.push = true
	}
	end, fl := s.end, s.flags()
	if !probe && s.len() < c.mss {
		end, fl = e.mergeable(c, p)
	}
	data := end - s.seq
	if fl&wire.FIN != 0 {
		data--
	}
	if !e.emitPieces(c, s.seq, data, fl) {
		return 0, false, sendFull
	}
	log.resent(s)
	e.recordSent(c, s, end, flags|rtx.FlagRetrans)
	log.sameAs(p, end)
	c.out.lost.trim(end)
	sent = s.packets(c.mss)
	e.Stats.RetransSegs += uint64(sent)
	c.count.Retrans += sent
	c.count.BytesRetrans += uint64(data)
	return sent, true, sendDone
}

// mergeable is where a packet ends that sends what is at p again with the lost small segments behind it, as far as they fit. Its
// flags are those of all of them.
func (e *Engine) mergeable(c *Conn, p place) (end uint32, flags uint16) {
	log := &c.out.log
	s := log.get(p)
	end, flags = s.end, s.flags()
	most := min(c.mss, max(c.cwnd-min(c.cwnd, c.inFlight()), s.len())) // what leaves is in flight again
	for flags&wire.FIN == 0 {
		p = log.next(p)
		g := log.get(p)
		if g == nil || g.mark&rtx.MarkLost == 0 || g.end-s.seq > most || seq.After(g.end, c.sndUna+c.sndWnd) {
			break
		}
		end, flags = g.end, flags|g.flags()
	}
	return end, flags
}

// cutPackets returns the first n bytes of what is at p, in whole packets, and the first in any case, and their place: it cuts off the rest.
func (e *Engine) cutPackets(c *Conn, p place, n uint32) (place, *segment) {
	log := &c.out.log
	if s := log.get(p); n < s.len() {
		if k := max(n/c.mss, 1); k < s.packets(c.mss) {
			p, _ = log.cutAt(p, s.seq+k*c.mss) // if it has too many pieces already it goes as a whole
		}
	}
	return p, log.get(p)
}

// emitPieces sends [sq, sq+n) again: in one segment, in several if the MSS has shrunk since or it stands for several, or in a large frame.
func (e *Engine) emitPieces(c *Conn, sq, n uint32, flags uint16) bool {
	if n > c.mss && n <= e.largeSegs(c)*c.mss {
		k := e.emitLarge(c, sq, flags, c.off(sq), n)
		if sq, n = sq+k, n-k; n == 0 {
			return true
		}
	}
	pieces := int((n + c.mss - 1) / c.mss)
	if e.env.Fifo.Room() < max(pieces, 1) {
		e.Stats.TxFull++
		return false
	}
	for {
		k := min(n, c.mss)
		f := flags
		if k < n {
			f &^= wire.FIN | wire.PSH
		}
		if !e.emit(c, sq, f, c.off(sq), k) {
			return false
		}
		sq, n = sq+k, n-k
		if n == 0 {
			return true
		}
	}
}

// probeTail sends a tail-loss probe: new data if there is any and the window allows, else the last segment again
// (RFC 8985, 7.3). The congestion window does not hold it back.
func (e *Engine) probeTail(c *Conn) bool {
	if c.out.log.n == 0 {
		return true
	}
	e.Stats.TLPs++
	queued := c.snd.Tail() - c.off(c.sndNxt)
	n := uint32(min(queued, uint64(c.mss)))
	if n > 0 && !c.finSent && c.sndNxt+n-c.sndUna <= c.sndWnd {
		if e.sendNew(c, n, c.finQueued && queued == uint64(n), 1, 0) == 0 {
			e.Stats.TLPs--
			return false
		}
		return true
	}
	p := c.out.log.last()
	s := c.out.log.get(p)
	if s.mark&(rtx.MarkSacked|rtx.MarkLost) != 0 {
		return true
	}
	if k := s.packets(c.mss); k > 1 { // its last packet
		var ok bool
		if p, ok = c.out.log.cutAt(p, s.seq+(k-1)*c.mss); ok {
			p = c.out.log.next(p)
		}
	}
	_, ok, r := e.resend(c, p, rtx.FlagProbe, 1)
	if !ok && r == sendFull {
		e.Stats.TLPs--
		return false
	}
	return true
}

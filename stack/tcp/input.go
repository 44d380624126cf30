package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// segment processes a segment of an existing connection, in the order of RFC 9293, 3.10.7.3 and 3.10.7.4.
func (e *Engine) segment(c *Conn, t *wire.TCP) {
	var o wire.Options
	e.readOptions(t, &o)
	e.segmentWith(c, t, &o)
}

// readOptions reads the options of a segment of any state (RFC 9293, MUST-5), once: malformed ones are counted, and what stands before
// them counts.
func (e *Engine) readOptions(t *wire.TCP, o *wire.Options) {
	if len(t.Opts) > 0 && !wire.ParseOptions(t.Opts, o) {
		e.Stats.BadOptions++
	}
}

// segmentWith is segment for a segment whose options were read.
func (e *Engine) segmentWith(c *Conn, t *wire.TCP, o *wire.Options) {
	c.count.SegsIn++
	if c.state == SynSent {
		e.synSent(c, t, o)
		return
	}
	e.touch(c)
	if fo := c.fo(); fo != nil && fo.pending && t.Flags&(wire.SYN|wire.ACK|wire.RST) == wire.SYN && t.Seq == c.irs {
		fo.synAck = true // the SYN again
		e.makeReady(c)
		return
	}
	if c.state == SynReceived && c.listener == nil && t.Flags&(wire.SYN|wire.ACK|wire.RST) == wire.SYN|wire.ACK && t.Seq == c.irs {
		// The SYN-ACK that completes a simultaneous open (RFC 9293, 3.5, figure 7): its SYN is known, what is left is an ACK. The
		// window of a SYN is never scaled (RFC 7323, 2.2).
		t.Flags &^= wire.SYN
		t.Seq++
		t.Window >>= c.sndScale
		c.ackNow = true
	}
	if c.tsOK && o.Set&wire.OptTS != 0 && t.Flags&wire.RST == 0 && e.paws(c, t, o) {
		e.Stats.PAWS++
		e.answerOld(c, t)
		return
	}
	if t.Flags&wire.RST != 0 && c.resetsToo(t.Seq) {
		e.gotReset(c)
		return
	}
	if !e.acceptable(c, t, o) {
		return
	}
	// Second, RST (RFC 5961, 3.2).
	if t.Flags&wire.RST != 0 {
		if t.Seq == c.rcvNxt {
			e.gotReset(c)
		} else {
			e.challenge(c)
		}
		return
	}
	// Fourth, SYN: always a challenge (RFC 5961, 4.2), but for the second SYN of a simultaneous open or of a retransmission.
	if t.Flags&wire.SYN != 0 {
		if c.state == SynReceived && t.Seq == c.irs {
			c.ackNow = true
			e.makeReady(c)
			return
		}
		e.challenge(c)
		return
	}
	// Fifth, ACK.
	if t.Flags&wire.ACK == 0 {
		return
	}
	if c.state == SynReceived && !e.synReceivedAck(c, t) {
		return
	}
	if !e.ack(c, t, o) {
		return
	}
	// Sixth, urgent data. Seventh, text. Eighth, FIN.
	if t.Flags&wire.URG != 0 {
		c.announced(t)
	}
	if len(t.Payload) > 0 || t.Flags&wire.FIN != 0 {
		e.measureRTT(c, t, o)
		e.text(c, t)
	}
}

// pawsFresh is how long TS.Recent stays valid (RFC 7323, 5.5).
const pawsFresh = 24 * 24 * time.Hour

// pawsSlack is by how many ticks a segment may be older than TS.Recent (TCP_PAWS_WINDOW of Linux): what left in two ticks that follow
// each other may be reordered by a path's jitter, and is no old duplicate.
const pawsSlack = 1

// paws reports whether the segment is an old duplicate by its timestamp (RFC 7323, 5.3 R1).
func (e *Engine) paws(c *Conn, t *wire.TCP, o *wire.Options) bool {
	age := int32(c.tsRecent - o.TSVal)
	return age > pawsSlack && e.now.Sub(c.tsRecentAt) < pawsFresh && !c.overtaken(t, age)
}

// overtaken reports whether the segment, which is age ticks older than TS.Recent, is an acknowledgement that others have overtaken on
// their way (as Linux tells them, tcp_disordered_ack): it moves nothing, is younger than what a timeout repeats, and may have SACK blocks
// that the others had no room for.
func (c *Conn) overtaken(t *wire.TCP, age int32) bool {
	wnd := uint32(t.Window) << c.sndScale
	return t.Flags&(wire.SYN|wire.FIN|wire.RST|wire.ACK) == wire.ACK && len(t.Payload) == 0 && t.Seq == c.rcvNxt && t.Ack == c.sndUna &&
		!seq.After(t.Seq, c.sndWl1) && !(t.Seq == c.sndWl1 && (wnd > c.sndWnd || wnd == 0)) && int64(age) <= int64(c.rto()/time.Millisecond)*6/5
}

// acceptable is the first check, of the sequence number (RFC 9293, 3.10.7.4). It trims the segment to the window. At a closed window a
// reset counts as ever (MUST-66).
func (e *Engine) acceptable(c *Conn, t *wire.TCP, o *wire.Options) bool {
	wnd := c.rcvAdv - c.rcvNxt
	n := t.SeqLen()
	inside := inWindow(t.Seq, n, c.rcvNxt, wnd)
	if inside && wnd == 0 && n > 0 && len(t.Payload) > 0 {
		inside = false // a zero window takes no text, but its ACK counts (RFC 9293, 3.10.7.4)
		if t.Flags&(wire.RST|wire.SYN) == 0 && t.Flags&wire.ACK != 0 {
			e.ackOnly(c, t, o)
		}
	}
	if !inside {
		e.Stats.OutOfWindow++
		if t.Flags&wire.RST == 0 {
			e.answerOld(c, t)
		}
		return false
	}
	return true
}

// answerOld answers a segment that is not acceptable: text that has arrived before with a D-SACK, by which the peer sees that it sent it
// again for nothing (RFC 2883, 4.1), even if its timestamp is old because it was delayed.
func (e *Engine) answerOld(c *Conn, t *wire.TCP) {
	if end := t.Seq + uint32(len(t.Payload)); len(t.Payload) > 0 && seq.BeforeEq(end, c.rcvNxt) {
		e.duplicate(c, t.Seq, end)
	} else {
		e.dupAck(c, t)
	}
}

// ackOnly takes the acknowledgement of a segment whose text has no room.
func (e *Engine) ackOnly(c *Conn, t *wire.TCP, o *wire.Options) {
	if c.state.synchronized() {
		bare := *t
		bare.Payload, bare.Flags = nil, t.Flags&^wire.FIN
		if e.ack(c, &bare, o) && t.Flags&wire.URG != 0 { // RFC 9293, MUST-66
			c.announced(t)
		}
	}
}

// challengeEvery spaces challenge ACKs and answers to unacceptable segments per connection (RFC 5961, 7; as Linux does).
const challengeEvery = 500 * time.Millisecond

// resetsToo reports whether a reset with this sequence number counts, although it is not at RCV.NXT: a peer that has seen our SACK
// blocks may reset behind the last of them, and one that has sent its FIN before that (as Linux takes them).
func (c *Conn) resetsToo(s uint32) bool {
	switch {
	case s == c.rcvNxt-1:
		return c.state == CloseWait || c.state == LastAck || c.state == Closing
	case c.ooo.Len() > 0 && c.sackOK:
		return s == c.rcvSeq(c.ooo.Last().End)
	}
	return false
}

// mayChallenge is the limit on the challenge ACKs of all connections (RFC 5961, 7). The budget of each second is drawn anew, so that
// nobody can tell from what is left of it whether others were challenged (CVE-2016-5696; as Linux draws it).
func (e *Engine) mayChallenge() bool {
	b := &e.budget
	if e.now >= b.until {
		limit := uint32(e.cfg.ChallengeLimit)
		b.until, b.left = e.now.Add(time.Second), (limit+1)/2+e.rng.Uint32N(limit)
	}
	if b.left == 0 {
		e.Stats.ChallengesLimited++
		return false
	}
	b.left--
	return true
}

// challenges is how many challenge ACKs may still leave until a time.
type challenges struct {
	until plugins.Time
	left  uint32
}

// challenge answers a suspicious segment with an ACK, at a limited rate.
func (e *Engine) challenge(c *Conn) {
	if c.nextAnswer > e.now {
		return
	}
	if !e.mayChallenge() {
		return
	}
	c.nextAnswer = e.now.Add(challengeEvery)
	e.Stats.ChallengeAcks++
	c.ackNow = true
	e.makeReady(c)
}

// dupAck answers an unacceptable segment. With data or FIN it is answered at once, since the peer may have lost our ACK; without, at
// a limited rate, so that two ends cannot fall into a loop. A SYN is challenged, wherever it lies (RFC 5961, 4.2).
func (e *Engine) dupAck(c *Conn, t *wire.TCP) {
	if t.Flags&wire.SYN != 0 && c.state.synchronized() {
		e.answerAgain(c, t)
		e.challenge(c)
		return
	}
	if len(t.Payload) == 0 && t.Flags&wire.FIN == 0 {
		// A zero-window or keepalive probe has SEG.SEQ = RCV.NXT-1 and wants an answer each time it comes, which is seldom.
		if c.nextAnswer > e.now {
			return
		}
		c.nextAnswer = e.now.Add(dupAckEvery)
	}
	c.ackNow = true
	e.makeReady(c)
}

const dupAckEvery = 10 * time.Millisecond

// ack processes the acknowledgement field, the window and the SACK blocks. It returns false if the segment goes no further.
func (e *Engine) ack(c *Conn, t *wire.TCP, o *wire.Options) bool {
	if seq.After(t.Ack, c.sndNxt) || seq.Before(t.Ack, c.sndUna-c.maxSndWnd) { // RFC 5961, 5.2
		e.Stats.BadAcks++
		e.challenge(c)
		return false
	}
	if c.x != nil {
		e.fastOpenAcked(c, t.Ack)
		if c.x.ecn != nil {
			e.ecnInput(c, t, o)
		}
		if o.Set&wire.OptUserTimeout != 0 {
			e.peerUserTimeout(c, o.UserTimeout)
		}
	}
	if o.Set&wire.OptTS != 0 && c.tsOK && seq.BeforeEq(t.Seq, c.lastAckSent) &&
		(int32(o.TSVal-c.tsRecent) >= 0 || e.now.Sub(c.tsRecentAt) >= pawsFresh) {
		// RFC 7323, 4.3: only what is not older, and covers the last acknowledgement sent; and only with an acknowledgement that can be true, lest a
		// forged timestamp make all that follows look old (as Linux does).
		c.tsRecent, c.tsRecentAt = o.TSVal, e.now
	}
	c.lastAck = e.now
	wnd := uint32(t.Window) << c.sndScale
	hadData := c.sndNxt != c.sndUna
	same := wnd == c.sndWnd
	e.peerWindow(c, t, wnd)
	if c.probes > 0 { // a closed window may stay closed for ever, as long as its probes are answered (RFC 9293, MUST-37) ...
		if c.probes = 0; c.Tuned().UserTimeout == 0 { // ... and the application has not set a limit
			c.stallSince = 0
		}
	}
	if c.keepProbes > 0 { // the peer lives: the idle time begins anew
		c.keepProbes = 0
		e.armKeepalive(c)
	}
	ev := rtx.Event{Seq: seq.Max(t.Ack, c.sndUna), Wnd: c.sndWnd}
	if c.sackOK && o.NSack > 0 {
		e.sackBlocks(c, t.Ack, o, &ev)
	}
	if !hadData {
		e.persistProgress(c)
		if ev.DSack.Empty() { // else it tells of the last that was sent again (RFC 8985, 7.4.2)
			return true
		}
	}
	advanced := seq.After(t.Ack, c.sndUna)
	if !advanced {
		if seq.Before(t.Ack, c.sndUna) && ev.NSack == 0 && ev.DSack.Empty() {
			return true // old; nothing new in it
		}
		if t.Ack == c.sndUna && len(t.Payload) == 0 && t.Flags&wire.FIN == 0 && same && (!c.sackOK || ev.NSack > 0 || !ev.DSack.Empty()) {
			ev.Flags |= rtx.FlagDup // RFC 5681, 2
		} else if ev.NSack == 0 && ev.DSack.Empty() {
			return true
		}
	}
	if c.tsOK && o.Set&wire.OptTS != 0 && o.TSEcr != 0 {
		ev.Echo = e.echoTime(c, o.TSEcr)
	}
	if advanced {
		if e.advance(c, t.Ack); c.state == Closed {
			return false
		}
	}
	e.ackEvent(c, &ev)
	e.makeReady(c)
	return true
}

// echoTime is the earliest time at which our timestamp clock had the value that the peer echoes.
func (e *Engine) echoTime(c *Conn, ecr uint32) plugins.Time {
	age := int32(tsTick(e.now) - (ecr - c.tsOffset))
	if age < 0 {
		return 0
	}
	return plugins.Time((int64(e.now)/1e6 - int64(age)) * 1e6)
}

// peerWindow takes the peer's window (RFC 9293, 3.10.7.4; as Linux orders it: a newer acknowledgement, a newer segment, or a larger
// window).
func (e *Engine) peerWindow(c *Conn, t *wire.TCP, wnd uint32) {
	if !(seq.After(t.Ack, c.sndUna) || seq.After(t.Seq, c.sndWl1) || t.Seq == c.sndWl1 && (wnd > c.sndWnd || wnd == 0)) || seq.Before(t.Ack, c.sndUna) {
		return
	}
	grew := wnd > c.sndWnd
	c.sndWnd, c.sndWl1 = wnd, t.Seq
	c.maxSndWnd = max(c.maxSndWnd, wnd)
	if grew {
		e.makeReady(c)
	}
}

// advance moves SND.UNA to ack: acknowledged bytes are freed and the FIN may be acknowledged.
func (e *Engine) advance(c *Conn, ack uint32) {
	n := ack - c.sndUna
	data := n
	finAcked := c.finSent && ack == c.sndNxt
	if finAcked {
		data-- // the FIN's sequence number
	}
	if c.out.log.n > 0 {
		c.maxAcked = max(c.maxAcked, uint16(min(c.out.log.at(0).len(), data, c.mss)))
	}
	if early := c.out.log.ack(ack); early != 0 {
		c.reordered(early, e.event+1)
	}
	c.out.lost.trim(ack)
	c.sndUna = ack
	c.unaOff += uint64(data)
	c.out.heard.Trim(c.unaOff)
	c.snd.Release(c.unaOff)
	c.stallSince, c.backstops = 0, 0
	if c.out.log.n == 0 {
		e.outs.idle(c)
		c.stopTimer(timerRtx)
		c.stopTimer(timerBackstop)
		if c.unaOff == c.snd.Tail() {
			c.spend(chronoIdle, e.now)
		}
	} else if c.due[timerBackstop] != plugins.Never {
		e.armBackstop(c)
	}
	if data > 0 {
		e.env.Link.Confirm(c.neigh) // RFC 1122, 2.3.2.1
		e.wakeWriter(c)
	}
	if c.path() != nil {
		e.pathAcked(c, ack)
	}
	c.softErr = OK // what a router said lies behind us
	if finAcked {
		e.finAcked(c)
	}
}

// wakeWriter wakes a waiting writer when a good part of the buffer is free (a third, as Linux does), so that it is not woken for
// every segment.
func (e *Engine) wakeWriter(c *Conn) {
	if c.lowat {
		e.limitUnsent(c)
		return
	}
	if !c.Wr.Armed() {
		return
	}
	limit := c.sndLimit.Load()
	if held := c.snd.Tail() - c.snd.Head(); held <= limit-limit/3 {
		if c.chrono == chronoSndbuf {
			c.spend(chronoBusy, e.now)
		}
		e.env.Wake(&c.Wr)
	}
}

// sackBlocks validates the peer's SACK blocks (as Linux does) and finds a D-SACK (RFC 2883, 4).
func (e *Engine) sackBlocks(c *Conn, ack uint32, o *wire.Options, ev *rtx.Event) {
	first := 0
	b := o.Sack[0]
	switch {
	case seq.BeforeEq(b.End, ack), // below the acknowledgement
		o.NSack > 1 && seq.AfterEq(b.Start, o.Sack[1].Start) && seq.BeforeEq(b.End, o.Sack[1].End): // inside the next block
		first = 1
		if seq.Before(b.Start, b.End) && b.Len() <= c.maxSndWnd && seq.BeforeEq(b.End, c.sndNxt) && seq.AfterEq(b.Start, c.sndUna-c.maxSndWnd) {
			ev.DSack = b
			e.Stats.DSACKsRecv++
			c.count.DSACKs++
		}
	}
	una := seq.Max(ack, c.sndUna)
	for i := first; i < int(o.NSack); i++ {
		b := o.Sack[i]
		if !seq.Before(b.Start, b.End) || seq.After(b.End, c.sndNxt) || seq.BeforeEq(b.End, una) || seq.Before(b.Start, una) {
			if !(seq.Before(b.Start, una) && seq.BeforeEq(b.End, una)) {
				e.Stats.SackIgnored++
			}
			continue
		}
		ev.Sack[ev.NSack] = b
		ev.NSack++
	}
}

// ackEvent hands an acknowledgement to rtx. Plain ones of the same batch are merged: the last says it all.
func (e *Engine) ackEvent(c *Conn, ev *rtx.Event) {
	if ev.NSack > 0 && (c.resume[plugins.Rtx] || e.rtx.insts[c.mod[plugins.Rtx]].remote != nil) {
		c.hear(ev)
	}
	if c.resume[plugins.Rtx] && c.replay != replayHeard {
		return // the log that is being replayed shortens by itself
	}
	plain := ev.NSack == 0 && ev.Flags == 0 && ev.DSack.Empty()
	if plain && c.ackIdx > 0 {
		m := &e.rtx.insts[c.mod[plugins.Rtx]].in[c.ackIdx-1]
		m.Seq, m.End, m.Wnd = ev.Seq, c.sndNxt, ev.Wnd
		return
	}
	out := e.rtxEvent(c, rtx.EvAck)
	id := out.ID
	*out = *ev
	out.Flow, out.ID, out.Time, out.Kind, out.MSS, out.End = c.flow(), id, e.now, rtx.EvAck, c.mss, c.sndNxt
	c.ackIdx = 0
	if plain {
		c.ackIdx = int32(len(e.rtx.insts[c.mod[plugins.Rtx]].in))
		e.merging = append(e.merging, c)
	}
}

// endAckMerging forgets this turn's mergeable events, which the modules have consumed.
func (e *Engine) endAckMerging() {
	for i, c := range e.merging {
		c.ackIdx = 0
		e.merging[i] = nil
	}
	e.merging = e.merging[:0]
}

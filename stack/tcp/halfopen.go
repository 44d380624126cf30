package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// synInfo is what a peer's SYN says, as far as it was taken up.
type synInfo struct {
	irs                uint32
	tsVal              uint32
	window             uint16 // never scaled in a SYN (RFC 7323, 2.2)
	mss                uint16
	scale              uint8
	tsOK, sackOK, wsOK bool
	ecn                uint8  // what was negotiated: ecnNone, ecnClassic, ecnAccurate
	ipECN              uint8  // IP-ECN field of the SYN
	giveCookie         bool   // the SYN-ACK has a Fast Open cookie
	data               uint16 // bytes that the SYN carried and that were taken
	userTimeout        uint16 // the option of RFC 5482; 0: none
	noECT              bool   // an end has sent a SYN or SYN-ACK without ECN
}

// readSYN reads a SYN, or a SYN-ACK; an option is taken up only if both ends send it.
func (e *Engine) readSYN(k *Tuple, t *wire.TCP, o *wire.Options) synInfo {
	s := synInfo{irs: t.Seq, window: t.Window, mss: uint16(k.defaultMSS())}
	if o.Set&wire.OptMSS != 0 {
		s.mss = o.MSS
		if s.mss < minMSS {
			s.mss = minMSS
			e.Stats.SmallMSS++
		}
	}
	s.sackOK = o.Set&wire.OptSACKPerm != 0 && !e.cfg.NoSACK
	if o.Set&wire.OptWScale != 0 && !e.cfg.NoWScale { // RFC 7323, 2.2
		s.wsOK, s.scale = true, o.WScale
	}
	if o.Set&wire.OptUserTimeout != 0 {
		s.userTimeout = o.UserTimeout
	}
	if o.Set&wire.OptTS != 0 && !e.cfg.NoTimestamps {
		s.tsOK, s.tsVal = true, o.TSVal
	}
	return s
}

// halfOpen is SYN-RECEIVED after a passive open: a small record in place of a Conn, since what a SYN asks for may never be used
// (RFC 4987, 3.4).
type halfOpen struct {
	tuple      Tuple
	listener   *Listener
	peer       synInfo
	iss        uint32
	retries    uint8 // SYN-ACKs sent again by the timer
	sent       uint8 // SYN-ACKs sent, up to 255
	waiting    bool  // in Engine.syn.acks
	at         plugins.Time
	sentAt     plugins.Time // of the only SYN-ACK; 0 if there were several (RFC 6298, 3)
	nextAnswer plugins.Time // limits answers to unacceptable segments
}

// halfRef names a half-open connection that may be gone.
type halfRef struct{ slot, gen uint32 }

// synState is what an engine keeps for passive opens.
type synState struct {
	free        []*halfOpen
	acks        []halfRef    // SYN-ACKs that could not leave
	noRoom      bool         // ... for want of room
	cookieUntil plugins.Time // when cookies that were sent are no longer expected back
}

// newHalf makes the record of a half-open connection. It returns false if there is no room.
func (e *Engine) newHalf(l *Listener, k *Tuple, s *synInfo, iss uint32) (slot uint32, ok bool) {
	if slot, ok = e.newSlot(); !ok {
		return 0, false
	}
	var h *halfOpen
	if n := len(e.syn.free); n > 0 {
		h, e.syn.free = e.syn.free[n-1], e.syn.free[:n-1]
	} else {
		h = new(halfOpen)
	}
	*h = halfOpen{tuple: *k, listener: l, peer: *s, iss: iss, at: e.now}
	e.slots[slot].half = h
	e.insert(slot)
	l.syns.Add(1)
	e.Stats.SynRecvs++
	e.wheel.Set(slot, e.now.Add(rtoInitial))
	return slot, true
}

// takeHalf takes the record out of its slot, which stays in the table.
func (e *Engine) takeHalf(slot uint32) halfOpen {
	h := e.slots[slot].half
	e.slots[slot].half = nil
	e.syn.free = append(e.syn.free, h)
	e.Stats.SynRecvs--
	return *h
}

func (e *Engine) dropHalf(slot uint32) {
	e.remove(slot)
	h := e.takeHalf(slot)
	h.listener.syns.Add(-1)
	e.freeSlot(slot)
}

// sendSynAck sends a half-open connection's SYN-ACK. What cannot leave now for want of room or of the link address is tried again; a
// flood must not make that list grow, so beyond its bound the timer is left to do it.
func (e *Engine) sendSynAck(slot uint32) {
	en := &e.slots[slot]
	h := en.half
	if h.peer.ecn == ecnAccurate && h.retries >= 2 {
		h.peer.noECT = true // RFC 9768, 3.1.5
	}
	if !e.synAck(&h.tuple, &h.peer, h.iss, tsTick(e.now)+e.tsOffset(&h.tuple), max(h.retries, min(h.sent, 1)), h.listener.tuning()) {
		if !h.waiting && len(e.syn.acks) < maxSynAcks {
			h.waiting = true
			e.syn.acks = append(e.syn.acks, halfRef{slot, en.gen})
		}
		e.syn.noRoom = e.syn.noRoom || !e.room()
		return
	}
	h.sentAt = e.now
	if h.sent > 0 {
		h.sentAt = 0
	}
	h.sent = min(h.sent, 254) + 1
}

// maxSynAcks bounds the SYN-ACKs that wait for room or for a link address.
const maxSynAcks = 1024

// retrySynAcks sends the SYN-ACKs that could not leave.
func (e *Engine) retrySynAcks() {
	e.syn.noRoom = false
	refs := e.syn.acks
	e.syn.acks = e.syn.acks[:0] // sendSynAck puts back, behind what was read
	for _, r := range refs {
		if en := &e.slots[r.slot]; en.gen == r.gen && en.half != nil && en.half.waiting {
			en.half.waiting = false
			e.sendSynAck(r.slot)
		}
	}
}

// synAck builds and sends a SYN-ACK that was sent tries times before, with set's TTL and DiffServ field. It returns false if there is no room, no buffer, or the link
// address is not known yet.
func (e *Engine) synAck(k *Tuple, s *synInfo, iss, tsVal uint32, tries uint8, set *Tuning) bool {
	o := wire.Options{Set: wire.OptMSS, MSS: e.ourMSS(k)}
	if s.sackOK {
		o.Set |= wire.OptSACKPerm
	}
	if s.tsOK {
		o.Set |= wire.OptTS
		o.TSVal, o.TSEcr = tsVal, s.tsVal
	}
	if s.wsOK {
		o.Set |= wire.OptWScale
		o.WScale = scaleFor(e.cfg.RecvBuffer)
	}
	flags := wire.SYN | wire.ACK
	// An AccECN SYN-ACK that is lost may have been dropped for its option, then for its flags (RFC 9768, 3.2.3.2.2 and 3.1.4.2).
	if s.ecn == ecnClassic || tries <= 1 {
		flags |= synAckFlags(s.ecn, s.ipECN)
	}
	if s.ecn == ecnAccurate && tries == 0 {
		o.Set |= wire.OptAccECN
		o.ECNSet = 1<<wire.ECT0 | 1<<wire.CE | 1<<wire.ECT1
		o.ECNBytes = [4]uint32{wire.ECT0: 1, wire.ECT1: 1}
	}
	if s.giveCookie {
		o.Set = o.Set&^wire.OptAccECN | wire.OptFastOpen // there is no room for both
		o.NCookie, o.Cookie = fastCookieLen, e.fastCookie(k, 0)
	}
	offerUserTimeout(&o, e.advertised(set))
	var buf [40]byte
	return e.controlData(k, iss, s.irs+1+uint32(s.data), flags, e.synWindow(k, e.rcvStart(), s.tsOK), wire.PutOptions(buf[:0], &o), set, 0, nil, 0)
}

// halfExpired sends the SYN-ACK again, after 1, 2, 4 … s (RFC 6298, 5.5), or gives up.
func (e *Engine) halfExpired(slot uint32) {
	h := e.slots[slot].half
	if int(h.retries) >= e.cfg.SynAckRetries {
		e.Stats.AttemptFails++
		e.dropHalf(slot)
		return
	}
	h.retries++
	e.wheel.Set(slot, e.now.Add(min(rtoInitial<<min(h.retries, 10), rtoMax)))
	e.sendSynAck(slot)
}

// inWindow is the acceptability test (RFC 9293, 3.10.7.4): a segment of n sequence numbers that starts before RCV.NXT is acceptable if
// its last one is not, and one without any if it is at RCV.NXT or inside the window.
func inWindow(sq, n, rcvNxt, wnd uint32) bool {
	return seq.BeforeEq(sq, rcvNxt) && (seq.After(sq+n, rcvNxt) || n == 0 && sq == rcvNxt) || seq.After(sq, rcvNxt) && sq-rcvNxt < wnd
}

// halfSegment is a segment in SYN-RECEIVED (RFC 9293, 3.10.7.4). Only one that completes the handshake makes a Conn.
func (e *Engine) halfSegment(slot uint32, t *wire.TCP) {
	h := e.slots[slot].half
	var o wire.Options
	e.readOptions(t, &o)
	rcvNxt := h.peer.irs + 1
	old := h.peer.tsOK && o.Set&wire.OptTS != 0 && t.Flags&wire.RST == 0 && int32(o.TSVal-h.peer.tsVal) < 0
	switch {
	case t.Flags&(wire.SYN|wire.ACK|wire.RST) == wire.SYN && t.Seq == h.peer.irs:
		e.synAgain(slot, t)
	case old:
		e.Stats.PAWS++
		e.answerHalf(slot, dupAckEvery)
	case !inWindow(t.Seq, t.SeqLen(), rcvNxt, uint32(e.synWindow(&h.tuple, e.rcvStart(), h.peer.tsOK))):
		e.Stats.OutOfWindow++
		if t.Flags&wire.RST == 0 {
			e.answerHalf(slot, dupAckEvery)
		}
	case t.Flags&wire.RST != 0 && t.Seq == rcvNxt:
		e.Stats.AttemptFails++
		e.dropHalf(slot)
	case t.Flags&(wire.RST|wire.SYN) != 0: // RFC 5961, 3.2 and 4.2
		e.Stats.ChallengeAcks++
		e.answerHalf(slot, challengeEvery)
	case t.Flags&wire.ACK == 0:
	case t.Ack != h.iss+1:
		e.refuse(&h.tuple, t)
	case h.listener.full(): // the SYN-ACK is sent again, and so will be the ACK
		e.Stats.ListenOverflows++
		e.Stats.ListenDrops++
	case e.env.Budget.Level() == mem.Full:
		e.Stats.ListenDrops++
	default:
		e.segmentWith(e.promote(slot), t, &o)
	}
}

// synAgain answers the same SYN again (RFC 9293, 3.8.1). If it no longer asks for ECN, the path may not bear it, and we mark nothing
// (RFC 3168, 6.1.1; RFC 9768, 3.1.5); one that asks for the other variant is not from the same peer (RFC 9768, 3.1.5).
func (e *Engine) synAgain(slot uint32, t *wire.TCP) {
	h := e.slots[slot].half
	if h.peer.ecn == ecnAccurate {
		if offered(t.Flags) == ecnClassic {
			e.resetHalf(h)
			e.dropHalf(slot)
			return
		}
		h.peer.ipECN = e.ipECN // of the latest SYN, whatever it asks for (RFC 9768, 3.1.5)
	}
	h.peer.noECT = h.peer.noECT || t.Flags&ace == 0
	e.sendSynAck(slot)
}

// answerHalf answers a segment that is not acceptable, or suspicious, with the SYN-ACK, at a limited rate.
func (e *Engine) answerHalf(slot uint32, every time.Duration) {
	h := e.slots[slot].half
	if h.nextAnswer > e.now {
		return
	}
	h.nextAnswer = e.now.Add(every)
	e.sendSynAck(slot)
}

// promote makes a Conn in SYN-RECEIVED of a half-open connection, in the same slot.
func (e *Engine) promote(slot uint32) *Conn {
	due := e.wheel.At(slot)
	h := e.takeHalf(slot)
	c := e.connIn(slot, &h.tuple)
	e.received(c, h.listener, &h.peer, h.iss)
	c.openedAt, c.lastSend, c.synRetries, c.count.SegsOut = h.at, h.sentAt, h.retries, uint64(h.sent)
	c.setTimer(timerState, due)
	return c
}

// received puts c into SYN-RECEIVED; its listener counts it among the half-open ones until it is established.
func (e *Engine) received(c *Conn, l *Listener, s *synInfo, iss uint32) {
	c.state, c.listener = SynReceived, l
	c.iss, c.sndUna, c.sndNxt = iss, iss, iss+1
	e.learnSYN(c, s)
	if s.ecn != ecnNone {
		c.more().ecn = newECN(s.ecn)
		c.ecn().passive, c.ecn().ect = true, !s.noECT
		e.countECN(c.ecn())
	}
	if l != nil && l.setup != nil { // after the window that the SYN-ACK has told
		e.setUp(c, l.setup)
	}
	e.peerUserTimeout(c, s.userTimeout)
}

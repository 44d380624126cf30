package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

const (
	never       = plugins.Never
	corkTimeout = 200 * time.Millisecond
	rtoMin      = 200 * time.Millisecond
	rtoMax      = 120 * time.Second
	rtoInitial  = time.Second
)

// Timers runs what is due.
func (e *Engine) Timers() {
	if len(e.starved) > 0 && e.feedAt <= e.now {
		e.feed()
	}
	e.due = e.wheel.Advance(e.now, e.due[:0])
	for _, slot := range e.due {
		en := &e.slots[slot]
		if en.tw != nil {
			e.dropTimeWait(slot)
			continue
		}
		if en.half != nil {
			e.halfExpired(slot)
			continue
		}
		c := en.conn
		if c == nil {
			continue
		}
		for k := range numTimers {
			if c.due[k] <= e.now {
				c.due[k] = never
				e.expired(c, k)
				if c.state == Closed {
					break
				}
			}
		}
		if c.state != Closed {
			e.wakeOverdue(c)
			if at := c.nextDue(e.now); at < e.wheel.At(slot) {
				e.wheel.Set(slot, at)
			}
		}
	}
}

// feedEvery is how long a writer that found no memory waits before it looks again. Memory is given back by all workers and streams,
// and nobody keeps a list of those who want it.
const feedEvery = 10 * time.Millisecond

func (e *Engine) starve(c *Conn) {
	if len(e.starved) == 0 {
		e.feedAt = e.now.Add(feedEvery)
	}
	if !c.starved {
		c.starved = true
		e.starved = append(e.starved, c)
		e.Stats.SndMemWaits++
	}
}

func (e *Engine) feed() {
	for i, c := range e.starved {
		c.starved = false
		e.starved[i] = nil
		e.env.Wake(&c.Wr)
	}
	e.starved = e.starved[:0]
}

func (e *Engine) expired(c *Conn, k int) {
	switch k {
	case timerRtx:
		e.rtxExpired(c)
	case timerBackstop:
		e.backstop(c)
	case timerState:
		e.stateExpired(c)
	case timerDelAck:
		c.ackNow = true
		c.pingpong = false
		e.makeReady(c)
	case timerPace:
		if c.held != 0 {
			e.portLate(c)
		}
		e.departs(c)
	case timerKeepalive:
		e.keepaliveExpired(c)
	}
}

func (e *Engine) stateExpired(c *Conn) {
	if fo := c.fo(); fo != nil && fo.pending {
		e.fastExpired(c, fo)
		return
	}
	switch c.state {
	case SynSent, SynReceived:
		e.handshakeExpired(c)
	case FinWait2:
		e.destroy(c, OK)
	default:
		e.persistExpired(c)
	}
}

// wakeOverdue wakes goroutines whose deadline has passed.
func (e *Engine) wakeOverdue(c *Conn) {
	if Deadline(&c.RdDeadline) <= e.now {
		e.env.Wake(&c.Rd)
	}
	if Deadline(&c.WrDeadline) <= e.now {
		e.env.Wake(&c.Wr)
	}
}

// rtxExpired tells the rtx module that the timer it set has expired, unless the flow has been without progress for too long.
func (e *Engine) rtxExpired(c *Conn) {
	if c.out.log.n == 0 || c.resume[plugins.Rtx] {
		return
	}
	if c.rtxTimer == rtx.TimerRTO && e.stalled(c) {
		e.giveUp(c) // RFC 9293, 3.8.3 R2
		return
	}
	if c.rtxTimer == rtx.TimerRTO && c.stat.backoff+1 >= r1 {
		e.env.Link.Doubt(c.neigh) // RFC 9293, MUST-20
	}
	e.markIfIdleApp(c)
	ev := e.rtxEvent(c, rtx.EvTimer)
	ev.Timer, ev.Seq, ev.End, ev.MSS, ev.Wnd = c.rtxTimer, c.sndUna, c.sndNxt, c.mss, c.sndWnd
	e.armBackstop(c)
}

// r1 is how many retransmissions of a segment make IP doubt the next hop (RFC 9293, 3.8.3).
const r1 = 3

// markIfIdleApp marks the flow application-limited before timer work, if it has nothing to send (draft-ietf-ccwg-bbr, 4.1.2.4).
func (e *Engine) markIfIdleApp(c *Conn) {
	if c.snd.Tail() == c.off(c.sndNxt) {
		e.markAppLimited(c)
	}
}

// armBackstop sets the time at which the engine itself retransmits if the rtx module says nothing: well after the module's own RTO.
func (e *Engine) armBackstop(c *Conn) {
	c.setTimer(timerBackstop, min(e.now.Add(min(2*c.rto(), rtoMax)<<min(c.backstops, 6)), e.stallEnd(c)))
}

// setBackstop sets the backstop to a time, which may be never.
func (c *Conn) setBackstop(at plugins.Time) {
	if at == never {
		c.stopTimer(timerBackstop)
		return
	}
	c.setTimer(timerBackstop, at)
}

// backstop is the engine's own retransmission timeout (RFC 6298, 5.4 to 5.6): the head is sent again, whatever the module does.
func (e *Engine) backstop(c *Conn) {
	if c.out.log.n == 0 {
		return
	}
	if e.stalled(c) {
		e.giveUp(c)
		return
	}
	if c.stallSince == 0 {
		c.stallSince = e.now
	}
	e.Stats.BackstopRTOs++
	if c.backstops++; c.backstops >= r1 {
		e.env.Link.Doubt(c.neigh)
	}
	c.holdLost = false
	h := c.out.log.get(c.out.log.start(0))
	head := seq.Range{Start: h.seq, End: h.seq + min(h.len(), c.mss)}
	c.out.log.lose(head, c.txID, c.mss)
	c.out.lost.add(head)
	e.pathTimeout(c, c.backstops)
	c.stopReducing()
	c.cwnd = c.inFlight() + c.mss
	e.event++
	c.setBarrier(e.event)
	e.armBackstop(c)
	e.makeReady(c)
}

// armPersist starts zero-window probing (RFC 9293, 3.8.6.1 and MUST-36): first after an RTO, then with exponential back-off, whether the
// window was closed or taken back (MUST-35).
func (e *Engine) armPersist(c *Conn) {
	c.setTimer(timerState, min(e.now.Add(min(c.rto()<<min(c.persists, 10), rtoMax)), max(e.stallEnd(c), e.now)))
}

// persistProgress is called when the peer has acknowledged and nothing is outstanding: the window may be open again.
func (e *Engine) persistProgress(c *Conn) {
	if !c.state.canSend() {
		return // the timer is that of FIN-WAIT-2
	}
	if c.sndWnd > 0 {
		c.persists, c.stallSince = 0, 0
		if c.opts.Load()&OptCork == 0 { // else the timer is that of the corked segment
			c.stopTimer(timerState)
		}
	}
	e.makeReady(c)
}

func (e *Engine) persistExpired(c *Conn) {
	if !c.state.canSend() || c.sndNxt != c.sndUna {
		return
	}
	closed := c.sndWnd == 0
	// The peer answers probes of a closed window as long as it lives, however long that is (RFC 9293, MUST-37). Without answers the
	// connection ends like one whose segments are lost.
	if closed && (c.stallSince == 0 || c.probes == 0 && c.Tuned().UserTimeout == 0) {
		c.stallSince = e.now
	} else if closed && e.stalled(c) {
		e.giveUp(c)
		return
	}
	if closed && c.orphan && c.persists >= orphanProbes { // nobody is left who could end it
		e.Stats.AbortOnTimeout++
		e.reset(c)
		e.destroy(c, c.timedOut())
		return
	}
	if closed {
		e.Stats.ZeroWindowProbes++
		c.probes, c.persists = min(c.probes, 254)+1, min(c.persists, 254)+1
		e.sendProbe(c)
		e.armPersist(c)
		return
	}
	// Held back by a cork or a small window: the override timeout of RFC 9293, 3.8.6.2.1.
	if !e.prepareHeader(c) || !e.sendHeld(c) {
		c.setTimer(timerState, e.now.Add(c.rto()))
	}
}

// sendProbe makes the next output of c begin with a segment whose sequence number the peer must answer. It waits for the link
// address, which may have been forgotten.
func (e *Engine) sendProbe(c *Conn) {
	c.probeNow = true
	e.makeReady(c)
}

// orphanProbes bounds the probes of a closed window when the application has closed the connection (as Linux does).
const orphanProbes = 8

// sendHeld sends what a cork or a window smaller than a segment holds back. It returns false if there is no buffer or no room.
func (e *Engine) sendHeld(c *Conn) bool {
	queued := c.snd.Tail() - c.off(c.sndNxt)
	n := uint32(min(queued, uint64(c.mss), uint64(c.sndWnd)))
	return n == 0 || e.sendNew(c, n, false, 1, 0) > 0
}

func (e *Engine) armKeepalive(c *Conn) {
	idle, _, _ := e.keepalive(c)
	c.setTimer(timerKeepalive, e.now.Add(idle))
}

// lastHeard is when the connection was last in use, as far as keepalive goes (RFC 9293, MUST-26: data and acknowledgements).
func (c *Conn) lastHeard() plugins.Time { return max(c.lastData, c.lastAck, c.lastSend) }

// keepaliveExpired probes an idle peer (RFC 9293, 3.8.4), several times before it counts as dead (MUST-29).
func (e *Engine) keepaliveExpired(c *Conn) {
	if c.opts.Load()&OptKeepalive == 0 || c.state < Established {
		return
	}
	idle := e.now.Sub(c.lastHeard())
	after, every, count := e.keepalive(c)
	switch {
	case c.sndNxt != c.sndUna:
		c.keepProbes = 0
		c.setTimer(timerKeepalive, e.now.Add(after))
	case idle < after && c.keepProbes == 0:
		c.setTimer(timerKeepalive, e.now.Add(after-idle))
	case c.keepProbes > 0 && idle >= or(c.Tuned().UserTimeout, never.Sub(0)), int(c.keepProbes) >= count && c.Tuned().UserTimeout == 0 && idle >= e.adoptedTimeout(c): // RFC 5482, 4.2
		e.reset(c)
		e.giveUp(c)
	default:
		e.Stats.KeepaliveProbes++
		e.sendProbe(c)
		c.keepProbes++
		c.setTimer(timerKeepalive, e.now.Add(every))
	}
}

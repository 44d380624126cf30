package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// A paced flow sends in bursts: what leaves at one departure time. One segment at a time would cost a turn, and a call of the port, per
// segment; too much would queue. burst is the one that the flow is sending.
type burst struct {
	left uint32 // bytes that may still leave in it
	sent uint32 // bytes that have left and are not charged to the pacing clock yet
}

const (
	maxBurst = 64 << 10
	// rateShift and rttLog size bursts as Linux does: about 1 ms worth of the rate, and an allowance that halves with each 512 µs of
	// the path's round-trip time (tcp_tso_autosize).
	rateShift = 10
	rttLog    = 9
)

// pieceGoal is how much of the flow should leave together, in bytes of whole segments: at least two, so that a receiver that delays its
// acknowledgements has one to send, unless congestion control wants less.
func (c *Conn) pieceGoal() uint32 {
	goal := min(c.line.Rate>>rateShift, maxBurst)
	least := 2 * c.mss
	if c.tsoGoal != 0 {
		goal, least = uint64(c.tsoGoal), min(max(uint32(c.tsoGoal), c.mss), least)
	}
	if c.stat.minRTT > 0 {
		goal += maxBurst >> min(c.stat.minRTT/time.Microsecond>>rttLog, 31)
	}
	return max(uint32(min(goal, maxBurst))/c.mss*c.mss, least)
}

// burstGoal is how much the flow may send at one departure time.
func (c *Conn) burstGoal() uint32 {
	if c.count.DataSegsOut < uint64(c.line.FreeSegs) {
		return 1 // each of the first segments counts by itself (F8)
	}
	return c.pieceGoal()
}

// paced reports whether the flow's next segment may leave now: within the burst that is being sent, or because its departure time has
// come. If not, it arms the pacing timer (F11: only now, when something is ready and its time lies ahead).
func (e *Engine) paced(c *Conn) bool {
	if c.line.Rate == plugins.Unlimited || c.burst.left > 0 {
		return true
	}
	e.endBurst(c)
	if at := c.clk.Depart(c.line, e.now); at > e.now {
		e.holdUntil(c, at)
		return false
	}
	// At least two bursts fit into the window, so that acknowledgements keep coming (cwnd quota).
	c.burst.left = min(c.burstGoal(), max(c.cwnd/2, c.mss))
	return true
}

// holdUntil arms the pacing timer for a departure that lies ahead. While it lies beyond the line's horizon the application may not write
// more: what would be queued for that long is refused to the sender, who can still do something else with it.
func (e *Engine) holdUntil(c *Conn, at plugins.Time) {
	far := c.clk.Refused(c.line, e.now)
	switch {
	case far:
		at = at.Add(-c.line.Horizon)
		e.refuseWriter(c)
	case c.refused:
		e.admitWriter(c)
	}
	if c.due[timerPace] != at { // else it is armed already
		e.Stats.PacingTimers++
		c.setTimer(timerPace, at)
	}
}

// refuseWriter makes writers wait.
func (e *Engine) refuseWriter(c *Conn) {
	if !c.refused {
		e.Stats.HorizonRefusals++
		c.refused = true
	}
	c.sndLimit.Store(0)
}

// admitWriter lets them go on.
func (e *Engine) admitWriter(c *Conn) {
	c.refused = false
	c.sndLimit.Store(min(minSendBuffer, uint64(e.cfg.SendBuffer))) // under pressure sizeSendBuffer would leave it at nothing
	c.sizeSendBuffer()
	e.wakeWriter(c)
}

// sentPaced counts n bytes that left.
func (b *burst) sentPaced(n uint32) {
	b.left -= min(b.left, n)
	b.sent += n
}

// endBurst charges what the burst has sent to the pacing clock, as one piece: its lateness is forgiven up to half of its duration.
func (e *Engine) endBurst(c *Conn) {
	if c.burst.sent > 0 {
		c.clk.Sent(c.line, e.now, int(c.burst.sent))
		if e.cfg.EagerPacing {
			e.armEagerly(c)
		}
	}
	c.burst = burst{}
}

// armEagerly arms the pacing timer for the next departure, as was done before F11.
func (e *Engine) armEagerly(c *Conn) {
	if at := c.clk.Depart(c.line, e.now); c.line.Rate != plugins.Unlimited && at > e.now {
		e.Stats.PacingTimers++
		c.setTimer(timerPace, at)
	}
}

package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
)

const (
	// windowShare is the part of the window that is worth sending (Linux tcp_tso_win_divisor).
	windowShare = 3
	// deferFor bounds how long ago the last segment may have left, and how far ahead the next acknowledgement may be.
	deferFor = time.Millisecond
	// deferCut is how much time's worth of the window is waited for where the engine cuts segments. It saves less there than where the port
	// does: a twelfth of the processor time at 10 Gbit/s. At 100 Mbit/s it would save nothing to speak of, and a window that is never quite
	// full costs algorithms that keep queues short up to a tenth of their goodput (test/sim).
	deferCut = time.Millisecond / 32
)

// defers reports whether what the windows allow now is so little that the next acknowledgement, which is near, should be waited for: more
// segments leave together then, in one frame where the port cuts (Linux tcp_tso_should_defer). large is how many segments a frame may have.
// What duplicate acknowledgements let out is to bring more of them (RFC 3042, 2), and does not wait.
func (e *Engine) defers(c *Conn, fin bool, large uint32) bool {
	unsent := c.snd.Tail() - c.off(c.sndNxt)
	if unsent <= uint64(c.mss) || c.out.log.n == 0 || c.ca != cong.CAOpen || e.now.Sub(c.lastSend) > deferFor {
		return false
	}
	rwnd, cwnd := c.sndUna+c.sndWnd-c.sndNxt, c.cwnd-min(c.cwnd, c.inFlight())
	limit := min(rwnd, cwnd)
	srtt := c.stat.srtt
	enough := min(c.pieceGoal(), large*c.mss)
	if large == 0 {
		enough = min(c.pieceGoal(), maxRun*c.mss, uint32(min(uint64(c.cwnd)*uint64(deferCut)/uint64(max(srtt, 1)), maxBurst)))
	}
	if limit >= enough || limit >= min(c.sndWnd, c.cwnd)/windowShare {
		return false
	}
	if ack := c.out.log.at(0).time.Add(srtt); ack.Sub(e.now) > min(srtt/2, deferFor) {
		return false
	}
	switch {
	case uint64(limit) > unsent: // the application's turn, unless it is done
		if fin || c.finQueued || c.flush {
			return false
		}
	case cwnd < rwnd:
		e.idleCwnd = true
	}
	e.Stats.TsoDefers++
	return true
}

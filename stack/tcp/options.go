package tcp

import (
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

// optionsChanged takes up what the application set.
func (e *Engine) optionsChanged(c *Conn) {
	if c.isOpen {
		e.tellPace(c, pace.EvUpdate) // the maximum rate may have changed
	}
	if n := c.Tuned().RecvBuffer; n != 0 && uint32(n) != c.rcvBuf {
		c.setRcvBuf(uint32(min(n, e.cfg.RecvBuffer)))
		e.windowUpdate(c)
	}
	if c.opts.Load()&OptKeepalive != 0 {
		if c.state >= Established && c.due[timerKeepalive] == never {
			e.armKeepalive(c)
		}
	} else {
		c.stopTimer(timerKeepalive)
	}
	e.makeReady(c)
}

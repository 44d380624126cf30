package tcp

import (
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

// optionsChanged takes up what the application set.
func (e *Engine) optionsChanged(c *Conn) {
	if c.isOpen {
		e.tellPace(c, pace.EvUpdate) // the maximum rate may have changed
	}
	old := c.rcvBuf
	if e.tuned(c); c.rcvBuf > old {
		e.windowUpdate(c)
	}
	e.wakeWriter(c)
	if c.opts.Load()&OptKeepalive != 0 {
		if c.state >= Established && c.keepProbes == 0 { // the idle time may have changed; what has passed of it counts, as in Linux
			idle, _, _ := e.keepalive(c)
			c.setTimer(timerKeepalive, max(c.lastHeard().Add(idle), e.now))
		}
	} else {
		c.stopTimer(timerKeepalive)
	}
	e.makeReady(c)
}

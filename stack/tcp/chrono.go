package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// chrono says what a connection spends its time with (tcp_chrono of Linux: busy, rwnd_limited and sndbuf_limited of ss).
type chrono uint8

const (
	chronoIdle   chrono = iota // nothing to send
	chronoBusy                 // something is outstanding or waits to be sent
	chronoRwnd                 // ... and the peer's window holds it back
	chronoSndbuf               // everything was sent, and the application waits for room in the send buffer
)

// spend charges the time since the last change, and goes on with what k says.
func (c *Conn) spend(k chrono, now plugins.Time) {
	if k == c.chrono {
		return
	}
	d := now.Sub(c.chronoAt)
	switch c.chrono {
	case chronoRwnd:
		c.more().rwndLimited += d
	case chronoSndbuf:
		c.more().sndbufLimited += d
	}
	if c.chrono != chronoIdle {
		c.count.Busy += d
	}
	c.chrono, c.chronoAt = k, now
}

// limited is how long the connection was busy, and how long of that for want of window and of send buffer.
func (c *Conn) limited(now plugins.Time) (busy, rwnd, sndbuf time.Duration) {
	busy = c.count.Busy
	if c.x != nil {
		rwnd, sndbuf = c.x.rwndLimited, c.x.sndbufLimited
	}
	d := now.Sub(c.chronoAt)
	switch c.chrono {
	case chronoIdle:
		return busy, rwnd, sndbuf
	case chronoRwnd:
		rwnd += d
	case chronoSndbuf:
		sndbuf += d
	}
	return busy + d, rwnd, sndbuf
}

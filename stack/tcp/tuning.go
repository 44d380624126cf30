package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Tuning is what an application has set of a connection otherwise than the engine's settings. Zero fields mean those. Connections
// share it: it does not change, another takes its place (Conn.Tune).
type Tuning struct {
	KeepIdle     time.Duration // until the first keepalive probe (TCP_KEEPIDLE)
	KeepEvery    time.Duration // between probes (TCP_KEEPINTVL)
	KeepCount    int           // unanswered probes that end the connection (TCP_KEEPCNT)
	MaxRate      uint64        // payload bytes per second (SO_MAX_PACING_RATE)
	RecvBuffer   int           // bytes that wait for the reader (SO_RCVBUF); the buffer then does not size itself
	SendBuffer   int           // bytes written and not acknowledged (SO_SNDBUF)
	UserTimeout  time.Duration // the most that data may stay unacknowledged, or unsent at a closed window (TCP_USER_TIMEOUT)
	AdvTimeout   time.Duration // told the peer, whose own is taken up unless UserTimeout is set (RFC 5482); less than 0: no such option
	FinWait2     time.Duration // of a connection that the application has closed (TCP_LINGER2)
	NotSentLowat int           // a writer is held back while as many bytes have not been sent yet (TCP_NOTSENT_LOWAT)
	TTL          uint8         // or hop limit (IP_TTL, IPV6_UNICAST_HOPS)
	TOS          uint8         // DiffServ field, in the upper six bits (IP_TOS, IPV6_TCLASS); the others are ECN's
}

// Setup is what a connection begins with.
type Setup struct {
	Modules            Choice
	Options, NoOptions uint32 // option bits to set, and to clear against the engine's settings
	Tuning             *Tuning
	ECN                ECN
	// FastOpen makes an active open send its first data with the SYN, if the peer has given a cookie before, and else ask for one. The
	// connection is then Up at once. Data may reach the peer's application twice (RFC 7413, 2.1).
	FastOpen bool
	// FastOpenQueue is how many connections to a listener may be open before their handshake is over; less than 0: none; 0: as the
	// engine's settings say.
	FastOpenQueue int
}

var noTuning Tuning

// Tuned returns what the application has set. The caller does not change it.
func (c *Conn) Tuned() *Tuning {
	if t := c.tune.Load(); t != nil {
		return t
	}
	return &noTuning
}

// Tune changes what the application has set.
func (c *Conn) Tune(change func(*Tuning)) {
	for {
		old := c.tune.Load()
		t := *c.Tuned()
		change(&t)
		if c.tune.CompareAndSwap(old, &t) {
			break
		}
	}
	c.kick(kickOption)
}

// defaultTTL is the TTL and hop limit of what we send (as Linux).
const defaultTTL = 64

func (t *Tuning) ttl() uint8      { return or(t.TTL, defaultTTL) }
func (t *Tuning) diffServ() uint8 { return t.TOS &^ 3 }

// maxRate is the application's limit, as pace wants it.
func (t *Tuning) maxRate() uint64 {
	if t.MaxRate == 0 {
		return plugins.Unlimited
	}
	return t.MaxRate
}

// keepalive returns the connection's idle time, interval and number of probes, which the application may set (RFC 9293, MUST-27).
func (e *Engine) keepalive(c *Conn) (idle, every time.Duration, count int) {
	t := c.Tuned()
	idle, every, count = e.cfg.KeepaliveIdle, e.cfg.KeepaliveEvery, e.cfg.KeepaliveCount
	if t.KeepIdle > 0 {
		idle = t.KeepIdle
	}
	if t.KeepEvery > 0 {
		every = t.KeepEvery
	}
	if t.KeepCount > 0 {
		count = t.KeepCount
	}
	return idle, every, count
}

// minSetBuffer is the least buffer that an application can ask for.
const minSetBuffer = 4096

// tuned takes up buffers and the low-water mark that the application has set. A window that the peer was told of is not taken back.
func (e *Engine) tuned(c *Conn) {
	if n := c.Tuned().RecvBuffer; n != 0 {
		c.setRcvBuf(uint32(min(max(n, minSetBuffer), e.cfg.RecvBuffer)))
	}
	e.tuneUserTimeout(c)
	if h := &e.headers[c.slot%numHeaders]; h.flow == c.flow() {
		h.ipSum, h.tcpSum = 0, 0 // to be made anew
	}
	c.sizeSendBuffer()
}

// setUp gives a connection that has sent nothing yet what it begins with.
func (e *Engine) setUp(c *Conn, s *Setup) {
	c.home = s.Modules
	c.opts.Or(s.Options)
	c.opts.And(^s.NoOptions)
	if s.Tuning != nil {
		c.tune.Store(s.Tuning)
	}
	e.tuned(c)
}

// limitUnsent lets the application write no more than a mark beyond what was sent, and wakes it when it may.
func (e *Engine) limitUnsent(c *Conn) {
	mark := c.unsentMark()
	if c.lowat = mark > 0; !c.lowat {
		c.sizeSendBuffer()
		return
	}
	if !c.state.synchronized() || c.refused {
		return
	}
	sent := min(c.off(c.sndNxt), c.snd.Tail())
	limit := sent - c.snd.Head() + mark
	if c.Tuned().NotSentLowat > 0 {
		c.sndLimit.Store(min(c.bufferLimit(), limit))
	} else {
		c.setSendLimit(min(limit, uint64(e.cfg.SendBuffer)))
	}
	if c.snd.Tail()-sent <= mark/2 {
		e.env.Wake(&c.Wr)
	}
}

package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Receive buffers size themselves (dynamic right-sizing, as Linux's tcp_rcv_space_adjust does it): once per round-trip time, the
// buffer becomes twice what the application has read in it, and more if that grows, up to Config.RecvBuffer. An application that
// does not read keeps the buffer it has.
//
// On a path that loses all the time the application reads late, and by fits and starts, because holes hold up what has arrived. What
// counts there is what arrived in the round-trip time, and what waits behind holes needs room besides, lest the sender wait for the window
// while its retransmissions are on their way.

// rcvTune is what a connection keeps for that.
type rcvTune struct {
	rtt     time.Duration // as the receiver estimates it; 0: not known yet
	at      plugins.Time  // start of the measurement under way
	read    uint64        // stream offset that the application had read to then
	got     uint64        // bytes that had arrived then, in order or not
	space   uint32        // the most that the application read in one RTT, or that arrived in one, and what waited behind holes then
	lastEcr uint32
	winEnd  uint32 // when RCV.NXT has come to it, a window has arrived since winAt
	winAt   plugins.Time
}

// tuneAfter is how many bytes come before there is anything to tune.
const tuneAfter = 8 << 10

// initialSpace is what the application is taken to read in an RTT before that was measured: the sender's initial window, and less than
// what the buffer lets through in any case.
func (c *Conn) initialSpace() uint32 {
	return min(uint32(c.eng.cfg.InitialWindow)*uint32(c.eng.ourMSS(&c.Tuple)), c.rcvBuf/2)
}

// setRcvBuf sets the receive buffer to n bytes, and how much the application reads before it tells.
func (c *Conn) setRcvBuf(n uint32) {
	c.rcvBuf = n
	c.readStep.Store(n / 8)
}

// measureRTT takes samples of the receiver's round-trip time from a segment with data (Linux: tcp_rcv_rtt_measure and
// tcp_rcv_rtt_measure_ts).
func (e *Engine) measureRTT(c *Conn, t *wire.TCP, o *wire.Options) {
	r := c.rcvTune
	if r == nil {
		if c.rcvOff < tuneAfter {
			return
		}
		r = &rcvTune{space: c.initialSpace(), at: e.now, read: c.rcv.Head(), got: c.rcvOff + c.ooo.Bytes()}
		c.rcvTune = r
	}
	switch {
	case r.winAt == 0:
		r.winEnd, r.winAt = c.rcvAdv, e.now
	case seq.AfterEq(c.rcvNxt, r.winEnd): // a window cannot come in less than an RTT
		if d := max(e.now.Sub(r.winAt), time.Microsecond); r.rtt == 0 || d < r.rtt {
			r.rtt = d
		}
		r.winEnd, r.winAt = c.rcvAdv, e.now
	}
	if !c.tsOK || o.Set&wire.OptTS == 0 || o.TSEcr == r.lastEcr || uint32(len(t.Payload)) < c.rcvMSS {
		return
	}
	r.lastEcr = o.TSEcr
	ticks := int32(tsTick(e.now) - (o.TSEcr - c.tsOffset))
	if ticks <= 0 {
		return // finer than the clock
	}
	d := time.Duration(ticks) * time.Millisecond
	if r.rtt == 0 || d < r.rtt {
		r.rtt = d
	} else {
		r.rtt += (d - r.rtt) / 8
	}
}

// tuneReceive looks, at most once per RTT, how much the application has read, and enlarges the buffer if that has grown.
func (e *Engine) tuneReceive(c *Conn) {
	r := c.rcvTune
	if r == nil || r.rtt == 0 || e.now.Sub(r.at) < r.rtt {
		return
	}
	head := c.rcv.Head()
	waits := c.ooo.Bytes()
	got := c.rcvOff + waits
	copied := int64(head - r.read)
	if copied > 0 && waits > 0 {
		copied = max(copied, int64(got-r.got)) + int64(waits)
	}
	copied -= int64(c.rcvOff - head) // what the application leaves lying it does not need room for
	if copied > int64(r.space) {
		e.growRcvBuf(c, uint64(copied))
	}
	r.at, r.read, r.got = e.now, head, got
}

func (e *Engine) growRcvBuf(c *Conn, copied uint64) {
	r := c.rcvTune
	win := 2*copied + 16*uint64(e.ourMSS(&c.Tuple))
	win += 2 * win * (copied - uint64(r.space)) / uint64(max(r.space, 1)) // slow start of the sender: it will double again
	r.space = uint32(min(copied, maxWindow))
	if win = min(win, uint64(e.cfg.RecvBuffer)); win <= uint64(c.rcvBuf) || c.Tuned().RecvBuffer != 0 || e.env.Budget.Level() >= mem.Pressure {
		return
	}
	c.setRcvBuf(uint32(win))
}

package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/stream"
)

// State is a connection's state (RFC 9293, 3.3.2).
type State uint8

// The states. TIME-WAIT lives in a smaller record (timeWait).
const (
	Closed State = iota
	SynSent
	SynReceived
	Established
	FinWait1
	FinWait2
	CloseWait
	Closing
	LastAck
	TimeWait
)

var stateNames = [...]string{"CLOSED", "SYN-SENT", "SYN-RECV", "ESTAB", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"}

func (s State) String() string { return stateNames[s] }

// synchronized reports whether both ends know each other's sequence numbers (RFC 9293, 3.3.2).
func (s State) synchronized() bool { return s >= Established }

// canReceive reports whether the peer may still send data.
func (s State) canReceive() bool { return s == Established || s == FinWait1 || s == FinWait2 }

// canSend reports whether there may be data, or a FIN, of ours to send or to repeat.
func (s State) canSend() bool {
	return s == Established || s == CloseWait || s == FinWait1 || s == Closing || s == LastAck
}

// Timers of a connection. One wheel entry stands at the earliest.
const (
	timerRtx      = iota // set by the rtx module: RTO, TLP or reordering
	timerBackstop        // the engine's own RTO, if the module is silent
	timerState           // what the state waits for: SYN or SYN-ACK again, zero-window probe, end of FIN-WAIT-2
	timerDelAck
	timerPace
	timerKeepalive
	numTimers
)

// Conn is one connection. The application half is in app.go; everything else belongs to the worker.
type Conn struct {
	App

	Tuple Tuple
	slot  uint32
	eng   *Engine
	gen   uint32
	state State

	tsOK, sackOK, wsOK bool
	sndScale, rcvScale uint8
	inReady            bool  // in the engine's list of connections with something to send
	held               uint8 // waits for the port to complete something
	touched            bool  // in the list of connections that got segments in this turn
	isOpen             bool  // known to modules
	resumeQueued       bool
	resume             [plugins.NumKinds]bool  // a Resume is due before the flow's next event
	mod                [plugins.NumKinds]uint8 // module index per kind
	home               Choice                  // that it is to have; mod is the fallback while that is late or dead

	// Send side. Sequence number sndUna stands for stream offset unaOff.
	iss, sndUna, sndNxt uint32
	sndWnd, maxSndWnd   uint32 // unsigned, 32 bits wide (RFC 9293, MUST-1)
	sndWl1              uint32
	sndSml              uint32 // end of the last segment sent below the MSS (Minshall)
	mss                 uint32 // payload of a full segment
	unaOff              uint64
	ipID                uint16
	finQueued, finSent  bool
	lowat               bool // what may be written ahead is limited by what is unsent (unsentMark)
	flush               bool // until nothing is left, neither Nagle nor a cork holds a small segment
	ackNow              bool
	sendNew             uint8 // new segments that go before retransmissions (F-RTO)
	holdLost            bool  // they were sent: retransmissions wait for the next word of the rtx module
	wantProbe           bool  // the rtx module asked for a tail-loss probe
	probeNow            bool  // a probe of a closed window, or of an idle peer, is due
	synRetries          uint8
	probes              uint8 // unanswered zero-window probes
	persists            uint8 // zero-window probes since the window closed
	keepProbes          uint8 // unanswered keepalive probes
	backstops           uint8 // timeouts of the engine's own since the last progress

	// Receive side. rcvNxt stands for stream offset rcvOff.
	irs, rcvNxt, rcvAdv uint32 // rcvAdv: right edge that the peer was told
	rcvBuf              uint32 // bytes that may wait for the reader, or be missing in between
	rcvOff              uint64
	rcvTune             *rcvTune // sizes rcvBuf; nil until enough has come
	rcvMSS              uint32   // largest segment seen lately
	lastAckSent         uint32
	tsRecent            uint32
	softErr             Errno // what an ICMP error said of what is in flight
	tsRecentAt          plugins.Time
	ackPend             uint32 // bytes received and not acknowledged yet
	maxAcked            uint16 // payload of the largest segment that the peer has acknowledged (RFC 5927, 7.2)
	tsoGoal             uint16 // bytes per burst that cong would like; 0: none
	lastData, lastAck   plugins.Time
	ato                 time.Duration
	ooo                 stream.Ranges
	dsackLo, dsackHi    uint32 // duplicate to report once; equal if none
	finSeq              uint32 // sequence number of the peer's FIN
	tsOffset            uint32
	finSeen             bool // the peer's FIN was received, in order or not
	finRcvd             bool // ... and everything before it
	quickAcks           uint8
	pingpong            bool

	pushed uint32 // send side: end of the last segment with PSH; it stands where it costs no padding

	// Congestion and recovery, as the modules last said.
	cwnd, ssthresh     uint32
	rate               uint64     // cong's pacing rate
	line               *pace.Line // unpaced, or the flow's own
	clk                pace.Clock
	ca                 uint8 // rtx's congestion state
	cwr                bool  // reduction without loss, until cwrEnd is acknowledged
	tellCWR            bool
	wantsPRR           bool
	cwndLimited        bool
	decided            bool   // cong has answered since the barrier
	rtxTimer           uint8  // kind of timerRtx
	replay             uint8  // what of the log the new rtx module has been told
	appLimited         uint64 // delivered count up to which rate samples are application-limited; 0: not
	cwrEnd             uint32
	cwndSeq, maxFlight uint32
	queued             uint32 // payload bytes that the port has not completed
	barrier            uint64 // id of the last RTO, recovery entry, undo or swap: decisions older than it are dropped
	pacedSRTT          uint32 // µs, that pace was last told
	credit             int32  // of fair queueing, bytes
	burst              burst
	lastEvent          uint64 // id of the last rtx event
	aux                [3]uint64

	out        *outstanding // what is in flight; nothing if idle
	txID       uint32
	ackIdx     int32 // index+1 of this turn's mergeable Ack event
	stat       stat
	stallSince plugins.Time // first RTO, or first probe of a closed window, without an answer; 0: none

	due [numTimers]plugins.Time

	listener *Listener
	neigh    neigh.Ref

	nextAnswer plugins.Time // limits answers to unacceptable segments

	openedAt    plugins.Time
	lastSend    plugins.Time
	chronoAt    plugins.Time // since when it is what chrono says
	count       Counts
	x           *extra // what few connections need; nil for the others
	newData     bool   // bytes arrived in this turn that the reader has not been told of
	batchPushed bool   // ... in several segments, the last of which has PSH
	refused     bool   // the next departure lies beyond the line's horizon: writers wait
	unresolved  bool
	orphan      bool // the application has closed it
	starved     bool // its writer found no memory
	counted     bool // in Stats.Orphans
	chrono      chrono
}

// extra is what few connections need.
type extra struct {
	fo                         *fastOpen     // nil without Fast Open
	ecn                        *ecnState     // nil without ECN
	timeout                    *userTimeout  // nil without the user timeout option
	rwndLimited, sndbufLimited time.Duration // see chrono
	path                       *path         // nil: the interface's MTU, as far as is known
	urgent                     uint64        // stream offset behind the last urgent byte that the peer has announced; 0: none
	reordering                 reordering
}

// more returns c's extra, which it makes if there is none.
func (c *Conn) more() *extra {
	if c.x == nil {
		c.x = new(extra)
	}
	return c.x
}

// stat is what the rtx module last said of the flow.
type stat struct {
	srtt, minRTT             time.Duration
	rttvar, rto              uint32 // µs
	delivered                uint64
	deliveredTime, firstSent plugins.Time
	lost                     uint64
	rateDelivered            uint64
	rateInterval             time.Duration
	backoff                  uint8
	rateAppLimited           bool
}

// Counts are a connection's counters.
type Counts struct {
	BytesRetrans                             uint64
	SegsOut, SegsIn, DataSegsOut, DataSegsIn uint64
	Retrans, LostSegs, DSACKs, OOO           uint32
	Busy                                     time.Duration
}

// inFlight is the engine's own account: what is outstanding, less what was SACKed or lost and not sent again. Commands that come
// late make it too high, never too low.
func (c *Conn) inFlight() uint32 {
	n := c.sndNxt - c.sndUna - c.out.log.sacked - c.out.log.lost
	return n - min(n, c.out.dups)
}

// off is the stream offset of the sequence number s.
func (c *Conn) off(s uint32) uint64 { return c.unaOff + uint64(int64(int32(s-c.sndUna))) }

func (c *Conn) flow() plugins.Flow { return plugins.Flow{Slot: c.slot, Gen: c.gen} }

// caState is the congestion state that modules and users see.
func (c *Conn) caState() uint8 {
	if c.cwr && c.ca < cong.CARecovery {
		return cong.CACWR
	}
	return c.ca
}

// minSendBuffer is the least that a connection lets the application write ahead.
const minSendBuffer = 256 << 10

// setCwnd sets the congestion window, and with it how far the application may write ahead.
func (c *Conn) setCwnd(cwnd uint32) {
	c.cwnd = cwnd
	c.sizeSendBuffer()
}

// sizeSendBuffer lets the application write ahead two windows (as Linux does), so that there is always something to send, and no more,
// so that it is still warm when it is sent. For a congestion control that does not follow losses (BBR) it is three windows, as in Linux: its
// window stays open while a hole waits for a retransmission that was lost as well, and what was SACKed above the hole fills the buffer.
// With a large window it is a bound on what is unsent, whatever the peer has SACKed.
func (c *Conn) sizeSendBuffer() {
	if c.refused {
		c.sndLimit.Store(0)
		return
	}
	if c.lowat = c.unsentMark() > 0; c.lowat {
		c.eng.limitUnsent(c)
		return
	}
	c.setSendLimit(c.bufferLimit())
}

// setSendLimit sets how many bytes the send stream may hold.
func (c *Conn) setSendLimit(limit uint64) {
	if old := c.sndLimit.Load(); limit < old || c.Tuned().SendBuffer != 0 || c.eng.env.Budget.Level() < mem.Pressure { // under pressure buffers do not grow
		c.sndLimit.Store(limit)
	}
}

// bufferLimit is sizeSendBuffer's result, or what the application has set.
func (c *Conn) bufferLimit() uint64 {
	if n := c.Tuned().SendBuffer; n != 0 {
		return uint64(n)
	}
	windows := uint64(2)
	if !c.wantsPRR {
		windows = 3
	}
	return min(max(windows*c.usedWindow(), minSendBuffer), uint64(c.eng.cfg.SendBuffer))
}

// usedWindow is the congestion window as far as the flow uses it: beyond twice of what is ever in flight something else limits it.
func (c *Conn) usedWindow() uint64 { return min(uint64(c.cwnd), 2*uint64(c.maxFlight)) }

// writeAhead is what a flow with a large window may have unsent: enough until its writer has run, little beside the window.
const writeAhead = 4 << 20

// unsentMark is how many bytes may be written beyond what was sent, where that is the limit rather than the send buffer: the application
// wants it so, or the window is large. Else 0.
func (c *Conn) unsentMark() uint64 {
	if n := c.Tuned().NotSentLowat; n > 0 {
		return uint64(n)
	}
	if c.Tuned().SendBuffer != 0 || c.usedWindow() <= writeAhead {
		return 0
	}
	return writeAhead
}

// setTimer arms timer k. The wheel's entry moves only if it would come too late.
func (c *Conn) setTimer(k int, at plugins.Time) {
	c.due[k] = at
	if at < c.eng.wheel.At(c.slot) {
		c.eng.wheel.Set(c.slot, at)
	}
}

// stopTimer disarms timer k. The wheel's entry stays: firing early costs less than moving it.
func (c *Conn) stopTimer(k int) { c.due[k] = plugins.Never }

// nextDue is the earliest of the connection's timers, and of the application's deadlines behind now.
func (c *Conn) nextDue(now plugins.Time) plugins.Time {
	at := plugins.Never
	for _, d := range c.due {
		at = min(at, d)
	}
	return min(at, c.appDeadline(now))
}

// rto is the present retransmission timeout; before the first RTT sample the initial one (RFC 6298, 2.1).
func (c *Conn) rto() time.Duration {
	if c.stat.rto == 0 {
		return rtoInitial
	}
	return max(time.Duration(c.stat.rto)*time.Microsecond, rtoMin)
}

// unpaced is the line of flows that no module has given one.
var unpaced = pace.Line{Rate: plugins.Unlimited, Horizon: 1<<63 - 1}

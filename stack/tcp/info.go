package tcp

import (
	"net/netip"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Info is a snapshot of a connection, with the fields of `ss -tin`. Byte counts and rates are of payload.
type Info struct {
	Worker                         int
	Flow                           plugins.Flow
	State                          string
	Local, Remote                  netip.AddrPort
	RecvQueue, SendQueue           uint64 // bytes not read by the application; bytes not acknowledged by the peer
	NotSent                        uint64
	BytesSent                      uint64 // retransmissions included
	BytesAcked, BytesReceived      uint64
	Cong, Pace, Rtx                string // module names
	CongAux                        [3]uint64
	SndScale, RcvScale             uint8
	Timestamps, SACK               bool
	ECN, AccECN                    bool      // ECN is in use; as AccECN
	FastOpen                       bool      // data in the SYN was taken (RFC 7413)
	ECNSeen                        bool      // the peer has sent data as ECN-capable
	CEState                        bool      // ECN: the last data that came was marked
	ECNBytesIn, ECNBytesOut        [4]uint32 // AccECN: payload by IP-ECN field that came; that the peer reports, modulo 2^32
	CEIn, CEOut                    uint32    // AccECN: segments with a congestion mark that came; that the peer reports
	RTO, RTT, RTTVar, MinRTT       time.Duration
	Urgent                         uint64        // bytes up to the end of the urgent data that the peer has announced, which the application has not read
	SoftErr                        Errno         // what an ICMP error said of what is in flight now (RFC 9293, MUST-47); OK: nothing
	UserTimeout, PeerTimeout       time.Duration // the most that data may stay unacknowledged; what the peer advertises for itself (RFC 5482), 0: nothing
	MSS, PeerMSS, RcvMSS           uint32
	Cwnd, Ssthresh, InFlight       uint32 // bytes; Ssthresh is cong.InfiniteSsthresh before the first reduction
	SndWnd, RcvWnd                 uint32
	CAState                        string
	PacingRate, DeliveryRate       uint64 // bytes/s; plugins.Unlimited if unpaced
	MaxRate                        uint64
	SendRate                       uint64 // cwnd / RTT, bytes/s; 0: no RTT yet
	Delivered                      uint64 // bytes that the peer has acknowledged, cumulatively or by SACK
	Options                        uint32 // option bits: OptNoDelay, …
	DeliveryAppLimited, AppLimited bool
	Lost, Sacked                   uint32 // bytes
	Unacked                        uint32 // segments
	Backoff                        uint8
	Probes                         uint8 // of a closed window or an idle peer, not answered yet
	Counts                         Counts
	RetransOut                     uint32 // segments that were sent again, and are neither acknowledged nor lost anew
	Reordering, ReordSeen          uint32 // segments that one was overtaken by at most, 3 before any was; acknowledgements that told of it
	Age, LastSend, LastRecv        time.Duration
	LastAck                        time.Duration
	ATO                            time.Duration // delayed acknowledgement
	AdvMSS                         uint32        // announced to the peer
	PMTU                           uint32        // bytes of a full segment's packet
	RcvRTT                         time.Duration // as the receiver estimates it; 0: not known
	RcvSpace                       uint32        // bytes that the application reads in an RTT
	RcvBuf                         uint32        // bytes that the receive buffer may hold now
	SndBuf                         uint64        // ... and the send buffer
	RwndLimited, SndbufLimited     time.Duration // parts of Counts.Busy: for want of the peer's window, of send buffer
	Timer                          string        // that expires next: "rto", "delack", "persist", …; empty if none runs
	TimerIn                        time.Duration
}

var caNames = [...]string{"open", "disorder", "cwr", "recovery", "loss"}

// Info returns a snapshot of c. Only the worker calls it.
func (e *Engine) Info(c *Conn) Info {
	i := Info{
		Flow: c.flow(), ATO: c.ato, AdvMSS: uint32(e.ourMSS(&c.Tuple)), SoftErr: c.softErr, Urgent: c.urgentLeft(), State: c.state.String(), Local: c.Tuple.LocalAddr(), Remote: c.Tuple.RemoteAddr(),
		RecvQueue: c.rcv.Tail() - c.rcv.Head(), SendQueue: c.snd.Tail() - c.snd.Head(),
		SndScale: c.sndScale, RcvScale: c.rcvScale, Timestamps: c.tsOK, SACK: c.sackOK,
		RTO: c.rto(), RTT: c.stat.srtt, RTTVar: time.Duration(c.stat.rttvar) * time.Microsecond, MinRTT: c.stat.minRTT,
		BytesAcked: c.unaOff, BytesReceived: c.rcvOff,
		MSS: c.mss, RcvMSS: c.rcvMSS, Cwnd: c.cwnd, Ssthresh: c.ssthresh, InFlight: c.inFlight(), SndWnd: c.sndWnd,
		PMTU: c.mss + c.overhead(), RcvWnd: c.rcvAdv - c.rcvNxt, RcvBuf: c.rcvBuf, SndBuf: c.sndLimit.Load(), CAState: caNames[c.caState()], PacingRate: c.line.Rate, MaxRate: c.Tuned().maxRate(),
		DeliveryAppLimited: c.stat.rateAppLimited, AppLimited: c.appLimited != 0,
		Lost: c.out.log.lost, Sacked: c.out.log.sacked, Unacked: (c.sndNxt - c.sndUna + c.mss - 1) / max(c.mss, 1), Backoff: c.stat.backoff, Probes: max(c.probes, c.keepProbes), Counts: c.count, CongAux: c.aux,
		Age: e.now.Sub(c.openedAt), LastSend: e.now.Sub(c.lastSend), LastRecv: e.now.Sub(c.lastData),
		LastAck: e.now.Sub(c.lastAck), RetransOut: c.retransOut(), Reordering: reorderingDefault,
	}
	if fo := c.fo(); fo != nil {
		i.FastOpen = fo.used
		if fo.pending {
			i.State = SynReceived.String()
		}
	}
	if c.x != nil {
		i.Reordering, i.ReordSeen = max(i.Reordering, c.x.reordering.degree), c.x.reordering.seen
	}
	i.UserTimeout = e.stallLimit(c)
	if u := c.userTimeout(); u != nil {
		i.PeerTimeout = u.remote
	}
	if x := c.ecn(); x != nil {
		i.ECN, i.AccECN, i.ECNSeen, i.CEState, i.CEIn, i.CEOut = x.mode != ecnNone, x.mode == ecnAccurate, x.seen, x.ce, x.rCE, x.sCE
		for cp := range i.ECNBytesIn {
			i.ECNBytesIn[cp], i.ECNBytesOut[cp] = x.rBytes[cp]-ecnBytesStart[cp], x.sBytes[cp]-ecnBytesStart[cp]
		}
	}
	if c.state.synchronized() {
		i.BytesSent = min(c.off(c.sndNxt), c.snd.Tail()) + c.count.BytesRetrans
		i.NotSent = c.snd.Tail() - min(c.off(c.sndNxt), c.snd.Tail())
	}
	if c.stat.rateInterval > 0 {
		i.DeliveryRate = cong.MulDiv(c.stat.rateDelivered, uint64(time.Second), uint64(c.stat.rateInterval))
	}
	if c.stat.srtt > 0 {
		i.SendRate = cong.MulDiv(uint64(c.cwnd), uint64(time.Second), uint64(c.stat.srtt))
	}
	i.Delivered, i.Options = c.stat.delivered, c.opts.Load()
	i.Counts.Busy, i.RwndLimited, i.SndbufLimited = c.limited(e.now)
	i.RcvSpace = c.initialSpace()
	if c.rcvTune != nil {
		i.RcvRTT, i.RcvSpace = c.rcvTune.rtt, c.rcvTune.space
	}
	if c.isOpen {
		i.Cong = e.of(c, plugins.Cong).name
		i.Pace = e.of(c, plugins.Pace).name
		i.Rtx = e.of(c, plugins.Rtx).name
	}
	i.Timer, i.TimerIn = c.nextTimer(e.now)
	return i
}

// retransOut counts the segments in flight that were sent again. There are none but in recovery, after a timeout, and behind a probe.
func (c *Conn) retransOut() (n uint32) {
	if c.count.Retrans == 0 {
		return 0
	}
	log := &c.out.log
	for p := log.start(0); ; p = log.next(p) {
		s := log.get(p)
		if s == nil {
			return n
		}
		if s.mark&(rtx.MarkRetrans|rtx.MarkSacked|rtx.MarkLost) == rtx.MarkRetrans {
			n += s.packets(max(c.mss, 1))
		}
	}
}

// nextTimer names the timer that expires next, and says when.
func (c *Conn) nextTimer(now plugins.Time) (name string, in time.Duration) {
	first, at := 0, plugins.Never
	for k, d := range c.due {
		if d < at {
			first, at = k, d
		}
	}
	if at == plugins.Never {
		return "", 0
	}
	switch first {
	case timerRtx:
		name = [...]string{rtx.TimerNone: "rto", rtx.TimerRTO: "rto", rtx.TimerTLP: "tlp", rtx.TimerReorder: "reorder"}[c.rtxTimer]
	case timerBackstop:
		name = "backstop"
	case timerState:
		switch c.state {
		case SynSent, SynReceived:
			name = "handshake"
		case FinWait2:
			name = "finwait2"
		default:
			name = "persist"
		}
	case timerDelAck:
		name = "delack"
	case timerPace:
		name = "pace"
	case timerKeepalive:
		name = "keepalive"
	}
	return name, max(at.Sub(now), 0)
}

// Conns calls f for every connection but those in TIME-WAIT. Only the worker calls it.
func (e *Engine) Conns(f func(*Conn)) {
	for i := range e.slots {
		if c := e.slots[i].conn; c != nil {
			f(c)
		}
	}
}

// HalfOpens calls f for every connection in SYN-RECEIVED after a passive open, with what is known of it. Only the worker calls it.
func (e *Engine) HalfOpens(f func(Info)) {
	for i := range e.slots {
		if en := &e.slots[i]; en.half != nil {
			h := en.half
			f(Info{
				Flow: plugins.Flow{Slot: uint32(i), Gen: en.gen}, State: SynReceived.String(), Timestamps: h.peer.tsOK, SACK: h.peer.sackOK,
				Local: h.tuple.LocalAddr(), Remote: h.tuple.RemoteAddr(), SndScale: h.peer.scale, PeerMSS: uint32(h.peer.mss),
				Timer: "handshake", TimerIn: max(e.wheel.At(uint32(i)).Sub(e.now), 0), Backoff: h.retries, Age: e.now.Sub(h.at),
			})
		}
	}
}

// TimeWaits calls f for every connection in TIME-WAIT, with what is still known of it: its place, state, addresses and timer. Only the
// worker calls it.
func (e *Engine) TimeWaits(f func(Info)) {
	for i := range e.slots {
		if en := &e.slots[i]; en.tw != nil {
			f(Info{
				Flow: plugins.Flow{Slot: uint32(i), Gen: en.gen}, State: TimeWait.String(), Timestamps: en.tw.tsOK,
				Local: en.tw.tuple.LocalAddr(), Remote: en.tw.tuple.RemoteAddr(),
				Timer: "timewait", TimerIn: max(e.wheel.At(uint32(i)).Sub(e.now), 0),
			})
		}
	}
}

// Field is one named counter.
type Field struct {
	Name  string // snake_case
	Value *uint64
}

// Fields lists the counters by name.
func (s *Stats) Fields() []Field {
	v := reflect.ValueOf(s).Elem()
	out := make([]Field, v.NumField())
	for i := range out {
		out[i] = Field{snake(v.Type().Field(i).Name), v.Field(i).Addr().Interface().(*uint64)}
	}
	return out
}

// snake turns TxFull into tx_full and OutRsts into out_rsts; runs of capitals stay together (PAWS is paws, RTOs is rtos).
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) {
			if i > 0 && unicode.IsLower(rune(s[i-1])) {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

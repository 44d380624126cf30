package rtx

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// sample is the send-time snapshot of the newest segment that was delivered (RS of draft-ietf-ccwg-bbr, 4.1.2.3).
type sample struct {
	txid           uint32
	valid          bool
	appLimited     bool
	txInFlight     uint32
	lost           uint32
	priorDelivered uint64
	priorTime      plugins.Time
	sent           plugins.Time
	sendElapsed    int64
}

// consider makes g the sampled segment if it was sent after the present one.
func (s *sample) consider(g *segment) {
	if s.valid && !seq.After(g.txid, s.txid) {
		return
	}
	*s = sample{
		txid: g.txid, valid: true, appLimited: g.is(segAppLimited), txInFlight: g.txInFlight, lost: g.lost,
		priorDelivered: g.delivered, priorTime: g.deliveredTime, sent: g.sent, sendElapsed: int64(g.sent - g.firstSent),
	}
}

// snapshot stamps g with a transmission (draft-ietf-ccwg-bbr, 4.1.2.2). The flow's in-flight figure must include it already.
func (f *flow) snapshot(g *segment, ev *Event) {
	g.sent, g.txid = ev.Time, ev.TxID
	g.firstSent, g.deliveredTime = f.firstSent, f.deliveredTime
	g.delivered, g.lost = f.delivered, uint32(f.lost)
	g.txInFlight = f.inFlight()
	g.flags &^= segAppLimited | segMixed
	if ev.Flags&FlagAppLimited != 0 {
		g.flags |= segAppLimited
	}
}

// rate completes the batch's sample (draft-ietf-ccwg-bbr, 4.1.2.3).
func (m *module) rate(f *flow, b *batch, c *Command) {
	s := &b.sample
	if !s.valid || s.priorDelivered > f.delivered { // the latter only if a log was wrong
		return
	}
	c.SendTime, c.TxInFlight, c.LostSinceSend = s.sent, s.txInFlight, uint32(f.lost)-s.lost
	if s.appLimited {
		c.Flags |= FlagCmdAppLimited
	}
	c.PriorDelivered = s.priorDelivered
	interval := max(s.sendElapsed, int64(f.deliveredTime-s.priorTime))
	c.Interval = time.Duration(max(interval, 0))
	// An interval below the least RTT is implausible: a retransmission's ambiguous acknowledgement. While the peer reneges nothing
	// counts, as in Linux.
	if f.delivered > s.priorDelivered && interval > 0 && interval >= f.minRTT.get() && !f.has(flowReneged) {
		c.Flags |= FlagRateValid
	}
}

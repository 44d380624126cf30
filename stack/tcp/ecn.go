package tcp

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ECN says whether connections use explicit congestion notification.
type ECN uint8

// Modes of ECN, as net.ipv4.tcp_ecn of Linux has them.
const (
	ECNDefault     ECN = iota // of a connection: the stack's; of a stack: ECNPassive
	ECNOff                    // never (0)
	ECNPassive                // classic ECN if the peer asks for it (2)
	ECNOn                     // classic ECN is asked for, and taken up (1)
	ECNAccurate               // AccECN is asked for; AccECN and classic ECN are taken up (3)
	ECNServesBoth             // as ECNAccurate, but classic ECN is asked for (4)
	ECNPassiveBoth            // as ECNAccurate, but nothing is asked for (5)
)

// asks reports whether active opens ask for ECN, and servesAccurate whether AccECN is taken up.
func (m ECN) asks() bool           { return m == ECNOn || m == ECNAccurate || m == ECNServesBoth }
func (m ECN) servesAccurate() bool { return m >= ECNAccurate }

// ecnMode is how a connection or listener that begins with s, which may be nil, uses ECN.
func (e *Engine) ecnMode(s *Setup) ECN {
	if s != nil && s.ECN != ECNDefault {
		return s.ECN
	}
	return e.cfg.ECN
}

// What a connection negotiated.
const (
	ecnNone     uint8 = iota
	ecnClassic        // RFC 3168
	ecnAccurate       // RFC 9768
)

// ace are the flags of the ACE field (RFC 9768, 3.2.2).
const ace = wire.AE | wire.CWR | wire.ECE

// aceShift is the position of the ACE field's lowest bit among the flags, whose bits lie side by side.
const aceShift = 6

// aceStart is the value at which the counters of CE marks begin (RFC 9768, 3.2.1).
const aceStart = 5

// synEcho is how a SYN-ACK, or the ACK that ends the handshake, says which IP-ECN field the SYN or SYN-ACK had that it answers
// (RFC 9768, tables 2 and 3).
var synEcho = [4]uint16{wire.NotECT: 0b010, wire.ECT1: 0b011, wire.ECT0: 0b100, wire.CE: 0b110}

// offered is what a SYN with these flags asks for (RFC 3168, 6.1.1; RFC 9768, 3.1.3: what is not known is AccECN).
func offered(flags uint16) uint8 {
	switch flags & ace {
	case 0:
		return ecnNone
	case wire.CWR | wire.ECE:
		return ecnClassic
	}
	return ecnAccurate
}

// takeUp is what a listener's end makes of a SYN's flags. An end without AccECN does not look at AE.
func (m ECN) takeUp(flags uint16) uint8 {
	switch {
	case m == ECNOff:
		return ecnNone
	case m.servesAccurate():
		return offered(flags)
	case flags&(wire.CWR|wire.ECE) == wire.CWR|wire.ECE:
		return ecnClassic
	}
	return ecnNone
}

// ecnState is what a connection with ECN keeps for it.
type ecnState struct {
	mode    uint8
	asked   uint8 // what our SYN asked for, until the answer has come
	ect     bool  // new data is sent as ECT(0)
	seen    bool  // the peer has sent data as ECT
	ce      bool  // the last data that came was marked: DCTCP.CE of RFC 8257, 3.2
	plain   bool  // the last SYN that we sent asked for nothing
	passive bool  // it came of a SYN to a listener
	first   bool  // no segment without SYN has come yet
	options bool  // the peer sends AccECN options, so that they get through
	echo    bool  // classic: ECE on all segments, until CWR comes
	cwr     bool  // classic: CWR goes with the next new data
	hit     bool  // the peer has reported congestion, and congestion control has not been told
	beyond  bool  // ... beyond what the present reduction is for
	entered bool  // ... and CWR was entered for it
	answer  uint8 // what the next bare acknowledgement says in place of the counter; 0: the counter
	last    uint8 // IP-ECN field of the last segment
	unsaid  uint8 // CE marks since the last acknowledgement
	marked  uint32
	saidCE  uint32 // rBytes[CE] in the last option
	// Counters of CE-marked segments, less aceStart: ours of what has come, and of what the peer says that it got.
	rCE, sCE uint32
	// Counters of payload bytes by IP-ECN field, which start at 1 (ECT) and 0 (CE) (RFC 9768, 3.2.1).
	rBytes, sBytes [4]uint32
}

// ecnBytesStart is where the counters of bytes begin (RFC 9768, 3.2.1).
var ecnBytesStart = [4]uint32{wire.ECT1: 1, wire.ECT0: 1}

func newECN(mode uint8) *ecnState {
	x := &ecnState{mode: mode, ect: true, first: true}
	x.rBytes, x.sBytes = ecnBytesStart, ecnBytesStart
	return x
}

// ecn is the connection's state of ECN; nil without.
func (c *Conn) ecn() *ecnState {
	if c.x == nil {
		return nil
	}
	return c.x.ecn
}

func (c *Conn) noECN() {
	if c.x != nil {
		c.x.ecn = nil
	}
}

// askECN makes the SYN of an active open ask for ECN, unless that made the peer silent lately.
func (e *Engine) askECN(c *Conn, m ECN) {
	c.noECN()
	if !m.asks() || e.ecnHoles.has(&c.Tuple, e.now) {
		return
	}
	c.more().ecn = newECN(ecnNone)
	c.ecn().asked = ecnClassic
	if m == ECNAccurate {
		c.ecn().asked = ecnAccurate
	}
}

// synFlags are the ECN flags of a SYN that was sent tries times before. Classic ECN is asked for once, AccECN twice, since a path
// may drop SYNs that ask (RFC 3168, 6.1.1.1; RFC 9768, 3.1.4.1).
func (x *ecnState) synFlags(tries uint8) uint16 {
	x.plain = false
	switch {
	case x.asked == ecnClassic && tries == 0:
		return wire.CWR | wire.ECE
	case x.asked == ecnAccurate && tries <= 1:
		return ace
	}
	x.plain = true
	return 0
}

// gotSynAck concludes what an active open negotiated.
func (e *Engine) gotSynAck(c *Conn, t *wire.TCP, o *wire.Options) {
	x := c.ecn()
	if x == nil {
		return
	}
	if x.plain { // the path, or the peer, drops SYNs that ask
		e.Stats.EcnFallbacks++
	}
	e.ecnHoles.tried(&c.Tuple, !x.plain, e.now)
	switch f := t.Flags & ace; {
	case x.asked == ecnClassic:
		// Who sent a SYN that did not ask must not send ECT (RFC 3168, 6.1.1).
		if f&(wire.CWR|wire.ECE) == wire.ECE && !x.plain {
			x.mode = ecnClassic
		}
	case f == 0 || f == ace: // no ECN, or a server that reflects flags (RFC 9768, 3.1.2)
	case f == wire.ECE:
		x.mode = ecnClassic
	default:
		x.mode = ecnAccurate
		// Our SYN was Not-ECT: if it came as something else, the path changes the field (RFC 9768, 3.2.2.3). How the SYN-ACK was
		// sent we do not know, so that nothing follows from how it came.
		x.ect = f>>aceShift == synEcho[wire.NotECT] || f == wire.AE|wire.ECE
		x.answer = uint8(synEcho[e.ipECN])
		if e.ipECN == wire.CE {
			x.rCE++ // RFC 9768, 3.2.2.2
		}
	}
	x.asked = ecnNone
	x.options = o.Set&wire.OptAccECN != 0
	if x.mode == ecnNone {
		c.noECN()
		return
	}
	e.countECN(x)
}

// gotSyn concludes what a simultaneous open negotiated: both ends answer as servers do.
func (e *Engine) gotSyn(c *Conn, t *wire.TCP) {
	x := c.ecn()
	if x == nil {
		return
	}
	m := ECNOn
	if x.asked == ecnAccurate {
		m = ECNAccurate
	}
	if x.mode = m.takeUp(t.Flags); x.mode == ecnNone || x.plain {
		c.noECN()
		return
	}
	x.asked, x.last, x.passive = ecnNone, e.ipECN, true
	e.countECN(x)
}

// synAckFlags are the ECN flags of a SYN-ACK, after a SYN whose IP-ECN field was cp.
func synAckFlags(mode, cp uint8) uint16 {
	switch mode {
	case ecnClassic:
		return wire.ECE // RFC 3168, 6.1.1
	case ecnAccurate:
		return synEcho[cp] << aceShift
	}
	return 0
}

// countECN counts a connection that negotiated ECN.
func (e *Engine) countECN(x *ecnState) {
	if x.mode == ecnAccurate {
		e.Stats.AccEcnOpens++
	} else {
		e.Stats.EcnOpens++
	}
}

// ecnInput takes what an acceptable segment says about marks: its IP-ECN field about what it met, its flags about what ours met. It
// comes before the acknowledgement is processed.
func (e *Engine) ecnInput(c *Conn, t *wire.TCP, o *wire.Options) {
	x := c.ecn()
	n := uint32(len(t.Payload))
	if e.ipECN == wire.CE {
		e.Stats.CEIn++
	}
	if n > 0 {
		x.seen = x.seen || e.ipECN != wire.NotECT
		x.ce = e.ipECN == wire.CE
	}
	var acked uint32
	if seq.After(t.Ack, c.sndUna) && seq.BeforeEq(t.Ack, c.sndNxt) {
		acked = t.Ack - c.sndUna
	}
	if x.mode == ecnClassic {
		e.classicInput(c, t, n, acked)
		return
	}
	e.accurateMarks(c, n)
	if x.first {
		x.firstSegment(t, n)
	} else if acked > 0 || o.NSack > 0 && c.tsOK && seq.After(o.TSVal, c.tsRecent) { // not one that others have overtaken
		e.accurateFeedback(c, t, o, acked)
	}
	if o.Set&wire.OptAccECN != 0 {
		x.options = true
	}
	x.first = false
}

// classicInput is RFC 3168, 6.1.
func (e *Engine) classicInput(c *Conn, t *wire.TCP, n, acked uint32) {
	x := c.ecn()
	if t.Flags&wire.CWR != 0 { // the peer has reduced its window, which may be small: it should not have to wait
		x.echo = false
		c.ackNow = c.ackNow || n > 0
	}
	if e.ipECN == wire.CE && n > 0 {
		if !x.echo {
			c.ackNow = true
			c.quickAcks = max(c.quickAcks, 2)
		}
		x.echo = true
	}
	if t.Flags&wire.ECE != 0 && c.sndNxt != c.sndUna {
		e.Stats.ECEIn++
		c.marksReported(t.Ack)
		x.marked += acked
	}
}

// accurateMarks counts the marks of a received segment. The first CE mark, and the first segment without one, are reported at once;
// while they go on, every second one (RFC 9768, 3.2.2.5.1), and never more than six with one acknowledgement, so that the three bits
// of the ACE field are enough.
func (e *Engine) accurateMarks(c *Conn, n uint32) {
	x := c.ecn()
	x.rBytes[e.ipECN] += n
	ce := e.ipECN == wire.CE
	if n > 0 && ce != (x.last == wire.CE) {
		c.ackNow = true
	}
	x.last = e.ipECN
	if !ce {
		return
	}
	x.rCE++
	x.unsaid++
	if x.unsaid >= 2 && n > 0 || x.unsaid >= 3 {
		c.ackNow = true
	}
	if x.unsaid >= 6 {
		e.ackInBurst(c)
	}
	e.makeReady(c)
}

// ackInBurst acknowledges what has come so far, before the rest of the burst is processed.
func (e *Engine) ackInBurst(c *Conn) {
	if c.state.synchronized() && e.prepareHeader(c) {
		e.emit(c, c.sndNxt, wire.ACK, 0, 0)
	}
}

// firstSegment looks at the ACE field of the first segment after the SYN or SYN-ACK. 0 cannot be: something on the path clears it.
// The acknowledgement that ends a handshake says how our SYN-ACK came, which was Not-ECT (RFC 9768, 3.2.2.1 to 3.2.2.4).
func (x *ecnState) firstSegment(t *wire.TCP, n uint32) {
	v := t.Flags & ace >> aceShift
	if v == 0 {
		x.ect = false
	}
	if !x.passive || n > 0 {
		return
	}
	switch v {
	case synEcho[wire.CE]:
		x.sCE = 1
		x.ect = false
	case synEcho[wire.ECT0], synEcho[wire.ECT1]:
		x.ect = false
	}
}

// accurateFeedback counts the marks that the peer reports. The ACE field holds three bits of its counter; when more than seven
// segments are acknowledged at once it may have gone round, and the safe assumption is that it has (RFC 9768, A.2.1), unless the
// bytes in the option say otherwise.
func (e *Engine) accurateFeedback(c *Conn, t *wire.TCP, o *wire.Options, acked uint32) {
	x := c.ecn()
	var bytes uint32
	valid := o.Set&wire.OptAccECN != 0 && o.ECNSet&(1<<wire.CE) != 0
	if valid {
		d := int32((o.ECNBytes[wire.CE]-x.sBytes[wire.CE])<<8) >> 8
		bytes = uint32(max(d, 0))
		for i := range x.sBytes {
			if o.ECNSet&(1<<i) != 0 {
				x.sBytes[i] += uint32(max(int32((o.ECNBytes[i]-x.sBytes[i])<<8)>>8, 0))
			}
		}
	}
	delta := (uint32(t.Flags&ace>>aceShift) - aceStart - x.sCE) & 7
	segments := (acked + c.mss - 1) / c.mss
	if segments > 7 {
		safe := segments - (segments-delta)&7
		if !valid || bytes > delta*c.mss {
			delta = safe
		}
	}
	x.sCE += delta
	if delta == 0 && bytes == 0 {
		return
	}
	e.Stats.ECEIn++
	c.marksReported(t.Ack)
	if !valid {
		bytes = min(delta*c.mss, max(acked, c.mss))
	}
	x.marked += bytes
}

// ecnOutput adds ECN's part to a segment with n bytes of payload: flags, an AccECN option, which may take a block from the SACK option
// that is to follow, and the IP-ECN field. New data is ECT(0); acknowledgements, retransmissions and probes are not (RFC 3168, 6.1.4 to
// 6.1.6; Linux marks the acknowledgements of AccECN too, which is an experiment still).
func (c *Conn) ecnOutput(sq uint32, flags uint16, n uint32, opts, sack []byte) (uint16, []byte, []byte, uint8) {
	x := c.ecn()
	fresh := n > 0 && seq.AfterEq(sq, c.sndNxt)
	tos := uint8(wire.NotECT)
	if fresh && x.ect {
		tos = wire.ECT0
	}
	if x.mode == ecnClassic {
		if x.echo {
			flags |= wire.ECE
		}
		if fresh && x.cwr {
			flags |= wire.CWR
			x.cwr = false
		}
		return flags, opts, sack, tos
	}
	v := uint16(aceStart+x.rCE) & 7
	if x.answer != 0 && n == 0 {
		v = uint16(x.answer)
	}
	x.answer, x.unsaid = 0, 0
	if x.options {
		opts, sack = x.option(opts, sack, c.optionRoom(n, len(opts)+len(sack)))
	}
	return flags | v<<aceShift, opts, sack, tos
}

// optionRoom is how many bytes of options a segment with n bytes of payload takes beside the size that it has already.
func (c *Conn) optionRoom(n uint32, size int) int {
	room := wire.MaxTCPOpts - size
	if n > 0 {
		room = min(room, int(c.mss)-int(n)-(size-c.tsBytes()))
	}
	return room
}

// option appends an AccECN option in at most room bytes: all counters if they fit, and at least those that have changed. For these the
// last of three or more SACK blocks makes room, which the peer has been told before (RFC 9768, 3.2.3.3; as Linux does it).
func (x *ecnState) option(opts, sack []byte, room int) (o, s []byte) {
	need := x.changed()
	const block = 8
	if need > 0 && room < wire.AccECNLen(need) && room+block >= wire.AccECNLen(need) && len(sack) >= 4+3*block {
		sack = sack[:len(sack)-block]
		sack[3] -= block
		room += block
	}
	for n := 3; n >= max(need, 1); n-- {
		if wire.AccECNLen(n) <= room {
			if n > 1 { // ECT(1) and CE
				x.saidCE = x.rBytes[wire.CE]
			}
			return wire.PutAccECN(opts, accECNOrder, n, &x.rBytes), sack
		}
	}
	return opts, sack
}

// feedbackFirst sends an acknowledgement with an AccECN option before a segment with n bytes of payload that has no room for one, if there is
// something to say: the bytes that were marked (RFC 9768, 3.2.3.3: the option goes with every acknowledgement while their counter grows), or
// that few were of many that are acknowledged at once. Without the option the peer has to take it that the three bits of ACE have gone round
// whenever more than seven segments are acknowledged (RFC 9768, A.2.1), as Linux does.
func (e *Engine) feedbackFirst(c *Conn, n uint32) {
	x := c.ecn()
	if x == nil || !x.options || x.rBytes[wire.CE] == x.saidCE && c.rcvNxt-c.lastAckSent <= 7*c.rcvMSS {
		return
	}
	if c.optionRoom(n, c.tsBytes()) < wire.AccECNLen(3) {
		e.ackInBurst(c)
	}
}

// accECNOrder is the order of counters in our options: ECT(1), CE, ECT(0), as in Linux.
const accECNOrder = 1

// changed is how many counters an AccECN option needs to have all that have changed.
func (x *ecnState) changed() int {
	switch {
	case x.rBytes[wire.ECT0] != 1:
		return 3
	case x.rBytes[wire.CE] != 0:
		return 2
	case x.rBytes[wire.ECT1] != 1:
		return 1
	}
	return 0
}

// tsBytes is how long the timestamps in each segment are, which the MSS allows for.
func (c *Conn) tsBytes() int {
	if c.tsOK {
		return tsLen
	}
	return 0
}

// reduced notes that the window was reduced, for whatever reason: classic ECN tells the peer (RFC 3168, 6.1.2).
func (c *Conn) reduced() {
	if c.ecn() != nil && c.ecn().mode == ecnClassic {
		c.ecn().cwr = true
	}
}

// marksReported notes that the acknowledgement ack reports marks. Those of the window that a reduction is under way for do not ask for
// another, even if what ends it comes in the same batch.
func (c *Conn) marksReported(ack uint32) {
	x := c.ecn()
	x.hit = true
	if !c.cwr || seq.After(ack, c.cwrEnd) {
		x.beyond = true
	}
}

// enterCWR reduces the window for marks, at most once per window of data (RFC 3168, 6.1.2; RFC 9768, 1 leaves that to congestion
// control, and ours react to marks as to a loss).
func (e *Engine) enterCWR(c *Conn, m *rtx.Command) {
	e.Stats.EcnReductions++
	c.ecn().entered = true
	c.cwr, c.cwrEnd = true, c.sndNxt
	c.reduce(m.NewlyAcked)
	if c.out.prr.on {
		c.out.prr.acked(m.NewlyAcked, m.NewlyLost, c.sndUna)
	}
}

// report tells congestion control of marks. It returns whether CWR was entered for them.
func (x *ecnState) report(s *cong.Sample) (entered bool) {
	s.Flags |= cong.FlagECE
	s.Marked = min(x.marked, s.Acked)
	entered = x.entered
	if entered {
		s.Flags |= cong.FlagEnter
	}
	x.marked, x.hit, x.beyond, x.entered = 0, false, false, false
	return entered
}

// cwrOver reports whether a reduction without loss has ended: what was in flight then is acknowledged, and with ECN something beyond, so
// that marks on what was sent before it do not count again (as Linux does).
func (c *Conn) cwrOver() bool {
	if c.ecn() != nil {
		return seq.After(c.sndUna, c.cwrEnd)
	}
	return seq.AfterEq(c.sndUna, c.cwrEnd)
}

// answerAgain makes the next bare acknowledgement what the handshake's last one was, since the peer's SYN-ACK has come again
// (RFC 9768, 3.2.2.1).
func (e *Engine) answerAgain(c *Conn, t *wire.TCP) {
	if x := c.ecn(); x != nil && x.mode == ecnAccurate && !x.passive && t.Flags&wire.ACK != 0 && t.Seq == c.irs {
		x.answer = uint8(synEcho[e.ipECN])
	}
}

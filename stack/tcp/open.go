package tcp

import (
	"math/bits"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// newConn makes a connection in state CLOSED and puts it into the table. It returns nil if there is no room.
func (e *Engine) newConn(k *Tuple) *Conn {
	if e.env.Budget.Level() == mem.Full {
		return nil
	}
	slot, ok := e.newSlot()
	if !ok {
		return nil
	}
	c := e.connIn(slot, k)
	e.insert(slot)
	return c
}

// connIn makes a connection in a slot.
func (e *Engine) connIn(slot uint32, k *Tuple) *Conn {
	c := &Conn{Tuple: *k, eng: e, slot: slot, gen: e.slots[slot].gen}
	e.initConn(c)
	e.slots[slot].conn = c
	return c
}

func (e *Engine) initConn(c *Conn) {
	c.snd.Init(e.env.Arena)
	c.rcv.Init(e.env.Arena)
	c.sndLimit.Store(min(minSendBuffer, uint64(e.cfg.SendBuffer)))
	c.setRcvBuf(e.rcvStart())
	c.ssthresh = cong.InfiniteSsthresh
	c.line, c.out = &unpaced, &nothing
	c.openedAt, c.chronoAt = e.now, e.now
	c.ato = atoMin
	for i := range c.due {
		c.due[i] = never
	}
	c.opts.Store(e.options())
	c.credit = firstCredit
	c.tsOffset = e.tsOffset(&c.Tuple)
	c.ipID = uint16(c.tsOffset >> 7)
	if e.cfg.AdvTimeout > 0 {
		e.tuneUserTimeout(c)
	}
	e.Stats.Conns++
}

// options are the option bits that a connection begins with.
func (e *Engine) options() (opts uint32) {
	if e.cfg.NoDelay {
		opts |= OptNoDelay
	}
	if !e.cfg.NoAutoCork {
		opts |= OptAutoCork
	}
	return opts
}

// tsOffset is what a connection's timestamps are shifted by (RFC 7323, 5.4).
func (e *Engine) tsOffset(k *Tuple) uint32 {
	a, b, c, d, w := k.words()
	return uint32(e.env.Keys.Timestamp.siphash(a, b, c, d, w))
}

// isn is the initial sequence number (RFC 6528, 3): a clock of 64 ns ticks (RFC 9293, MUST-8) and a hash of the tuple, whose key nobody
// else knows (MUST-9).
func (e *Engine) isn(k *Tuple) uint32 {
	a, b, c, d, w := k.words()
	return uint32(e.env.Keys.ISN.siphash(a, b, c, d, w)) + uint32(e.now>>6)
}

// ourMSS is the segment size that we announce to the tuple's remote end: what the interface takes, less both headers (RFC 9293, 3.7.1 and
// MUST-67), whatever options there are (RFC 6691).
func (e *Engine) ourMSS(k *Tuple) uint16 {
	if k.Remote.Is4() {
		return uint16(e.cfg.MTU - wire.IPv4Len - wire.TCPLen)
	}
	mtu := e.cfg.MTU
	if e.mtu6 != 0 {
		mtu = min(mtu, e.mtu6)
	}
	return uint16(mtu - wire.IPv6Len - wire.TCPLen)
}

// The peer's segment size if it does not say (RFC 9293, MUST-15), and what we use at least.
const (
	defaultMSS4 = 536
	defaultMSS6 = 1220
	minMSS      = 88
)

func (k *Tuple) defaultMSS() uint32 {
	if k.Remote.Is4() {
		return defaultMSS4
	}
	return defaultMSS6
}

// scaleFor is the window shift for a receive buffer of up to n bytes (RFC 7323, 2.3).
func scaleFor(n int) uint8 {
	return uint8(min(max(bits.Len(uint(n))-16, 0), wire.MaxWScale))
}

// rcvStart is the receive buffer of a new connection.
func (e *Engine) rcvStart() uint32 { return uint32(min(e.cfg.RecvStart, e.cfg.RecvBuffer)) }

// synWindow is the window of a SYN or SYN-ACK: never scaled (RFC 7323, 2.2), and as many whole segments as the buffer holds, as Linux
// has it (64240 and 65160 bytes at an MTU of 1500).
func (e *Engine) synWindow(k *Tuple, buf uint32, ts bool) uint16 {
	if buf < 0xffff {
		return uint16(buf)
	}
	seg := uint32(e.ourMSS(k))
	if ts {
		seg -= tsLen
	}
	return uint16(0xffff - 0xffff%seg)
}

// learnSYN takes up what the peer's SYN says.
func (e *Engine) learnSYN(c *Conn, s *synInfo) {
	c.irs, c.rcvNxt = s.irs, s.irs+1
	c.lastAckSent = c.rcvNxt
	c.mss = min(uint32(s.mss), uint32(e.ourMSS(&c.Tuple))) // RFC 9293, MUST-16
	c.sackOK = s.sackOK
	if s.wsOK {
		c.wsOK, c.sndScale, c.rcvScale = true, s.scale, scaleFor(e.cfg.RecvBuffer)
	}
	if s.tsOK {
		c.tsOK, c.tsRecent, c.tsRecentAt = true, s.tsVal, e.now
		c.mss -= tsLen
	}
	c.sndWnd = uint32(s.window)
	c.maxSndWnd = c.sndWnd
	c.sndWl1 = s.irs
	c.rcvAdv = c.rcvNxt + uint32(e.synWindow(&c.Tuple, c.rcvBuf, c.tsOK))
	c.rcvMSS = c.Tuple.defaultMSS()
}

// Connect opens a connection to the tuple's remote end. A LocalPort of 0 is chosen by the engine so that the peer's segments come
// to this worker. The Conn's flags tell the outcome: wait on its Wr until Up.
func (e *Engine) Connect(k Tuple) (*Conn, error) { return e.ConnectAs(k, nil) }

// ConnectAs is Connect with what the connection begins with, if s is not nil.
func (e *Engine) ConnectAs(k Tuple, s *Setup) (*Conn, error) {
	if k.LocalPort == 0 {
		if !e.choosePort(&k) {
			return nil, NotLocal
		}
	}
	iss := uint32(0)
	if e.find(&k) != nil {
		if !e.reusable(&k) {
			return nil, PortInUse
		}
		iss = e.freeTuple(&k)
	}
	c := e.newConn(&k)
	if c == nil {
		return nil, NoMemory
	}
	e.Stats.ActiveOpens++
	c.state = SynSent
	c.iss = or(iss, e.isn(&k))
	c.sndUna, c.sndNxt = c.iss, c.iss
	c.rcvScale = scaleFor(e.cfg.RecvBuffer)
	c.mss = uint32(e.ourMSS(&k))
	e.askECN(c, e.ecnMode(s))
	if s != nil {
		e.setUp(c, s)
		if s.FastOpen {
			e.askFastOpen(c)
		}
	}
	if fo := c.fo(); fo != nil && fo.wait {
		return c, nil
	}
	c.ackNow = true
	e.makeReady(c)
	c.setTimer(timerState, e.now.Add(rtoInitial))
	return c, nil
}

// sendHandshake sends the SYN or the SYN-ACK, if it is due. These have the MSS option (RFC 9293, MUST-14), and no others (MUST-65).
func (e *Engine) sendHandshake(c *Conn) sendResult {
	if !c.ackNow {
		return sendDone
	}
	o := wire.Options{Set: wire.OptMSS, MSS: e.ourMSS(&c.Tuple)}
	flags, ack := wire.SYN, uint32(0)
	wnd := e.synWindow(&c.Tuple, c.rcvBuf, c.tsOK)
	passive := c.state == SynReceived
	if passive {
		flags, ack = wire.SYN|wire.ACK, c.rcvNxt
	}
	if x := c.ecn(); x != nil && !passive {
		flags |= x.synFlags(c.synRetries)
	} else if x != nil { // a simultaneous open
		flags |= synAckFlags(x.mode, x.last)
	}
	if c.sackOK || !passive && !e.cfg.NoSACK {
		o.Set |= wire.OptSACKPerm
	}
	if c.tsOK || !passive && !e.cfg.NoTimestamps {
		o.Set |= wire.OptTS
		o.TSVal, o.TSEcr = e.tsVal(c), c.tsRecent
	}
	if c.wsOK || !passive && !e.cfg.NoWScale {
		o.Set |= wire.OptWScale
		o.WScale = c.rcvScale
	}
	n := uint32(0)
	if !passive {
		n = c.fastSYN(&o)
	}
	offerUserTimeout(&o, e.advertised(c.Tuned()))
	var buf [40]byte
	c.ipID++
	if !e.controlData(&c.Tuple, c.iss, ack, flags, wnd, wire.PutOptions(buf[:0], &o), c.Tuned(), c.ipID, c, n) {
		return sendFull
	}
	c.ackNow = false
	c.count.SegsOut++
	e.Stats.BytesOut += uint64(n)
	if c.sndNxt == c.iss {
		c.lastSend = e.now
	} else {
		c.lastSend = 0 // sent again: which one is acknowledged will not be known (RFC 6298, 3)
	}
	c.sndNxt = seq.Max(c.sndNxt, c.iss+1+n)
	if c.due[timerState] == never {
		c.setTimer(timerState, e.now.Add(rtoInitial))
	}
	return sendDone
}

// handshakeExpired sends the SYN or SYN-ACK again, with back-off (RFC 6298, 5.5), or gives up.
func (e *Engine) handshakeExpired(c *Conn) {
	limit := e.cfg.SynRetries + e.cfg.SynLinear
	if c.state == SynReceived {
		limit = e.cfg.SynAckRetries
	}
	if c.state != SynSent && c.state != SynReceived {
		return
	}
	ends := never
	if d := c.Tuned().UserTimeout; d > 0 { // RFC 5482, 3; Linux takes it for the handshake too
		ends = c.openedAt.Add(d)
	}
	if int(c.synRetries) >= limit || e.now >= ends {
		e.Stats.AttemptFails++
		e.destroy(c, c.timedOut())
		return
	}
	if c.synRetries++; c.synRetries >= r1 {
		e.env.Link.Doubt(c.neigh) // RFC 9293, MUST-22
	}
	c.ackNow = true
	c.setTimer(timerState, min(e.now.Add(e.synTimeout(c)), ends))
	e.makeReady(c)
}

// synTimeout is how long the answer to a SYN or SYN-ACK that is sent again may take. RFC 6298, 5.5 and RFC 8961, 4 (3) demand that every
// timeout doubles; Linux, since 6.5, begins with four of a second each (tcp_syn_linear_timeouts), which those may have who ask for it.
func (e *Engine) synTimeout(c *Conn) time.Duration {
	n := int(c.synRetries)
	if c.state == SynSent {
		n = max(n-e.cfg.SynLinear, 0)
	}
	return min(rtoInitial<<min(n, 10), rtoMax)
}

// synSent is the SYN-SENT state (RFC 9293, 3.10.7.3).
func (e *Engine) synSent(c *Conn, t *wire.TCP, o *wire.Options) {
	acks := t.Flags&wire.ACK != 0
	if acks && (seq.BeforeEq(t.Ack, c.iss) || seq.After(t.Ack, c.sndNxt)) {
		if t.Flags&wire.RST == 0 {
			e.refuse(&c.Tuple, t)
		}
		return
	}
	if t.Flags&wire.RST != 0 {
		if acks {
			e.Stats.AttemptFails++
			e.destroy(c, Refused)
		}
		return
	}
	if t.Flags&wire.SYN == 0 {
		return
	}
	c.rcvScale = 0
	s := e.readSYN(&c.Tuple, t, o)
	e.learnSYN(c, &s)
	e.peerUserTimeout(c, s.userTimeout)
	if !acks { // simultaneous open (RFC 9293, 3.5 and MUST-10)
		e.gotSyn(c, t)
		c.state = SynReceived
		c.ackNow = true
		e.makeReady(c)
		return
	}
	e.gotSynAck(c, t, o)
	e.fastAnswer(c, t, o, s.mss)
	c.sndUna = t.Ack
	c.skipSynData(t.Ack)
	c.ackNow = true
	e.establish(c)
}

// synReceivedAck is the ACK check in SYN-RECEIVED. It returns false if the segment goes no further.
func (e *Engine) synReceivedAck(c *Conn, t *wire.TCP) bool {
	if !seq.After(t.Ack, c.sndUna) || seq.After(t.Ack, c.sndNxt) {
		e.refuse(&c.Tuple, t)
		return false
	}
	if l := c.listener; l != nil && l.full() {
		e.Stats.ListenOverflows++ // another worker has filled it: the SYN-ACK is sent again, and so the ACK
		e.Stats.ListenDrops++
		return false
	}
	c.sndUna = t.Ack
	c.skipSynData(t.Ack)
	c.sndWnd = uint32(t.Window) << c.sndScale
	c.maxSndWnd = c.sndWnd
	c.sndWl1 = t.Seq
	e.establish(c)
	if l := c.listener; l != nil {
		l.syns.Add(-1)
		e.Stats.PassiveOpens++
		if !l.offer(c) {
			e.Stats.ListenOverflows++
			e.Stats.ListenDrops++
			e.reset(c)
			e.destroy(c, Aborted)
			return false
		}
		e.env.Wake(&l.Ready)
		c.listener = nil
	}
	return true
}

// establish enters ESTABLISHED: the flow begins at its modules.
func (e *Engine) establish(c *Conn) {
	c.state = Established
	c.lastAck = e.now
	c.stopTimer(timerState)
	c.sndSml, c.pushed = c.sndUna, c.sndUna
	c.cwndSeq = c.sndUna
	e.openPath(c)
	// RFC 6928, 2; one segment if the SYN or its ACK was lost.
	c.cwnd = min(uint32(e.cfg.InitialWindow)*c.mss, max(2*c.mss, uint32(e.cfg.InitialWindow)*1460))
	first := c.lastSend
	if first == 0 {
		c.lastSend = e.now
	}
	if c.synRetries > 0 {
		c.cwnd = c.mss
	}
	e.openModules(c, first)
	if c.opts.Load()&OptKeepalive != 0 {
		e.armKeepalive(c)
	}
	if c.finQueued {
		c.state = FinWait1
	}
	c.flags.Or(flagUp)
	e.env.Wake(&c.Wr)
	e.makeReady(c)
}

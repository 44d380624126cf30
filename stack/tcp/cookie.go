package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// SynCookies says when SYNs are answered without keeping anything of them (RFC 4987, 3.6).
type SynCookies uint8

// Modes of SYN cookies.
const (
	CookiesOverflow SynCookies = iota // when the listener's SYN queue is full
	CookiesOff                        // never: SYNs that find the queue full are dropped
	CookiesAlways
)

const (
	// cookiePeriod is how long the counter in a cookie stands still; cookieAges is how many of its values are accepted.
	cookiePeriod = 60 * time.Second
	cookieAges   = 2
	// cookieGrace is how long after the last cookie acknowledgements that belong to nothing are taken for cookies.
	cookieGrace = 2 * time.Minute
)

// cookieMSS are the segment sizes that a cookie can carry; the next smaller one counts.
var cookieMSS = [8]uint16{minMSS, 536, 1220, 1300, 1420, 1440, 1460, 8940}

// Low bits of the timestamp of a SYN-ACK with a cookie.
const (
	cookieScale   = 0xf // the peer's window scale; noScale if it has none
	noScale       = 0xf
	cookieSACK    = 1 << 4
	cookieECN     = 1 << 5
	cookieTSBits  = 6
	cookieTSMask  = 1<<cookieTSBits - 1
	cookieLowBits = 24 // of the sequence number: the hash over the counter, plus the index of the MSS
)

// cookie is the initial sequence number that holds what the handshake needs: a hash over the ports and addresses, the peer's
// initial sequence number, the low byte of the counter, and a hash over the counter with the index of the MSS added to it.
func (e *Engine) cookie(k *Tuple, irs, count, mss uint32) uint32 {
	return e.cookieHash(k, 0, 0) + irs + count<<cookieLowBits + (e.cookieHash(k, 1, count)+mss)&(1<<cookieLowBits-1)
}

func (e *Engine) cookieHash(k *Tuple, which int, count uint32) uint32 {
	a, b, c, d, w := k.words()
	return uint32(e.env.Keys.Cookie[which].siphash(a, b, c, d, w<<32|uint64(count)))
}

// openCookie returns the MSS that the cookie holds.
func (e *Engine) openCookie(k *Tuple, irs, cookie uint32) (mss uint16, ok bool) {
	cookie -= e.cookieHash(k, 0, 0) + irs
	count := e.cookieCount()
	age := (count - cookie>>cookieLowBits) & (1<<(32-cookieLowBits) - 1)
	if age >= cookieAges {
		return 0, false
	}
	i := (cookie - e.cookieHash(k, 1, count-age)) & (1<<cookieLowBits - 1)
	if i >= uint32(len(cookieMSS)) {
		return 0, false
	}
	return cookieMSS[i], true
}

// cookieCount is the counter, which rotates slowly. It stays below 2^32 for 8000 years.
func (e *Engine) cookieCount() uint32 { return uint32(e.now / plugins.Time(cookiePeriod)) }

// sendCookie answers a SYN and keeps nothing of it. Without timestamps only the MSS survives.
func (e *Engine) sendCookie(l *Listener, k *Tuple, s *synInfo) {
	mss := 0
	for i, m := range cookieMSS {
		if s.mss >= m {
			mss = i
		}
	}
	var ts uint32
	if s.tsOK {
		ts = e.cookieTime(k, s)
	} else {
		s.sackOK, s.wsOK, s.ecn = false, false, ecnNone
	}
	if e.synAck(k, s, e.cookie(k, s.irs, e.cookieCount(), uint32(mss)), ts, 0, l.tuning()) {
		e.Stats.SyncookiesSent++
		e.syn.cookieUntil = e.now.Add(cookieGrace)
	}
}

// cookieTime is the timestamp of a SYN-ACK, with the options in its low bits. It lies at most 64 ticks in the past, so that the
// clock that the peer sees later never runs backwards.
func (e *Engine) cookieTime(k *Tuple, s *synInfo) uint32 {
	bits := uint32(noScale)
	if s.wsOK {
		bits = uint32(s.scale)
	}
	if s.sackOK {
		bits |= cookieSACK
	}
	if s.ecn != ecnNone {
		bits |= cookieECN
	}
	now := tsTick(e.now) + e.tsOffset(k)
	ts := now&^cookieTSMask | bits
	if int32(ts-now) > 0 {
		ts -= 1 << cookieTSBits
	}
	return ts
}

// cookieMode is which variant of ECN a cookie's acknowledgement shows was negotiated: that of AccECN has an ACE field above 1
// (RFC 9768, 5.1), that of classic ECN has no flags.
func cookieMode(m ECN, flags uint16) uint8 {
	switch {
	case m.servesAccurate() && flags&ace>>aceShift > 1:
		return ecnAccurate
	case m != ECNOff:
		return ecnClassic
	}
	return ecnNone
}

// cookieAck takes an acknowledgement that belongs to no connection for one of a cookie. It returns false if it is none.
func (e *Engine) cookieAck(l *Listener, k *Tuple, t *wire.TCP, o *wire.Options) bool {
	if e.cfg.SynCookies == CookiesOff || e.now >= e.syn.cookieUntil || t.Flags&(wire.SYN|wire.RST) != 0 {
		return false
	}
	mss, ok := e.openCookie(k, t.Seq-1, t.Ack-1)
	if !ok {
		e.Stats.SyncookiesFailed++
		return false
	}
	if l.full() {
		e.Stats.ListenOverflows++
		e.Stats.ListenDrops++
		return true
	}
	if e.env.Budget.Level() == mem.Full {
		e.Stats.ListenDrops++
		return true
	}
	s := synInfo{irs: t.Seq - 1, mss: mss, window: t.Window}
	if o.Set&wire.OptTS != 0 && !e.cfg.NoTimestamps {
		bits := o.TSEcr & cookieTSMask
		s.tsOK, s.tsVal = true, o.TSVal
		s.sackOK = bits&cookieSACK != 0 && !e.cfg.NoSACK
		if scale := bits & cookieScale; scale != noScale && !e.cfg.NoWScale {
			s.wsOK, s.scale = true, uint8(scale)
		}
		if bits&cookieECN != 0 {
			s.ecn = cookieMode(e.ecnMode(l.setup), t.Flags)
		}
	}
	slot, ok := e.newSlot()
	if !ok {
		e.Stats.ListenDrops++
		return true
	}
	e.Stats.SyncookiesRecv++
	c := e.connIn(slot, k)
	e.insert(slot)
	l.syns.Add(1)
	e.received(c, l, &s, t.Ack-1)
	c.count.SegsOut = 1
	c.setTimer(timerState, e.now.Add(rtoInitial))
	e.segmentWith(c, t, o)
	return true
}

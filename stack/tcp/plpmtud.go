package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Packetization layer path MTU discovery (RFC 4821): larger segments of the stream itself are the probes, and only their
// acknowledgement or loss counts, so that it needs no router's word and nobody off the path can lead it astray. Figures are Linux's.

// PathProbing says when segments probe for the path's MTU.
type PathProbing uint8

// Ways to probe.
const (
	ProbeBlackHoles PathProbing = iota // when repeated timeouts make it likely that large packets vanish
	ProbeAlways                        // from the start: segments begin small
	ProbeNever
)

// probe is a search for the largest segment.
type probe struct {
	on        bool
	quiet     uint8        // what congestion control is told of a probe's loss
	low, high uint32       // payload of a segment that arrives, and of the largest that may
	size      uint32       // of the probe under way; 0: none
	end       uint32       // sequence number behind it
	since     plugins.Time // when the search began
}

// Values of probe.quiet.
const (
	loud     uint8 = iota
	quiet          // a probe was lost, and nothing else: nothing
	tellLate       // something else was lost meanwhile: the recovery that was kept from it
)

const (
	baseMSS        = 1024 // where probing begins (RFC 4821, 7.2)
	probeThreshold = 8    // a range as small as this is not searched
	probeEvery     = 10 * time.Minute
	probeWindow    = 11 // segments of congestion window that a probe needs
	blackHoleAfter = 3  // timeouts (RFC 9293, 3.8.3 R1)
)

func (e *Engine) startProbing(c *Conn, size uint32) {
	p := c.pathOf()
	p.on, p.low, p.high, p.size, p.since = true, size, p.full, 0, e.now
	e.shrink(c, size)
}

// blackHole makes segments small when timeout follows timeout (RFC 4821, 7.7): first the base size, then half of it.
func (e *Engine) blackHole(c *Conn) {
	size := uint32(baseMSS)
	if p := c.path(); p != nil && p.on {
		size = min(size, p.low/2)
	}
	if size = max(size, e.floor(c)); size < c.mss {
		e.Stats.BlackHoles++
		e.startProbing(c, size)
	}
}

// probePath sends the next probe, if there is something to find out and enough data behind it for its loss to be noticed (RFC 4821,
// 7.4 and 7.6.2). It returns false if the probe waits for room in the congestion window.
func (e *Engine) probePath(c *Conn) bool {
	p := c.x.path
	size := (p.low + p.high + 1) / 2
	if p.high < p.low+probeThreshold {
		if e.now.Sub(p.since) < probeEvery {
			return true
		}
		if p.since, p.high = e.now, p.full; p.until != plugins.Never { // a router's word still holds
			p.high = min(p.high, c.mss)
		}
		return true
	}
	if p.size != 0 || c.caState() != cong.CAOpen || !c.out.lost.empty() || c.finSent || c.hasSACK() || c.cwnd < probeWindow*c.mss {
		return true
	}
	need := size + 4*c.mss
	if queued := c.snd.Tail() - c.off(c.sndNxt); queued < uint64(need) || c.sndNxt-c.sndUna+need > c.sndWnd {
		return true
	}
	if f := c.inFlight(); f > 0 && f+size > c.cwnd {
		return false
	}
	if !e.paced(c) {
		return false
	}
	mss := c.mss
	c.mss = size // for the log and the rtx module it is one packet
	sent := e.sendNew(c, size, false, 1, 0)
	if c.mss = mss; sent == 0 {
		return true // no room, or no buffer
	}
	p.size, p.end = size, c.sndNxt
	e.Stats.PathProbes++
	return true
}

func (e *Engine) probeArrived(c *Conn) {
	p := c.x.path
	e.Stats.PathProbesAcked++
	c.mss, p.low, p.size = p.size, p.size, 0
}

// probeLost takes the loss of a probe: it was too large, and nothing says that the path is congested (RFC 4821, 7.6.2). It returns false
// if m is about something else.
func (e *Engine) probeLost(c *Conn, m *rtx.Command) bool {
	p := c.x.path
	r := m.Range()
	start := p.end - p.size
	if p.quiet == quiet && p.size == 0 {
		p.quiet = tellLate
		return false
	}
	if p.size == 0 || seq.After(r.Start, start) || seq.Before(r.End, p.end) {
		return false
	}
	alone := r.Len() == p.size && c.out.log.lost == 0 && c.caState() < cong.CACWR
	e.Stats.PathProbesLost++
	p.high, p.size = p.size-1, 0
	if !alone {
		return false
	}
	p.quiet = quiet
	c.out.log.lose(r, m.TxID, c.mss)
	c.out.lost.add(r)
	e.makeReady(c)
	return true
}

// hush hides a recovery from congestion control that nothing but the loss of a probe has caused.
func (p *path) hush(m *rtx.Command) {
	switch {
	case p.quiet == tellLate && m.CA == rtx.CARecovery:
		p.quiet = loud
		m.Flags |= rtx.FlagEnter
	case m.CA == rtx.CALoss:
		p.quiet = loud
	case m.CA < rtx.CARecovery:
		p.quiet = loud
		m.Flags &^= rtx.FlagExit | rtx.FlagUndo
	default:
		m.Flags &^= rtx.FlagEnter | rtx.FlagTLPLoss
		m.CA, m.NewlyLost = rtx.CAOpen, 0
	}
}

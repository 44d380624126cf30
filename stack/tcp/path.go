package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Path MTU discovery (RFC 1191, RFC 8201) from what routers say, with the safeguards of RFC 5927, section 7.2: a message counts only
// if it quotes something in flight; one that contradicts what the peer has acknowledged waits until the quoted data times out.

// path is what a connection knows of its path's MTU, as payload of a segment. Ordinary connections have none.
type path struct {
	full     uint32       // by the interface's MTU and the peer's option
	until    plugins.Time // when what a router said is forgotten; Never: nothing is to forget
	claim    uint32       // smaller size that a router claims and that is not believed yet; 0: none
	claimSeq uint32       // in the quoted segment
	probe
}

const (
	// pathExpiry is how long a smaller size is believed (RFC 1191, 6.3; RFC 8201, 4).
	pathExpiry = 10 * time.Minute
	// minMTU4 is the least MTU believed of an IPv4 path unless the settings say otherwise, as Linux's ip_rt_min_pmtu.
	minMTU4 = 552
	// maxPaths bounds the destinations whose MTU a worker remembers.
	maxPaths = 1024
)

// overhead is what a full segment's packet holds beside its payload.
func (c *Conn) overhead() uint32 {
	n := uint32(wire.IPv6Len + wire.TCPLen)
	if c.Tuple.Remote.Is4() {
		n = wire.IPv4Len + wire.TCPLen
	}
	if c.tsOK {
		n += tsLen
	}
	return n
}

// minMTU is the least MTU that is believed of the path to the tuple's remote end.
func (e *Engine) minMTU(k *Tuple) uint32 {
	if k.Remote.Is4() {
		return uint32(e.cfg.MinPathMTU)
	}
	return wire.MinMTU6 // RFC 8201, 4
}

// floor is the least payload of a full segment.
func (e *Engine) floor(c *Conn) uint32 {
	if m := e.minMTU(&c.Tuple); m > c.overhead()+minMSS {
		return m - c.overhead()
	}
	return minMSS
}

func (c *Conn) path() *path {
	if c.x == nil {
		return nil
	}
	return c.x.path
}

// pathOf returns c's path, which it makes if there is none.
func (c *Conn) pathOf() *path {
	x := c.more()
	if x.path == nil {
		x.path = &path{full: c.mss, until: plugins.Never}
	}
	return x.path
}

// openPath begins with what is known of the destination.
func (e *Engine) openPath(c *Conn) {
	if mtu, until := e.paths.get(c.Tuple.Remote, e.now); mtu != 0 && mtu < c.mss+c.overhead() {
		c.pathOf().until = until
		c.mss = max(mtu-c.overhead(), e.floor(c))
	}
	if e.cfg.PathProbing == ProbeAlways {
		e.startProbing(c, min(baseMSS, c.mss))
	}
}

// plateaus are the MTUs that there are (RFC 1191, 7): for routers that do not say theirs.
var plateaus = [...]uint32{32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68}

// tooBigsPerSecond bounds the words of routers that a worker acts on.
const tooBigsPerSecond = 1000

// tooBig takes a router's word that a packet of c was larger than the next hop takes. The quote is of something in flight.
func (e *Engine) tooBig(c *Conn, q *wire.Quote) {
	e.Stats.TooBigs++
	mtu := q.Rest
	if c.Tuple.Remote.Is4() {
		if mtu &= 0xffff; mtu == 0 { // RFC 1191, 5
			for _, p := range plateaus {
				if mtu = p; p < uint32(q.TotalLen) {
					break
				}
			}
		}
		mtu = max(mtu, uint32(e.cfg.MinPathMTU))
	}
	if mtu < e.minMTU(&c.Tuple) || mtu >= c.mss+c.overhead() || !c.state.canSend() || !e.tooBigs.take(e.now, tooBigsPerSecond) {
		e.Stats.TooBigsIgnored++
		return
	}
	size := max(mtu-c.overhead(), e.floor(c))
	if size >= uint32(c.maxAcked) { // nothing larger has ever arrived: the path's first word
		e.believe(c, size)
		return
	}
	p := c.pathOf() // RFC 5927, 7.2: not before the segment has timed out
	if p.claim == 0 || size < p.claim {
		p.claim, p.claimSeq = size, q.Seq
	}
}

// believe takes a smaller size, for the connection and for others to the same destination.
func (e *Engine) believe(c *Conn, size uint32) {
	p := c.pathOf()
	p.claim, p.until = 0, e.now.Add(pathExpiry)
	if p.on {
		p.low, p.high = min(p.low, size), size
	}
	e.paths.put(c.Tuple.Remote, size+c.overhead(), p.until)
	e.shrink(c, size)
}

// shrink makes segments smaller. What is in flight and larger goes again, in pieces, whatever the congestion window was: the network
// has dropped it for its size (RFC 1191, 6.5; Linux's tcp_simple_retransmit).
func (e *Engine) shrink(c *Conn, size uint32) {
	if size >= c.mss {
		return
	}
	c.mss = size
	e.Stats.PathShrinks++
	log := &c.out.log
	for p := log.start(0); ; p = log.next(p) {
		s := log.get(p)
		if s == nil {
			break
		}
		n := s.len()
		if s.fin {
			n--
		}
		if min(n, uint32(s.unit)) > size && s.mark&(rtx.MarkSacked|rtx.MarkLost) == 0 {
			r := seq.Range{Start: s.seq, End: s.end}
			log.lose(r, s.txID, size)
			c.out.lost.add(r)
		}
	}
	e.makeReady(c)
}

// pathTurn is called before new data leaves, of connections that have a path. It returns false if a probe waits for room in the
// congestion window, and the rest behind it.
func (e *Engine) pathTurn(c *Conn) bool {
	p := c.x.path
	if p.until <= e.now { // try the full size again (RFC 1191, 6.3)
		p.until = plugins.Never
		if p.high = p.full; !p.on {
			c.mss = p.full
		}
	}
	return !p.on || e.probePath(c)
}

// pathAcked drops claims about data that has arrived, and notes a probe's success.
func (e *Engine) pathAcked(c *Conn, ack uint32) {
	p := c.x.path
	if p.claim != 0 && seq.After(ack, p.claimSeq) {
		p.claim = 0
		e.Stats.TooBigsIgnored++
	}
	if p.size != 0 && seq.AfterEq(ack, p.end) {
		e.probeArrived(c)
	}
}

// pathTimeout is called when the head of what is in flight has timed out, for the nth time since the last progress.
func (e *Engine) pathTimeout(c *Conn, n uint8) {
	p := c.path()
	if p != nil {
		p.size, p.quiet = 0, loud // a timeout says nothing about a probe
		if p.claim != 0 && seq.AfterEq(p.claimSeq, c.sndUna) {
			e.believe(c, p.claim)
			return
		}
	}
	if n >= blackHoleAfter && c.state.synchronized() && e.cfg.PathProbing != ProbeNever {
		e.blackHole(c)
	}
}

// paths remembers the MTUs of destinations. One worker owns it. The oldest entries make room.
type paths struct {
	m     map[wire.Addr]pathEntry
	order []wire.Addr // ring, in order of coming
	next  int
}

type pathEntry struct {
	mtu   uint32
	until plugins.Time
}

func (p *paths) get(a wire.Addr, now plugins.Time) (mtu uint32, until plugins.Time) {
	if en, ok := p.m[a]; ok && now < en.until {
		return en.mtu, en.until
	}
	return 0, 0
}

func (p *paths) put(a wire.Addr, mtu uint32, until plugins.Time) {
	if p.m == nil {
		p.m = make(map[wire.Addr]pathEntry)
	}
	if _, ok := p.m[a]; !ok {
		if len(p.order) < maxPaths {
			p.order = append(p.order, a)
		} else {
			delete(p.m, p.order[p.next])
			p.order[p.next] = a
			p.next = (p.next + 1) % maxPaths
		}
	}
	p.m[a] = pathEntry{mtu, until}
}

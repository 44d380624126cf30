// Package frag reassembles IPv4 and IPv6 fragments, and cuts datagrams that are too long for a path into fragments.
//
// A Reassembler is passive: time is an argument, and the caller sends what the rules want sent. It copies what it is given, so that a
// flood of fragments holds no packet buffers, and it is bounded: in bytes, which count in a mem.Budget, in datagrams of one source, and
// in fragments of one datagram. When there is no room the oldest datagrams give way, because an honest one is complete after
// milliseconds and has less to fear from that than from being refused.
//
// A fragment that overlaps another, in whichever family, ends its datagram (RFC 5722; RFC 8200, 4.5): what firewalls and hosts would
// read differently is read by nobody. Exact copies are harmless and dropped.
package frag

import (
	"encoding/binary"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Config of a Reassembler. Zero fields have the default.
type Config struct {
	High, Low    int64         // bytes: above High the oldest datagrams are dropped until less than Low is in use; 4 and 3 MiB
	PerSource    int           // incomplete datagrams of one source; 64
	MaxFragments int           // of one datagram; 128
	MinPayload   int           // bytes in each fragment but the last; 8, the least that RFC 791 lets a router make
	TimeoutV4    time.Duration // from the first fragment that arrived; 30 s
	TimeoutV6    time.Duration // 60 s (RFC 8200, 4.5)
	Budget       *mem.Budget   // default: none
}

func (c *Config) setDefaults() {
	set(&c.High, 4<<20)
	set(&c.Low, c.High/4*3)
	set(&c.PerSource, 64)
	set(&c.MaxFragments, 128)
	set(&c.MinPayload, 8)
	set(&c.TimeoutV4, 30*time.Second)
	set(&c.TimeoutV6, time.Minute)
}

func set[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Stats are a Reassembler's counters.
type Stats struct {
	Datagrams int    // incomplete now, with those that were given up and whose other fragments are still to be dropped
	Bytes     int64  // held now
	Fragments uint64 // that arrived
	Whole     uint64 // datagrams completed, atomic fragments included
	Atomic    uint64 // IPv6 packets with a fragment header that are whole (RFC 6946)
	TimedOut  uint64 // datagrams whose time ran out
	Evicted   uint64 // datagrams that gave way to others
	Drops     [NumDrops]uint64
}

// key names a datagram (RFC 791, 3.2; RFC 8200, 4.5: in IPv6 the protocol is no part of it).
type key struct {
	src, dst wire.Addr
	id       uint32
	proto    uint8
}

// piece is a fragment's payload.
type piece struct {
	off, end int
	data     []byte
}

// datagram is an incomplete datagram. Those of a source, and those of a family, are in lists, oldest first.
type datagram struct {
	key      key
	v6       bool
	dead     bool // given up: its fragments are dropped until the deadline
	age, own links
	src      *source
	deadline plugins.Time

	pieces  []piece // by offset; they do not overlap
	got     int     // bytes of payload
	end     int     // of the whole; -1: not known
	head    []byte  // what precedes the payload in the first fragment; nil until that arrives
	nextAt  int     // IPv6: see Fragment
	proto   uint8   // IPv6: the first fragment's
	ecn     uint8   // set of code points, by 1<<code point
	charged int64   // bytes of its memory
}

// source is the sender of some datagrams.
type source struct {
	addr wire.Addr
	list list
	n    int
}

// Reassembler puts datagrams together. It has one owner, a worker.
type Reassembler struct {
	cfg     Config
	byKey   map[key]*datagram
	sources map[wire.Addr]*source
	age     [2]list // IPv4, IPv6
	blocks  blocks
	spare   []*datagram
	whole   []byte // what Add returned last
	stats   Stats
}

// New returns an empty Reassembler.
func New(c Config) *Reassembler {
	c.setDefaults()
	r := &Reassembler{cfg: c, byKey: map[key]*datagram{}, sources: map[wire.Addr]*source{}}
	for i := range r.age {
		r.age[i].sel = byAge
	}
	r.blocks.budget = c.Budget
	return r
}

// Stats returns the counters.
func (r *Reassembler) Stats() Stats {
	s := r.stats
	s.Datagrams, s.Bytes = len(r.byKey), r.blocks.used
	return s
}

// Add takes a fragment and copies what it needs. If it completes its datagram, whole is that, an IP packet without traces of
// fragmentation, which is valid until the next call; d is None then and whenever the fragment was kept.
func (r *Reassembler) Add(now plugins.Time, f *Fragment) (whole []byte, d Drop) {
	r.stats.Fragments++
	if d = f.check(r.cfg.MinPayload); d == None {
		if f.v6 && f.Offset == 0 && !f.More { // RFC 6946, 4: in isolation, whatever else there is
			r.stats.Atomic++
			whole, d = r.rebuild(f.head(), f.nextAt, f.proto, len(f.payload()), 1<<f.ecn)
			if d == None {
				r.whole = append(r.whole, f.payload()...)
				whole = r.whole
			}
		} else {
			whole, d = r.insert(now, f)
		}
	}
	if d != None {
		r.stats.Drops[d]++
	} else if whole != nil {
		r.stats.Whole++
	}
	return whole, d
}

// insert adds a fragment to its datagram, which it makes if need be.
func (r *Reassembler) insert(now plugins.Time, f *Fragment) ([]byte, Drop) {
	g := r.byKey[f.key()]
	if g != nil && now >= g.deadline { // Poll is late; its time is over in any case
		r.stats.TimedOut++
		r.remove(g)
		g = nil
	}
	if g == nil {
		if g = r.begin(now, f); g == nil {
			return nil, Memory
		}
	}
	if g.dead {
		return nil, Dead
	}
	off, end := f.Offset, f.Offset+len(f.payload())
	at, d := g.place(off, end, f.payload())
	switch {
	case d == Duplicate:
		return nil, d
	case d != None:
	case g.end >= 0 && (end > g.end || !f.More && end != g.end), !f.More && g.last() > end:
		d = End
	case len(g.pieces) == r.cfg.MaxFragments:
		d = Many
	case off == 0 && f.incomplete():
		d = Headers // RFC 8200, 4.5, with the offset 0 as the place that the error points at
	}
	if d != None {
		r.giveUp(g)
		return nil, d
	}
	if !r.keep(g, at, f) {
		return nil, Memory
	}
	if g.end < 0 || g.got < g.end {
		return nil, None
	}
	return r.finish(g)
}

// begin makes a datagram for its first fragment to arrive. It returns nil if there is no room.
func (r *Reassembler) begin(now plugins.Time, f *Fragment) *datagram {
	s := r.sources[f.src]
	if s != nil && s.n >= r.cfg.PerSource {
		r.evict(s.list.first)
		s = r.sources[f.src] // gone with its last one
	}
	if !r.room(overhead, nil) {
		return nil
	}
	var g *datagram
	if n := len(r.spare); n > 0 {
		g, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		g = &datagram{}
	}
	timeout, family := r.cfg.TimeoutV4, 0
	if f.v6 {
		timeout, family = r.cfg.TimeoutV6, 1
	}
	*g = datagram{key: f.key(), v6: f.v6, deadline: now.Add(timeout), pieces: g.pieces[:0], end: -1, charged: overhead}
	if s = r.sources[f.src]; s == nil { // room may have taken it away
		s = &source{addr: f.src, list: list{sel: byOwn}}
		r.sources[f.src] = s
	}
	g.src = s
	s.n++
	s.list.push(g)
	r.age[family].push(g)
	r.byKey[g.key] = g
	return g
}

// place is the index in g.pieces for a payload from off to end. It says if the payload overlaps others, or repeats one of them.
func (g *datagram) place(off, end int, payload []byte) (int, Drop) {
	i := len(g.pieces)
	for i > 0 && g.pieces[i-1].off >= off { // fragments come in order, mostly
		i--
	}
	if i < len(g.pieces) && g.pieces[i].off < end {
		if p := &g.pieces[i]; p.off == off && p.end == end && string(p.data) == string(payload) {
			return 0, Duplicate
		}
		return 0, Overlap
	}
	if i > 0 && g.pieces[i-1].end > off {
		return 0, Overlap
	}
	return i, None
}

// last is the end of what has arrived.
func (g *datagram) last() int {
	if len(g.pieces) == 0 {
		return 0
	}
	return g.pieces[len(g.pieces)-1].end
}

// keep stores a fragment at index at of g.pieces. It reports false if there is no room.
func (r *Reassembler) keep(g *datagram, at int, f *Fragment) bool {
	payload := f.payload()
	need := r.blocks.cost(len(payload))
	if f.Offset == 0 {
		need += r.blocks.cost(len(f.head()))
	}
	if !r.room(need, g) {
		return false
	}
	g.charged += need
	p := piece{f.Offset, f.Offset + len(payload), r.blocks.copy(payload)}
	g.pieces = append(g.pieces, piece{})
	copy(g.pieces[at+1:], g.pieces[at:])
	g.pieces[at] = p
	g.got += len(payload)
	g.ecn |= 1 << f.ecn
	if f.Offset == 0 {
		g.head, g.nextAt, g.proto = r.blocks.copy(f.head()), f.nextAt, f.proto
	}
	if !f.More {
		g.end = p.end
	}
	return true
}

// finish returns the whole of g, and removes it.
func (r *Reassembler) finish(g *datagram) ([]byte, Drop) {
	whole, d := r.rebuild(g.head, g.nextAt, g.proto, g.end, g.ecn)
	if d == None {
		for i := range g.pieces {
			r.whole = append(r.whole, g.pieces[i].data...)
		}
		whole = r.whole
	}
	r.remove(g)
	return whole, d
}

// rebuild begins r.whole with the header of a datagram of n bytes of payload, from head, which precedes the payload in its first
// fragment. ecn is the set of the fragments' code points.
func (r *Reassembler) rebuild(head []byte, nextAt int, proto uint8, n int, ecn uint8) ([]byte, Drop) {
	tos, ok := mergeECN(ecn)
	if !ok {
		return nil, ECN
	}
	if r.whole == nil {
		r.whole = make([]byte, 0, maxPacket)
	}
	e := binary.BigEndian
	if head[0]>>4 == 4 {
		if len(head)+n > maxPayload {
			return nil, TooLong
		}
		h := append(r.whole[:0], head...)
		if tos != keepECN {
			h[1] = h[1]&^3 | tos
		}
		e.PutUint16(h[2:], uint16(len(head)+n))
		e.PutUint16(h[6:], e.Uint16(h[6:])&^0x3fff) // neither MF nor an offset
		h[10], h[11] = 0, 0
		e.PutUint16(h[10:], wire.Fold(wire.Sum(h, 0)))
		r.whole = h
		return h, None
	}
	// RFC 8200, 4.5: the headers before the fragment header, whose last Next Header becomes that of the fragment header.
	if len(head)-fragLen-ipv6Len+n > maxPayload {
		return nil, TooLong
	}
	h := append(r.whole[:0], head[:len(head)-fragLen]...)
	h[nextAt] = proto
	e.PutUint16(h[4:], uint16(len(h)-ipv6Len+n))
	if tos != keepECN {
		h[1] = h[1]&^0x30 | tos<<4
	}
	r.whole = h
	return h, None
}

// keepECN says that the first fragment's code point is right.
const keepECN = 0xff

// mergeECN is the code point of a datagram whose fragments have the code points of the set (RFC 3168, 5.3): congestion that one of
// them met is not lost, and none may be invented for a sender that does not speak ECN, whose datagram then counts as lost.
func mergeECN(set uint8) (ecn uint8, ok bool) {
	const notECT, ce = 1 << 0, 1 << 3
	switch {
	case set&ce == 0 || set == ce:
		return keepECN, true
	case set&notECT != 0:
		return 0, false
	}
	return 3, true
}

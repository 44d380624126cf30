// Package tcp is the TCP engine of one worker: connections, their state machine, the segment log, and the stages of a turn.
//
// An Engine is passive and share-nothing. The worker calls, in this order and once per turn: Begin with the turn's time, Input for
// each received segment, then Mailbox, Timers, Modules and Output. Nothing calls back into an earlier stage. Applications reach
// a connection through its App half, which never touches the worker's part, and through the mailbox.
package tcp

import (
	"math/rand/v2"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/timer"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Config are the engine's settings. The zero value of a field means its default.
type Config struct {
	MTU            int           // of the interface; default 1500
	RecvBuffer     int           // bytes that a connection's receive buffer may grow to; default and most 1 GiB - 16 KiB, the largest window
	MinPathMTU     int           // least MTU believed of an IPv4 path, 68 to 1500; default 552
	PathProbing    PathProbing   // when segments probe for the path's MTU (RFC 4821)
	RecvStart      int           // bytes that it holds at first; default 64 KiB
	SendBuffer     int           // bytes that a connection's send buffer may grow to; default 1 GiB + 4 MiB: more than any window
	InitialWindow  int           // segments (RFC 6928); default 10
	DelAck         time.Duration // delayed acknowledgement; default 40 ms
	TimeWait       time.Duration // default 60 s: twice the 30 s that Linux assumes a segment to live
	FinWait2       time.Duration // of connections that the application has closed; default 60 s
	SynRetries     int           // default 7: a SYN is tried for 255 s (RFC 9293, MUST-23 wants 3 minutes)
	SynLinear      int           // the first so many time-outs of a SYN do not double, and are no retries; default 0 (see synTimeout)
	SynAckRetries  int           // default 5
	OrphanTimeout  time.Duration // ... and one that the application has closed; default 102.2 s (Linux: 8 tries)
	RetransTimeout time.Duration // without progress for this long a connection ends (RFC 9293 R2); default 924.6 s
	AdvTimeout     time.Duration // user timeout that peers are told (RFC 5482); default 0: the option is neither sent nor read
	MinUserTimeout time.Duration // of those that peers bring about; default 100 s
	MaxUserTimeout time.Duration // default 1 h
	KeepaliveIdle  time.Duration // default 2 h (RFC 9293, MUST-28)
	KeepaliveEvery time.Duration // default 75 s
	KeepaliveCount int           // default 9
	PortLow        uint16        // source ports; default 32768..60999
	PortHigh       uint16
	MaxOrphans     int // connections that the application has closed and that are not over; default 65536
	MaxTimeWaits   int // default 262144
	ChallengeLimit int // challenge ACKs per second of all connections, on average; default 1000
	MaxConns       int // default 1<<20
	NoDelay        bool
	NoAutoCork     bool          // see OptAutoCork
	SmallQueues    SmallQueues   // for measurements
	NoBacklogLimit bool          // FIFO and port are filled as far as they take it: to measure what that costs
	PortPatience   time.Duration // how long a flow waits for a port that completes nothing; default 2 ms
	SynCookies     SynCookies
	ECN            ECN
	FastOpenQueue  int  // connections per listener that are open before their handshake is over (RFC 7413); default 0: no Fast Open
	EagerPacing    bool // arm the pacing timer after each send, whether or not anything waits for it: to measure what F11 saves
	NoSACK         bool // options that are neither offered nor taken up
	NoTimestamps   bool
	NoWScale       bool
}

func (c *Config) setDefaults() {
	def(&c.MTU, 1500)
	def(&c.MinPathMTU, minMTU4)
	def(&c.RecvBuffer, 0xffff<<wire.MaxWScale)
	c.RecvBuffer = min(c.RecvBuffer, 0xffff<<wire.MaxWScale)
	def(&c.RecvStart, 64<<10)
	def(&c.SendBuffer, maxWindow+writeAhead) // else a flow that the peer's window limits would pass for one that its application limits
	def(&c.InitialWindow, 10)
	def(&c.DelAck, 40*time.Millisecond)
	def(&c.TimeWait, 60*time.Second)
	def(&c.FinWait2, 60*time.Second)
	def(&c.SynRetries, 7)
	def(&c.SynAckRetries, 5)
	def(&c.RetransTimeout, 924600*time.Millisecond)
	def(&c.OrphanTimeout, 102200*time.Millisecond)
	def(&c.MinUserTimeout, 100*time.Second)
	def(&c.MaxUserTimeout, time.Hour)
	def(&c.MaxOrphans, 1<<16)
	def(&c.MaxTimeWaits, 1<<18)
	def(&c.ChallengeLimit, 1000)
	def(&c.KeepaliveIdle, 2*time.Hour)
	def(&c.KeepaliveEvery, 75*time.Second)
	def(&c.KeepaliveCount, 9)
	def(&c.ECN, ECNPassive)
	def(&c.PortPatience, portPatience)
	def(&c.PortLow, 32768)
	def(&c.PortHigh, 60999)
	def(&c.MaxConns, 1<<20)
}

// Ports is the range of source ports.
func (c Config) Ports() (low, high uint16) {
	c.setDefaults()
	return c.PortLow, c.PortHigh
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Env is what an engine needs from its worker.
type Env struct {
	Pool   *pmd.Pool
	Fifo   *pmd.Fifo
	Caps   pmd.Caps
	MaxTSO int  // most payload of a large frame; see pmd.Info
	Keeps  bool // the port keeps frames until they are sent: Kept tells
	MAC    wire.MAC
	Arena  *mem.Arena
	Budget *mem.Budget
	Keys   Keys
	Seed   uint64
	// Link resolves link addresses. Call Resolved when one that was not known has become known.
	Link Link
	// Mine reports whether the connection's received segments come to this worker.
	Mine func(*Tuple) bool
	// Wake wakes an application goroutine.
	Wake func(*Waiter)
	// Kicked is called from application goroutines when the mailbox was empty and is not any more.
	Kicked func()
}

// Link finds the link addresses of peers.
type Link interface {
	// Resolve returns the link address for dst, or false if it is not known yet; it is then being asked for. The caller keeps ref
	// with the destination, which makes the next call cheap.
	Resolve(ref *neigh.Ref, dst wire.Addr) (wire.MAC, bool)
	// Hold takes a frame that waits for the link address that Resolve did not know (RFC 1122, 2.3.2.2), for ref as it left it.
	Hold(ref neigh.Ref, b *pmd.Buf)
	// Confirm says that the peer behind ref answers.
	Confirm(ref neigh.Ref)
	// Doubt says that what is sent to the peer behind ref gets no answer.
	Doubt(ref neigh.Ref)
}

// Keys are the secrets of all workers of a stack: they are shared, so that a flow looks the same whichever worker it lands on.
type Keys struct {
	ISN, Port, Timestamp, Table, PortTable, FastOpen Key
	Cookie                                           [2]Key // of SYN cookies
}

// NewKeys draws keys from r.
func NewKeys(r *rand.Rand) Keys {
	k := func() Key { return Key{r.Uint64(), r.Uint64()} }
	return Keys{ISN: k(), Port: k(), Timestamp: k(), Table: k(), Cookie: [2]Key{k(), k()}, PortTable: k(), FastOpen: k()}
}

// entry is a slot of the engine: a connection, a half-open one, a TIME-WAIT record, or free.
type entry struct {
	conn *Conn
	half *halfOpen
	tw   *timeWait
	gen  uint32
}

// Engine is one worker's TCP.
type Engine struct {
	cfg   Config
	env   Env
	now   plugins.Time
	wheel *timer.Wheel
	mail  mailbox
	rng   *rand.Rand

	slots     []entry
	freeSlots []uint32
	table     table
	listeners []*Listener

	rtx     kind[rtx.Event, rtx.Command]
	pace    kind[paceEvent, paceLine]
	cong    kind[congSample, congDecision]
	shadow  *shadow                   // nil but while one is watched
	kinds   [plugins.NumKinds]anyKind // the same three
	remotes int                       // modules in other processes: they may answer at any time
	event   uint64                    // id of the last event of any kind

	touched  []*Conn // got segments in this turn
	run      run
	merging  []*Conn // have an acknowledgement in this turn's rtx events that further ones may be merged into
	ready    readyFlows
	resuming []*Conn        // flows that changed owner and wait for their Resume
	dropped  []plugins.Flow // scratch of watchKind
	due      []uint32
	waiting  []*Conn // have something to send and no link address yet
	retry    bool    // some link address has become known
	port     portQueue
	starved  []*Conn // whose writers found no memory; they are woken at feedAt to try again
	feedAt   plugins.Time
	outs     outPool
	headers  [numHeaders]header
	twFree   []*timeWait
	syn      synState
	nextHop  neigh.Ref // scratch of control
	ipECN    uint8     // IP-ECN field of the segment that is being processed
	ecnHoles ecnHoles
	cookies  cookieCache // of servers
	resets   []lastSeg
	paths    paths
	tooBigs  bucket   // messages about the path's MTU
	refusals bucket   // resets for segments of no connection
	dsacks   bucket   // acknowledgements of duplicates, beside the one of each burst
	ports    []uint32 // counters of source ports; nil before the first
	budget   challenges
	mtu6     int  // of the interface for IPv6; 0: as Config says
	idleCwnd bool // in this turn of a connection, what its congestion window still allows was too little to be sent
	fullStop bool // this turn's output stopped for want of room or buffers

	Stats Stats
}

// New makes an engine. now is the present time.
func New(cfg Config, env Env, now plugins.Time) *Engine {
	cfg.setDefaults()
	e := &Engine{cfg: cfg, env: env, now: now, wheel: timer.New(now), due: make([]uint32, 0, 64), dropped: make([]plugins.Flow, 0, 64),
		rng: rand.New(rand.NewPCG(env.Seed, 0x7463702d656e67))}
	e.mail.wake = env.Kicked
	e.port.backlog = newBacklog()
	e.kinds = [plugins.NumKinds]anyKind{plugins.Rtx: &e.rtx, plugins.Pace: &e.pace, plugins.Cong: &e.cong}
	e.rtx.apply, e.pace.apply, e.cong.apply = e.applyRtx, e.applyPace, e.applyCong
	e.table.init()
	e.outs.rings.budget = env.Budget
	return e
}

// Begin starts a turn at the given time.
func (e *Engine) Begin(now plugins.Time) { e.now = max(now, e.now) }

// Now is the turn's time.
func (e *Engine) Now() plugins.Time { return e.now }

// Input processes one segment that is addressed to this host. p and t may alias the frame; nothing of it is kept.
func (e *Engine) Input(p *wire.Packet, t *wire.TCP) {
	e.Stats.SegsIn++
	e.ipECN = p.TOS & 3
	key := Tuple{Local: p.Dst, Remote: p.Src, LocalPort: t.DstPort, RemotePort: t.SrcPort}
	if c := e.run.c; c != nil && c.Tuple == key && e.coalesce(c, t) {
		return
	}
	s := e.find(&key)
	switch {
	case s == nil:
		e.noConnection(&key, t)
	case s.conn != nil:
		if !e.run.never {
			e.run.c, e.run.n = s.conn, 0
		}
		e.segment(s.conn, t)
	case s.half != nil:
		e.halfSegment(e.slotOf(&key), t)
	default:
		e.timeWaitSegment(s.tw, &key, t)
	}
}

// noConnection handles a segment for which there is no connection (RFC 9293, 3.10.7.1 and 3.10.7.2).
func (e *Engine) noConnection(key *Tuple, t *wire.TCP) {
	if l := e.listener(key); l != nil {
		e.listenSegment(l, key, t)
		return
	}
	e.Stats.NoPorts++
	e.refuse(key, t)
}

// Claims reports whether there is a connection or a listener for a segment's addresses.
func (e *Engine) Claims(k *Tuple) bool { return e.find(k) != nil || e.listener(k) != nil }

// Refuse answers a segment as if nobody had anything to do with it (RFC 9293, 3.10.7.1).
func (e *Engine) Refuse(p *wire.Packet, t *wire.TCP) {
	e.refuse(&Tuple{Local: p.Dst, Remote: p.Src, LocalPort: t.DstPort, RemotePort: t.SrcPort}, t)
}

// Mailbox takes up what applications asked for.
func (e *Engine) Mailbox() {
	if e.port.n > 0 {
		e.complete()
	}
	for c := e.mail.take(); c != nil; {
		next := c.mailNext
		e.kicked(c, c.pend.Swap(0))
		c = next
	}
}

func (e *Engine) kicked(c *Conn, bits uint32) {
	if c.flags.Load()&flagDone != 0 { // the engine has let go of it
		return
	}
	if bits&kickAbort != 0 {
		e.abort(c)
		return
	}
	if bits&kickOption != 0 {
		e.optionsChanged(c)
	}
	if bits&kickTrim != 0 {
		c.snd.Trim()
	}
	if bits&kickFlush != 0 {
		c.flush = true
	}
	if bits&kickShut != 0 {
		e.shutdownWrite(c)
	}
	if bits&kickClose != 0 && e.closed(c) {
		return
	}
	if bits&kickDeadline != 0 {
		e.wakeOverdue(c)
		if at := c.appDeadline(e.now); at < e.wheel.At(c.slot) {
			e.wheel.Set(c.slot, at)
		}
	}
	if bits&kickMemory != 0 {
		e.starve(c)
	}
	if bits&kickRead != 0 {
		e.windowUpdate(c)
	}
	if bits&(kickWrite|kickShut|kickClose|kickFlush) == kickWrite && e.autocork(c) {
		return
	}
	if bits&(kickWrite|kickShut|kickClose|kickFlush) != 0 {
		e.dataReady(c)
	}
}

// Busy reports whether the engine has work that a further turn could do at once.
func (e *Engine) Busy() bool {
	return (e.ready.n > 0 || len(e.resets) > 0) && !e.fullStop || len(e.resuming) > 0 || e.mail.head.Load() != nil || e.untold()
}

// untold reports whether modules have yet to be told of something: what Output sent starts timers.
func (e *Engine) untold() bool { return e.rtx.pending+e.cong.pending+e.pace.pending > 0 }

// Idle reports whether the stages have nothing to do at the turn's time, unless there is input.
func (e *Engine) Idle() bool {
	return e.ready.n == 0 && (e.port.waiting == 0 || e.completed() == e.port.done) && !e.syn.noRoom && len(e.resets) == 0 && len(e.resuming) == 0 && e.mail.head.Load() == nil && !e.retry && (e.remotes == 0 || !e.changed()) && !e.untold() && e.Deadline() > e.now
}

// Kicked reports whether an application has left a message.
func (e *Engine) Kicked() bool { return e.mail.head.Load() != nil }

// AbortAll resets all connections, for the end of the worker.
func (e *Engine) AbortAll() {
	e.Mailbox()
	for i := range e.slots {
		switch en := &e.slots[i]; {
		case en.conn != nil:
			if en.conn.state != SynSent {
				e.reset(en.conn)
			}
			e.destroy(en.conn, Aborted)
		case en.half != nil:
			e.resetHalf(en.half)
			e.dropHalf(uint32(i))
		case en.tw != nil:
			e.dropTimeWait(uint32(i))
		}
	}
	e.outs.close()
}

// AbortLocal ends all that uses a local address which is ours no more. Nothing is sent, since it could not be sent from there.
func (e *Engine) AbortLocal(addr wire.Addr) {
	for i := range e.slots {
		switch en := &e.slots[i]; {
		case en.conn != nil:
			if en.conn.Tuple.Local == addr {
				e.destroy(en.conn, Aborted)
			}
		case en.half != nil:
			if en.half.tuple.Local == addr {
				e.dropHalf(uint32(i))
			}
		case en.tw != nil:
			if en.tw.tuple.Local == addr {
				e.dropTimeWait(uint32(i))
			}
		}
	}
}

// retryOutput is when output that found no buffer looks again: nobody tells the worker of buffers that come back.
const retryOutput = 100 * time.Microsecond

// Deadline is the next time at which the engine wants a turn without input.
func (e *Engine) Deadline() plugins.Time {
	at := e.wheel.Next()
	if e.fullStop && (e.ready.n > 0 || len(e.resets) > 0) || e.syn.noRoom {
		at = min(at, e.now.Add(retryOutput))
	}
	if e.port.waiting > 0 && e.port.kept > 0 {
		at = min(at, e.now.Add(retryOutput)) // nor of completions
	}
	if len(e.starved) > 0 {
		at = min(at, e.feedAt)
	}
	return min(at, e.rtx.deadline(), e.pace.deadline(), e.cong.deadline())
}

// SetMTU6 says how long IPv6 packets may be, for connections to come.
func (e *Engine) SetMTU6(n int) { e.mtu6 = n }

// Resolved says that a link address has become known.
func (e *Engine) Resolved() { e.retry = true }

// NumConns is the number of connections, TIME-WAIT not counted.
func (e *Engine) NumConns() int { return int(e.Stats.Conns) }

// newSlot takes a slot for a connection or a TIME-WAIT record.
func (e *Engine) newSlot() (uint32, bool) {
	if n := len(e.freeSlots); n > 0 {
		s := e.freeSlots[n-1]
		e.freeSlots = e.freeSlots[:n-1]
		return s, true
	}
	if len(e.slots) >= e.cfg.MaxConns {
		return 0, false
	}
	e.slots = append(e.slots, entry{})
	return uint32(len(e.slots) - 1), true
}

func (e *Engine) freeSlot(s uint32) {
	e.wheel.Stop(s)
	e.slots[s] = entry{gen: e.slots[s].gen}
	e.slots[s].gen++
	e.freeSlots = append(e.freeSlots, s)
}

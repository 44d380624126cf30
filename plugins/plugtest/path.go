package plugtest

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// scenario is what the path does to packets, and what it may cost.
type scenario struct {
	name            string
	packets, window int
	loss            func(p *path, pkt, copy int) bool // data
	ackLoss         float64
	late            func(p *path, pkt, copy int) time.Duration // extra delay
	dup             float64
	noSACK, noTS    bool
	swap            int // give the flow to a new module whenever so many packets are acknowledged

	maxResent   func(dropped int) int
	maxTimeouts int
	undone      bool // every reduction must be undone
}

const (
	pktSize  = 1000
	pktTime  = 100 * time.Microsecond // at the bottleneck
	oneWay   = 10 * time.Millisecond
	lastTime = 600e9 // of any scenario, in ns
)

// path is a small sender and receiver joined by an emulated path in virtual time: enough of an engine to let an rtx module repair real
// losses. It sends a number of packets with a fixed window and does what the module says.
type path struct {
	scenario
	t         *testing.T
	newModule rtx.New
	m         rtx.Module
	rng       *rand.Rand

	now      plugins.Time
	flow     plugins.Flow
	id       uint64
	tx       uint32
	una, nxt int
	log      []logEntry // by packet
	events   []rtx.Event
	out      [32]rtx.Command
	st       rtx.Command // last Status
	probe    bool
	cwnd     int          // in packets: the scenario's window, but slow start from 1 after a timeout
	sendNew  int          // F-RTO: so many new packets go before retransmissions
	free     plugins.Time // when the bottleneck is free again
	moves    moves
	order    int
	swapped  int

	got    []bool // receiver
	rcvNxt int
	blocks [][2]int // reported before, the latest first

	dropped, resent, timeouts, undos, enters int
}

type logEntry struct {
	tx          uint32
	mark        uint8
	copies      int
	sent        plugins.Time
	delivered   uint64
	deliveredAt plugins.Time
}

// move is a packet or an acknowledgement on its way.
type move struct {
	at    plugins.Time
	order int
	pkt   int // -1: an acknowledgement
	sent  plugins.Time
	ev    rtx.Event
}

type moves []move

func (h moves) Len() int { return len(h) }
func (h moves) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h moves) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *moves) Push(x any)   { *h = append(*h, x.(move)) }
func (h *moves) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

const pathISN = 1<<32 - 50*pktSize // wraps

func seqOf(pkt int) uint32 { return pathISN + uint32(pkt*pktSize) }
func pktOf(s uint32) int   { return int(s-pathISN) / pktSize }

func newPath(t *testing.T, newModule rtx.New, s scenario) *path {
	p := &path{
		scenario: s, t: t, newModule: newModule, rng: rand.New(rand.NewPCG(3, 5)), now: 1e9, flow: plugins.Flow{Slot: 2, Gen: 3},
		log: make([]logEntry, s.packets), got: make([]bool, s.packets), cwnd: s.window,
	}
	p.m = p.module()
	p.event(rtx.Event{Kind: rtx.EvOpen, Seq: seqOf(0), MSS: pktSize, Echo: p.now - plugins.Time(2*oneWay), Flags: p.flags()})
	return p
}

func (p *path) module() rtx.Module {
	m, err := p.newModule(nil, 1)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *path) flags() (f uint8) {
	if p.noSACK {
		f |= rtx.FlagNoSACK
	}
	if p.noTS {
		f |= rtx.FlagNoTS
	}
	return f
}

func (p *path) event(ev rtx.Event) {
	p.id++
	ev.ID, ev.Flow, ev.Time = p.id, p.flow, p.now
	p.events = append(p.events, ev)
}

// run is the loop. It ends when everything is acknowledged.
func (p *path) run() {
	for {
		p.poll()
		if p.una == p.packets {
			break
		}
		p.fill()
		p.poll()
		at := p.st.TimerAt()
		if len(p.moves) > 0 {
			at = min(at, p.moves[0].at)
		}
		if at == plugins.Never || at > 1e9+lastTime {
			p.t.Fatalf("stuck at %v with %d of %d packets acknowledged, %d sent; status %+v", time.Duration(p.now), p.una, p.packets, p.nxt, p.st)
		}
		p.now = max(p.now, at)
		for len(p.moves) > 0 && p.moves[0].at <= p.now {
			p.arrive(heap.Pop(&p.moves).(move))
		}
		if p.una < p.nxt && p.st.Timer != rtx.TimerNone && p.st.TimerAt() <= p.now {
			p.event(rtx.Event{Kind: rtx.EvTimer, Timer: p.st.Timer, Seq: seqOf(p.una), End: seqOf(p.nxt)})
		}
	}
	if d := p.m.Deadline(); d != plugins.Never {
		p.t.Errorf("all is done, but Deadline is %d", d)
	}
}

// poll hands the events over and does what the module says.
func (p *path) poll() {
	for {
		n := p.m.Poll(p.now, p.events, p.out[:])
		p.events = p.events[:0]
		for i := range p.out[:n] {
			p.command(&p.out[i])
		}
		if n < len(p.out) {
			break
		}
	}
	if p.swap > 0 && p.una-p.swapped >= p.swap && p.una < p.packets {
		p.swapped = p.una
		p.replace()
	}
}

func (p *path) command(c *rtx.Command) {
	if c.Flow != p.flow || c.AsOf > p.id {
		p.t.Fatalf("command for flow %v as of %d", c.Flow, c.AsOf)
	}
	r := c.Range()
	each := func(fn func(e *logEntry)) {
		if r.Len()%pktSize != 0 || pktOf(r.Start) < 0 || pktOf(r.End) > p.nxt {
			p.t.Fatalf("range %v", r)
		}
		for i := max(pktOf(r.Start), p.una); i < pktOf(r.End); i++ {
			fn(&p.log[i])
		}
	}
	switch c.Kind {
	case rtx.CmdSacked:
		each(func(e *logEntry) { e.mark = e.mark&^rtx.MarkLost | rtx.MarkSacked })
	case rtx.CmdLost:
		each(func(e *logEntry) {
			if e.mark&rtx.MarkSacked == 0 && int32(e.tx-c.TxID) <= 0 {
				e.mark |= rtx.MarkLost
			}
		})
	case rtx.CmdNotLost:
		for i := p.una; i < p.nxt; i++ {
			p.log[i].mark &^= rtx.MarkLost
		}
	case rtx.CmdReneged:
		p.t.Fatal("the peer does not renege")
	case rtx.CmdProbe:
		p.probe = true
	case rtx.CmdStatus:
		p.status(c)
	}
}

func (p *path) status(c *rtx.Command) {
	if c.Delivered < p.st.Delivered || c.SRTT < 0 || c.MinRTT < 0 || c.RTT < 0 || c.Interval < 0 || c.CA > rtx.CALoss {
		p.t.Fatalf("unusable status %+v", c)
	}
	p.st = *c
	count := func(n *int, flag uint32) {
		if c.Flags&flag != 0 {
			*n++
		}
	}
	count(&p.timeouts, rtx.FlagTimeout)
	count(&p.undos, rtx.FlagUndo)
	count(&p.enters, rtx.FlagEnter)
	if c.Flags&rtx.FlagSendNew != 0 {
		p.sendNew = 2
	}
	switch {
	case c.Flags&rtx.FlagTimeout != 0:
		p.cwnd = int(c.InFlight)/pktSize + 1
	case c.Flags&rtx.FlagUndo != 0:
		p.cwnd = p.window
	default:
		p.cwnd = min(p.cwnd+int(c.NewlyAcked)/pktSize, p.window)
	}
}

// inFlight is the engine's own figure, by the marks in its log.
func (p *path) inFlight() (n int) {
	for i := p.una; i < p.nxt; i++ {
		if p.log[i].mark&(rtx.MarkSacked|rtx.MarkLost) == 0 {
			n++
		}
	}
	return n
}

// fill sends what the window allows: retransmissions first.
func (p *path) fill() {
	inFlight := p.inFlight()
	if p.noSACK { // duplicate acknowledgements count there
		inFlight = int(p.st.InFlight) / pktSize
	} else if own := uint32(inFlight * pktSize); p.st.AsOf == p.id && p.st.InFlight < own {
		p.t.Fatalf("the module has %d bytes in flight, the log %d: too low", p.st.InFlight, own)
	}
	if p.probe {
		p.probe = false
		if p.una < p.nxt {
			p.transmit(p.nxt-1, rtx.FlagRetrans|rtx.FlagProbe)
		}
	}
	lost := p.una
	for inFlight < p.cwnd {
		for lost < p.nxt && p.log[lost].mark&rtx.MarkLost == 0 {
			lost++
		}
		switch canNew := p.nxt < p.packets && p.nxt-p.una < 2*p.window; {
		case p.sendNew > 0 && canNew:
			p.sendNew--
			p.transmit(p.nxt, 0)
		case lost < p.nxt:
			p.transmit(lost, rtx.FlagRetrans)
		case canNew:
			p.transmit(p.nxt, 0)
		default:
			return
		}
		inFlight++
	}
}

func (p *path) transmit(pkt int, flags uint8) {
	e := &p.log[pkt]
	p.tx++
	if flags == 0 {
		p.nxt++
	} else {
		p.resent++
		if e.mark&rtx.MarkSacked != 0 {
			p.t.Fatalf("packet %d is sent again although it was SACKed", pkt)
		}
		e.mark = e.mark&^rtx.MarkLost | rtx.MarkRetrans
	}
	e.tx, e.sent, e.delivered, e.deliveredAt = p.tx, p.now, p.st.Delivered, p.now
	e.copies++
	p.event(rtx.Event{Kind: rtx.EvSent, Flags: flags, Seq: seqOf(pkt), End: seqOf(pkt + 1), TxID: p.tx, MSS: pktSize})
	p.free = max(p.free, p.now) + plugins.Time(pktTime)
	if p.loss != nil && p.loss(p, pkt, e.copies) {
		p.dropped++
		return
	}
	at := p.free.Add(oneWay)
	if p.late != nil {
		at = at.Add(p.late(p, pkt, e.copies))
	}
	p.moving(move{at: at, pkt: pkt, sent: p.now})
	if p.rng.Float64() < p.dup {
		p.moving(move{at: at + 1, pkt: pkt, sent: p.now})
	}
}

func (p *path) moving(m move) {
	p.order++
	m.order = p.order
	heap.Push(&p.moves, m)
}

// arrive takes a packet at the receiver, or an acknowledgement at the sender.
func (p *path) arrive(m move) {
	if m.pkt >= 0 {
		p.receive(m)
		return
	}
	una := pktOf(m.ev.Seq)
	if una < p.una && m.ev.NSack == 0 && m.ev.DSack.Empty() {
		return
	}
	if una == p.una && una < p.nxt && (m.ev.NSack > 0 || p.noSACK) {
		m.ev.Flags |= rtx.FlagDup
	}
	blocks := m.ev.Sack
	n := m.ev.NSack
	m.ev.NSack = 0
	for _, b := range blocks[:n] { // as the engine validates them
		if pktOf(b.Start) > max(una, p.una) {
			m.ev.Sack[m.ev.NSack] = b
			m.ev.NSack++
		}
	}
	p.una = max(p.una, una)
	m.ev.Seq, m.ev.End = seqOf(p.una), seqOf(p.nxt)
	p.event(m.ev)
}

// receive answers a packet: SACK blocks with the one that it belongs to first, D-SACK for a duplicate (RFC 2018, 2883).
func (p *path) receive(m move) {
	ev := rtx.Event{Kind: rtx.EvAck}
	if !p.noTS {
		ev.Echo = m.sent
	}
	if p.got[m.pkt] && !p.noSACK {
		ev.DSack = seq.Range{Start: seqOf(m.pkt), End: seqOf(m.pkt + 1)}
	}
	p.got[m.pkt] = true
	for p.rcvNxt < p.packets && p.got[p.rcvNxt] {
		p.rcvNxt++
	}
	ev.Seq = seqOf(p.rcvNxt)
	if !p.noSACK {
		p.report(&ev, m.pkt)
	}
	if p.rng.Float64() >= p.ackLoss {
		p.moving(move{at: p.now.Add(oneWay), pkt: -1, ev: ev})
	}
}

func (p *path) report(ev *rtx.Event, pkt int) {
	recent := [][2]int{}
	add := func(i int) {
		if i < p.rcvNxt || len(recent) == 3 {
			return
		}
		for _, b := range recent {
			if i >= b[0] && i < b[1] {
				return
			}
		}
		b := [2]int{i, i}
		for b[0] > p.rcvNxt && p.got[b[0]-1] {
			b[0]--
		}
		for b[1] < p.packets && p.got[b[1]] {
			b[1]++
		}
		recent = append(recent, b)
	}
	add(pkt)
	for _, b := range p.blocks {
		add(b[0])
	}
	p.blocks = recent
	for _, b := range recent {
		ev.Sack[ev.NSack] = seq.Range{Start: seqOf(b[0]), End: seqOf(b[1])}
		ev.NSack++
	}
}

// replace gives the flow to a new module, as after a swap or a crash.
func (p *path) replace() {
	p.event(rtx.Event{Kind: rtx.EvClose})
	if n := p.m.Poll(p.now, p.events, p.out[:]); n > 0 {
		for _, c := range p.out[:n] {
			if c.Kind == rtx.CmdStatus && c.AsOf >= p.id {
				p.t.Error("a closed flow has a status")
			}
		}
	}
	p.events = p.events[:0]
	p.m = p.module()
	ev := rtx.Event{
		Kind: rtx.EvResume, Seq: seqOf(p.una), End: seqOf(p.nxt), MSS: pktSize, Flags: p.flags(), TxID: p.tx, Delivered: p.st.Delivered,
		Echo: plugins.Time(p.st.SRTT), FirstSent: plugins.Time(p.st.MinRTT), DeliveredTime: plugins.Time(p.st.RTTVarUsec) * 1000,
	}
	if p.una == p.nxt {
		ev.Flags |= rtx.FlagLast
	}
	p.event(ev)
	for i := p.una; i < p.nxt; i++ {
		e := &p.log[i]
		ev := rtx.Event{
			Kind: rtx.EvLog, Seq: seqOf(i), End: seqOf(i + 1), TxID: e.tx, Timer: e.mark, Delivered: e.delivered, DeliveredTime: e.deliveredAt,
			FirstSent: e.sent,
		}
		if e.mark&rtx.MarkRetrans != 0 {
			ev.Flags |= rtx.FlagRetrans
		}
		if i == p.nxt-1 {
			ev.Flags |= rtx.FlagLast
		}
		p.event(ev)
		p.events[len(p.events)-1].Time = e.sent
		if i%100 == 0 && i < p.nxt-1 { // spread over turns: nothing is answered before the end
			if n := p.m.Poll(p.now, p.events, p.out[:]); n > 0 {
				p.t.Errorf("%+v is answered within the replay of the log", p.out[0])
			}
			p.events = p.events[:0]
		}
	}
	n := p.m.Poll(p.now, p.events, p.out[:])
	p.events = p.events[:0]
	if n == 0 || p.out[n-1].Kind != rtx.CmdStatus || p.out[n-1].AsOf != p.id {
		p.t.Fatalf("no status after the log")
	}
	for i := range p.out[:n] {
		p.command(&p.out[i])
	}
	if own := uint32(p.inFlight() * pktSize); p.st.InFlight < own && !p.noSACK {
		p.t.Errorf("after the resume %d bytes are in flight, want %d", p.st.InFlight, own)
	}
}

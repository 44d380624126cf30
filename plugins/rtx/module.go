package rtx

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// module is a retransmit-queue module: btree or list, by its pool's threshold. Recovery is the same in both.
type module struct {
	cfg    config
	pool   pool
	chunks []*[chunk]flow // flows by slot

	batches []batch   // flows touched since their last Status
	pending []Command // commands that precede the Statuses
	now     plugins.Time
}

const (
	chunk    = 256
	maxSlots = 1 << 22 // bounds what a corrupted record can make a module allocate
)

// batch is what a flow's next Status reports besides the flow's state.
type batch struct {
	f           *flow // nil if the flow was closed meanwhile
	flags       uint32
	acked, lost uint32
	rtt         int64
	sample      sample
	// Index+1 in pending of the flow's last CmdLost and CmdSacked that may still grow; 0 if there is none.
	lostCmd, sackCmd int32
	lostThen         uint32 // C.lost when the segment of lostCmd's snapshot was sent
}

// Poll takes all events and answers with the ranges that were SACKed or lost, and one Status per flow.
func (m *module) Poll(now plugins.Time, in []Event, out []Command) (n int) {
	m.now = now
	for i := range in {
		m.event(&in[i])
	}
	n = copy(out, m.pending)
	m.pending = m.pending[:copy(m.pending, m.pending[n:])]
	done := 0
	for ; done < len(m.batches) && len(m.pending) == 0; done++ {
		b := &m.batches[done]
		if b.f == nil {
			continue
		}
		if !b.f.has(flowReplaying) {
			if n == len(out) {
				break
			}
			m.status(b, &out[n])
			n++
		}
		b.f.batch = 0
	}
	m.batches = m.batches[:copy(m.batches, m.batches[done:])]
	for i := range m.batches { // did not fit: they may go on growing, but their positions have changed
		b := &m.batches[i]
		b.lostCmd, b.sackCmd = 0, 0
		if b.f != nil {
			b.f.batch = int32(i + 1)
		}
	}
	return n
}

// Deadline is now while answers are left, else never: the engine keeps the flows' timers.
func (m *module) Deadline() plugins.Time {
	if len(m.pending) > 0 || len(m.batches) > 0 {
		return m.now
	}
	return plugins.Never
}

// Visits is the number of queue entries that searches and walks have looked at, for benchmarks.
func (m *module) Visits() uint64 { return m.pool.visits }

// slot returns the state at a slot, or nil if no engine has that many.
func (m *module) slot(i uint32) *flow {
	c := int(i / chunk)
	if c >= len(m.chunks) || m.chunks[c] == nil {
		if i >= maxSlots {
			return nil
		}
		for c >= len(m.chunks) {
			m.chunks = append(m.chunks, nil)
		}
		m.chunks[c] = new([chunk]flow)
	}
	return &m.chunks[c][i%chunk]
}

func (m *module) event(ev *Event) {
	f := m.slot(ev.Flow.Slot)
	if f == nil {
		return
	}
	switch ev.Kind {
	case EvOpen, EvResume:
		m.close(f)
		m.open(f, ev)
		m.touch(f, ev)
		return
	case EvSent, EvAck, EvTimer, EvLog, EvClose:
	default:
		return
	}
	if f.id != ev.Flow || !f.has(flowOpen) {
		return // of a flow that is gone, or was never opened
	}
	if ev.Kind == EvClose {
		m.close(f)
		return
	}
	b := m.touch(f, ev)
	if f.has(flowReplaying) && ev.Kind != EvLog {
		m.endReplay(f, ev.Time)
	}
	switch ev.Kind {
	case EvSent:
		m.sent(f, b, ev)
	case EvAck:
		m.ack(f, b, ev)
	case EvTimer:
		m.timer(f, b, ev)
	case EvLog:
		m.replay(f, ev)
	}
}

// open starts a flow, new or live.
func (m *module) open(f *flow, ev *Event) {
	*f = flow{
		id: ev.Flow, bits: flowOpen | flowProbeOK, mss: max(ev.MSS, 1), una: ev.Seq, nxt: ev.Seq,
		deliveredTime: ev.Time, firstSent: ev.Time, rtoBase: ev.Time, ptoBase: ev.Time,
		fack: ev.Seq, highSeq: ev.Seq, reoSteps: 1, reordering: uint16(m.cfg.dupThresh),
	}
	f.rtt.initial = 1
	f.set(flowNoSACK, ev.Flags&FlagNoSACK != 0)
	if ev.Kind == EvResume {
		m.resume(f, ev)
		return
	}
	if ev.Echo == 0 {
		f.rtt.initial = 3 // RFC 6298, 5.7
		return
	}
	rtt := plausibleRTT(int64(ev.Time - ev.Echo))
	f.rtt.sample(&m.cfg, rtt, f.una, f.nxt)
	f.minRTT.update(m.cfg.minRTTWindow, ev.Time, rtt)
}

// close frees what a flow holds. The slot may be used again at once.
func (m *module) close(f *flow) {
	if f.q != nil {
		m.pool.freeQueue(f.q)
	}
	if f.batch != 0 {
		m.batches[f.batch-1].f = nil
	}
	*f = flow{}
}

// touch notes that the flow's next Status is due.
func (m *module) touch(f *flow, ev *Event) *batch {
	f.asOf = ev.ID
	if f.batch == 0 {
		m.batches = append(m.batches, batch{f: f})
		f.batch = int32(len(m.batches))
	}
	return &m.batches[f.batch-1]
}

// status fills in the flow's absolute state.
func (m *module) status(b *batch, c *Command) {
	f := b.f
	*c = Command{
		Flow: f.id, AsOf: f.asOf, Kind: CmdStatus, CA: f.ca, Backoff: f.timeouts, Flags: b.flags,
		NewlyAcked: b.acked, NewlyLost: b.lost, InFlight: f.inFlight(), LostOut: f.lostOut, SackedOut: f.sackedOut,
		RTOUsec: usec(int64(f.rtt.rto(&m.cfg))), RTTVarUsec: usec(f.rtt.mdev4 >> 2),
		Delivered: f.delivered, PriorDelivered: f.delivered,
		RTT: time.Duration(b.rtt), SRTT: time.Duration(f.rtt.srtt()), MinRTT: time.Duration(f.minRTT.get()),
	}
	m.rate(f, b, c)
	c.SetTimer(m.nextTimer(f))
}

func usec(ns int64) uint32 { return uint32(min(ns/1000, 1<<32-1)) }

// command appends a command of flow f that precedes its Status.
func (m *module) command(f *flow, kind uint8) *Command {
	m.pending = append(m.pending, Command{Flow: f.id, AsOf: f.asOf, Kind: kind, CA: f.ca})
	return &m.pending[len(m.pending)-1]
}

// tellSacked reports g as SACKed, joined with the range reported before it if they touch.
func (m *module) tellSacked(f *flow, b *batch, g *segment) {
	if b.sackCmd != 0 {
		c := &m.pending[b.sackCmd-1]
		if r := c.Range(); r.End == g.seq {
			r.End = g.end
			c.SetRange(r)
			c.AsOf = f.asOf
			return
		} else if r.Start == g.end {
			r.Start = g.seq
			c.SetRange(r)
			c.AsOf = f.asOf
			return
		}
	}
	m.command(f, CmdSacked).Aux = uint64(g.seq) | uint64(g.end)<<32
	b.sackCmd = int32(len(m.pending))
}

// tellLost reports g as lost, joined with the range reported before it if they touch; the snapshot is that of the segment of the range
// that was sent last.
func (m *module) tellLost(f *flow, b *batch, g *segment) {
	var c *Command
	if b.lostCmd != 0 {
		c = &m.pending[b.lostCmd-1]
		if r := c.Range(); r.End == g.seq {
			r.End = g.end
			c.SetRange(r)
		} else if r.Start == g.end {
			r.Start = g.seq
			c.SetRange(r)
		} else {
			c = nil
		}
	}
	if c == nil {
		c = m.command(f, CmdLost)
		c.Aux = uint64(g.seq) | uint64(g.end)<<32
		b.lostCmd = int32(len(m.pending))
		c.TxID = g.txid - 1
	}
	c.AsOf = f.asOf
	if int32(g.txid-c.TxID) > 0 {
		c.TxID = g.txid
		c.TxInFlight, c.PriorDelivered, c.SendTime, b.lostThen = g.txInFlight, g.delivered, g.sent, g.lost
		c.Flags = 0
		if g.is(segAppLimited) {
			c.Flags = FlagCmdAppLimited
		}
	}
	c.LostSinceSend = uint32(f.lost) - b.lostThen
}

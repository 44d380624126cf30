package plugtest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Rtx checks a retransmit-queue module: it repairs losses on an emulated path with few retransmissions, takes over live flows, survives
// nonsense, gives the same answers however events are cut into batches and however small out is, ignores stale flows, and allocates
// nothing in steady state.
func Rtx(t *testing.T, newModule rtx.New) {
	t.Helper()
	make := func() rtx.Module {
		m, err := newModule(nil, 1)
		if err != nil {
			t.Fatalf("the module does not start with default parameters: %v", err)
		}
		return m
	}
	t.Run("unknown parameter", func(t *testing.T) {
		if _, err := newModule(plugins.Params{"no such parameter": "1"}, 1); err == nil {
			t.Error("an unknown parameter is accepted")
		}
	})
	t.Run("scenarios", func(t *testing.T) { rtxScenarios(t, newModule) })
	t.Run("nonsense", func(t *testing.T) { rtxNonsense(t, make()) })
	t.Run("batches", func(t *testing.T) { rtxBatches(t, make) })
	t.Run("stale flow", func(t *testing.T) { rtxStale(t, make()) })
	t.Run("allocations", func(t *testing.T) { rtxAllocs(t, make()) })
}

func rtxNonsense(t *testing.T, m rtx.Module) {
	rng := rand.New(rand.NewPCG(2, 2))
	near := func() uint32 {
		if rng.IntN(10) == 0 {
			return extreme32(rng)
		}
		return uint32(rng.IntN(40_000)) - 5000
	}
	var in [16]rtx.Event
	var out [16]rtx.Command
	for i := range 50_000 {
		n := rng.IntN(len(in) + 1)
		for j := range in[:n] {
			ev := rtx.Event{
				Flow: plugins.Flow{Slot: rng.Uint32N(4), Gen: rng.Uint32N(2)}, ID: rng.Uint64(), Time: plugins.Time(rng.Uint64N(1e10)),
				Kind: uint8(rng.IntN(9)), Flags: uint8(rng.Uint32()), NSack: uint8(rng.Uint32N(6)), Timer: uint8(rng.Uint32N(6)),
				MSS: uint32(rng.IntN(3)) * 1000, Seq: near(), TxID: uint32(i), Wnd: extreme32(rng), Echo: plugins.Time(rng.Uint64N(1e10)),
			}
			ev.End = ev.Seq + uint32(rng.IntN(5000))
			for k := range ev.Sack {
				ev.Sack[k] = seq.Range{Start: near(), End: near()}
			}
			if rng.IntN(3) == 0 {
				ev.DSack = seq.Range{Start: near(), End: near()}
			}
			if rng.IntN(20) == 0 {
				ev.Time, ev.Echo, ev.End, ev.TxID = plugins.Time(extreme64(rng)), plugins.Time(extreme64(rng)), near(), rng.Uint32()
				ev.Delivered, ev.DeliveredTime, ev.FirstSent, ev.Lost = extreme64(rng), plugins.Time(extreme64(rng)), plugins.Time(extreme64(rng)), rng.Uint64()
			}
			if rng.IntN(200) == 0 {
				ev.Flow.Slot, ev.NSack, ev.Kind = extreme32(rng), uint8(rng.Uint32()), uint8(rng.Uint32())
			}
			in[j] = ev
		}
		got := m.Poll(plugins.Time(i), in[:n], out[:rng.IntN(len(out)+1)])
		for j := range out[:got] {
			checkCommand(t, &out[j])
		}
	}
}

// checkCommand reports what an engine would refuse.
func checkCommand(t *testing.T, c *rtx.Command) {
	t.Helper()
	ok := true
	switch c.Kind {
	case rtx.CmdStatus:
		ok = c.CA <= rtx.CALoss && c.Timer <= rtx.TimerReorder && c.SRTT >= 0 && c.MinRTT >= 0 && c.RTT >= 0 && c.Interval >= 0 &&
			c.PriorDelivered <= c.Delivered && (c.Timer == rtx.TimerNone) == (c.TimerAt() == plugins.Never)
	case rtx.CmdLost, rtx.CmdSacked:
		ok = !c.Range().Empty()
	case rtx.CmdProbe, rtx.CmdReneged, rtx.CmdNotLost:
	default:
		ok = false
	}
	if !ok {
		t.Fatalf("unusable command %+v", *c)
	}
}

// rtxEvents makes n events of several flows that do not depend on a module's answers: packets are sent, sent again, acknowledged, SACKed
// by chance, and timers of all kinds expire at any time.
func rtxEvents(rng *rand.Rand, n int) []rtx.Event {
	type state struct {
		gen, tx  uint32
		una, nxt int
		open     bool
	}
	flows := make([]state, 6)
	now := plugins.Time(1e9)
	var out []rtx.Event
	for id := uint64(1); len(out) < n; id++ {
		slot := rng.IntN(len(flows))
		f := &flows[slot]
		now += plugins.Time(rng.IntN(5e6))
		ev := rtx.Event{Flow: plugins.Flow{Slot: uint32(slot), Gen: f.gen}, ID: id, Time: now, Kind: rtx.EvSent, MSS: pktSize}
		switch op := rng.IntN(12); {
		case !f.open:
			*f = state{gen: f.gen + 1, open: true}
			ev.Flow.Gen, ev.Kind, ev.Seq, ev.Echo = f.gen, rtx.EvOpen, seqOf(0), now-20e6
			if slot == 1 {
				ev.Flags = rtx.FlagNoSACK
			}
		case op == 0 && rng.IntN(100) == 0:
			f.open = false
			ev.Kind = rtx.EvClose
		case op < 5 || f.una == f.nxt:
			f.tx++
			ev.Seq, ev.End, ev.TxID = seqOf(f.nxt), seqOf(f.nxt+1), f.tx
			f.nxt++
		case op < 6:
			i := f.una + rng.IntN(f.nxt-f.una)
			f.tx++
			ev.Flags, ev.Seq, ev.End, ev.TxID = rtx.FlagRetrans, seqOf(i), seqOf(i+1), f.tx
		case op < 7:
			ev.Kind, ev.Timer, ev.Seq, ev.End = rtx.EvTimer, uint8(1+rng.IntN(3)), seqOf(f.una), seqOf(f.nxt)
		default:
			ev.Kind = rtx.EvAck
			if rng.IntN(3) == 0 {
				f.una += rng.IntN(min(f.nxt-f.una, 10) + 1)
			} else {
				ev.Flags |= rtx.FlagDup
			}
			ev.Seq, ev.End = seqOf(f.una), seqOf(f.nxt)
			for range rng.IntN(rtx.MaxSack + 1) {
				if f.nxt-f.una < 2 {
					break
				}
				a := f.una + 1 + rng.IntN(f.nxt-f.una-1)
				ev.Sack[ev.NSack] = seq.Range{Start: seqOf(a), End: seqOf(min(a+1+rng.IntN(5), f.nxt))}
				ev.NSack++
			}
			if rng.IntN(10) == 0 {
				ev.DSack = seq.Range{Start: ev.Seq - pktSize, End: ev.Seq}
			}
		}
		out = append(out, ev)
	}
	return out
}

// summary is what must not depend on batches: a flow's last absolute state, and the sums of what was reported step by step.
type summary struct {
	last          rtx.Command
	acked, lost   uint64
	lostPkts      [32]uint64 // ranges by packet, modulo
	sackedPkts    [32]uint64
	notLost, reng int
	flags         uint32
}

func rtxRun(t *testing.T, m rtx.Module, evs []rtx.Event, batch, room int) map[plugins.Flow]summary {
	t.Helper()
	got := map[plugins.Flow]summary{}
	closed := map[plugins.Flow]bool{}
	out := make([]rtx.Command, room)
	for len(evs) > 0 {
		part := evs[:min(batch, len(evs))]
		evs = evs[len(part):]
		for i := range part {
			closed[part[i].Flow] = closed[part[i].Flow] || part[i].Kind == rtx.EvClose
		}
		now := part[len(part)-1].Time
		seen := map[plugins.Flow]bool{}
		for in := part; ; in = nil {
			n := m.Poll(now, in, out)
			for i := range out[:n] {
				c := &out[i]
				checkCommand(t, c)
				if c.Kind == rtx.CmdStatus {
					if seen[c.Flow] {
						t.Fatalf("flow %v has two statuses in one batch", c.Flow)
					}
					seen[c.Flow] = true
				} else if seen[c.Flow] {
					t.Fatalf("flow %v: %+v follows the status", c.Flow, *c)
				}
				s := got[c.Flow]
				s.add(c)
				got[c.Flow] = s
			}
			if d := m.Deadline(); (n < room) != (d == plugins.Never) && n < room {
				t.Fatalf("the answers fit, but Deadline is %d", d)
			}
			if n < room {
				break
			}
		}
		for i := range part {
			if f := part[i].Flow; !closed[f] && !seen[f] {
				t.Fatalf("flow %v has events, but no status", f)
			}
		}
	}
	for f := range closed {
		if closed[f] {
			delete(got, f) // a batch with the Close swallows what came before
		}
	}
	return got
}

func (s *summary) add(c *rtx.Command) {
	count := func(to *[32]uint64) {
		for i := pktOf(c.Range().Start); i < pktOf(c.Range().End); i++ {
			to[i%len(to)]++
		}
	}
	switch c.Kind {
	case rtx.CmdLost:
		count(&s.lostPkts)
	case rtx.CmdSacked:
		count(&s.sackedPkts)
	case rtx.CmdNotLost:
		s.notLost++
	case rtx.CmdReneged:
		s.reng++
	case rtx.CmdStatus:
		s.acked += uint64(c.NewlyAcked)
		s.lost += uint64(c.NewlyLost)
		s.flags |= c.Flags
		s.last = *c
		// These are of the batch.
		s.last.Flags, s.last.NewlyAcked, s.last.NewlyLost, s.last.LostSinceSend, s.last.TxInFlight = 0, 0, 0, 0, 0
		s.last.PriorDelivered, s.last.Interval, s.last.RTT, s.last.SendTime = 0, 0, 0, 0
	}
	s.flags &= rtx.FlagEnter | rtx.FlagExit | rtx.FlagUndo | rtx.FlagTimeout | rtx.FlagTLPLoss | rtx.FlagSpuriousProbe
}

func rtxBatches(t *testing.T, newModule func() rtx.Module) {
	evs := rtxEvents(rand.New(rand.NewPCG(5, 5)), 20_000)
	want := rtxRun(t, newModule(), evs, 1, 64)
	if len(want) < 4 {
		t.Fatalf("only %d flows have a status", len(want))
	}
	var all summary
	for _, s := range want {
		all.flags |= s.flags
		all.notLost += s.notLost
	}
	if need := rtx.FlagEnter | rtx.FlagExit | rtx.FlagTimeout; all.flags&need != need {
		t.Fatalf("the events do not exercise recovery: flags %b", all.flags)
	}
	for _, c := range [][2]int{{1, 1}, {7, 64}, {100, 3}, {1000, 1}, {1000, 100}} {
		got := rtxRun(t, newModule(), evs, c[0], c[1])
		for f, s := range want {
			if got[f] != s {
				t.Errorf("batches of %d, %d answers: flow %v has\n%+v, want\n%+v", c[0], c[1], f, got[f], s)
			}
		}
	}
}

func rtxStale(t *testing.T, m rtx.Module) {
	var out [8]rtx.Command
	id := uint64(0)
	poll := func(ev rtx.Event, gen uint32) []rtx.Command {
		id++
		ev.Flow, ev.ID, ev.Time = plugins.Flow{Slot: 9, Gen: gen}, id, plugins.Time(id*1e6)
		return out[:m.Poll(ev.Time, []rtx.Event{ev}, out[:])]
	}
	open := rtx.Event{Kind: rtx.EvOpen, Seq: 100, MSS: 1000}
	sent := rtx.Event{Kind: rtx.EvSent, Seq: 100, End: 1100, TxID: 1}
	if got := poll(sent, 1); len(got) > 0 {
		t.Errorf("a flow that was never opened is answered with %+v", got[0])
	}
	poll(open, 1)
	poll(sent, 1)
	if got := poll(open, 2); len(got) != 1 || got[0].InFlight != 0 || got[0].Timer != rtx.TimerNone {
		t.Errorf("a new flow in a used slot begins with %+v", got)
	}
	poll(sent, 2)
	for _, kind := range []uint8{rtx.EvSent, rtx.EvAck, rtx.EvTimer, rtx.EvLog, rtx.EvClose} {
		if got := poll(rtx.Event{Kind: kind, Seq: 1100, End: 1100, Timer: rtx.TimerRTO}, 1); len(got) > 0 {
			t.Errorf("event %d of a flow that is gone is answered with %+v", kind, got[0])
		}
	}
	if got := poll(rtx.Event{Kind: rtx.EvAck, Seq: 1100, End: 1100}, 2); len(got) != 1 || got[0].NewlyAcked != 1000 {
		t.Errorf("the slot's present flow answers %+v", got)
	}
	if got := poll(rtx.Event{Kind: rtx.EvClose}, 2); len(got) > 0 {
		t.Errorf("a closed flow is answered with %+v", got[0])
	}
}

// rtxAllocs sends, SACKs, loses, sends again and acknowledges in rounds.
func rtxAllocs(t *testing.T, m rtx.Module) {
	const flows, window = 16, 100
	in := make([]rtx.Event, 0, flows*window*2)
	out := make([]rtx.Command, 64)
	now, id, tx, base := plugins.Time(1e9), uint64(0), uint32(0), 0
	push := func(slot int, ev rtx.Event) {
		id++
		ev.Flow, ev.ID, ev.Time = plugins.Flow{Slot: uint32(slot), Gen: 1}, id, now
		in = append(in, ev)
	}
	poll := func() {
		for n := m.Poll(now, in, out); n == len(out); {
			n = m.Poll(now, nil, out)
		}
		in = in[:0]
	}
	for i := range flows {
		push(i, rtx.Event{Kind: rtx.EvOpen, Seq: seqOf(0), MSS: pktSize, Echo: now - 20e6})
	}
	poll()
	round := func() {
		for i := range window {
			now = now.Add(10 * time.Microsecond)
			for f := range flows {
				tx++
				push(f, rtx.Event{Kind: rtx.EvSent, Seq: seqOf(base + i), End: seqOf(base + i + 1), TxID: tx})
			}
		}
		poll()
		now = now.Add(20 * time.Millisecond)
		for i := 2; i < window; i += 2 { // every second packet is lost
			for f := range flows {
				ev := rtx.Event{Kind: rtx.EvAck, Flags: rtx.FlagDup, Seq: seqOf(base), End: seqOf(base + window), NSack: 1}
				ev.Sack[0] = seq.Range{Start: seqOf(base + i), End: seqOf(base + i + 1)}
				push(f, ev)
			}
		}
		poll()
		for i := 0; i < window; i += 2 {
			for f := range flows {
				tx++
				push(f, rtx.Event{Kind: rtx.EvSent, Flags: rtx.FlagRetrans, Seq: seqOf(base + i), End: seqOf(base + i + 1), TxID: tx})
			}
		}
		poll()
		now = now.Add(20 * time.Millisecond)
		base += window
		for f := range flows {
			push(f, rtx.Event{Kind: rtx.EvAck, Seq: seqOf(base), End: seqOf(base)})
		}
		poll()
	}
	round()
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations per round of %d packets", n, flows*window)
	}
}

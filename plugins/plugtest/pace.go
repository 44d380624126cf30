// Package plugtest holds the conformance suites of the rtx and pace module kinds. A module's test calls the suite of its kind with
// the module's factory; the suite of congestion control is cong/congtest.
package plugtest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

// Pace checks a pacing module: it survives nonsense, answers every flow, obeys the connection's maximum, gives the same last line
// however events are cut into batches and however small out is, ignores stale flows, and allocates nothing in steady state.
func Pace(t *testing.T, newModule pace.New) {
	t.Helper()
	make := func(t *testing.T) pace.Module {
		t.Helper()
		m, err := newModule(nil, 1)
		if err != nil {
			t.Fatalf("the module does not start with default parameters: %v", err)
		}
		return m
	}
	t.Run("nonsense", func(t *testing.T) { paceNonsense(t, make(t)) })
	t.Run("unknown parameter", func(t *testing.T) {
		if _, err := newModule(plugins.Params{"no such parameter": "1"}, 1); err == nil {
			t.Error("an unknown parameter is accepted")
		}
	})
	t.Run("batches", func(t *testing.T) { paceBatches(t, func() pace.Module { return make(t) }) })
	t.Run("stale flow", func(t *testing.T) { paceStale(t, make(t)) })
	t.Run("allocations", func(t *testing.T) { paceAllocs(t, make(t)) })
}

// paceEvents makes n sensible events on few flows: every flow is opened or resumed before it is updated, and slots are reused.
func paceEvents(rng *rand.Rand, n int) []pace.Event {
	type state struct {
		gen  uint32
		open bool
	}
	flows := make([]state, 8)
	out := make([]pace.Event, 0, n)
	now := plugins.Time(1e9)
	for id := 1; len(out) < n; id++ {
		slot := rng.IntN(len(flows))
		f := &flows[slot]
		kind := pace.EvUpdate
		switch {
		case !f.open:
			f.gen, f.open = f.gen+1, true
			kind = pace.EvOpen
			if rng.IntN(4) == 0 {
				kind = pace.EvResume
			}
		case rng.IntN(20) == 0:
			f.open = false
			kind = pace.EvClose
		}
		now += plugins.Time(rng.IntN(1e6))
		ev := pace.Event{
			Flow: plugins.Flow{Slot: uint32(slot), Gen: f.gen}, ID: uint64(id), Time: now, Kind: kind, MSS: 1448,
			Cwnd: uint32(1448 * (1 + rng.IntN(1000))), Ssthresh: uint32(1448 * (1 + rng.IntN(2000))),
			SRTT: time.Duration(rng.IntN(1e9)), MaxRate: plugins.Unlimited,
		}
		switch rng.IntN(4) {
		case 0:
			ev.Rate = 1 + rng.Uint64N(1e10)
		case 1:
			ev.Rate = plugins.Unlimited
		}
		if rng.IntN(4) == 0 {
			ev.MaxRate = 1 + rng.Uint64N(1e10)
		}
		out = append(out, ev)
	}
	return out
}

// checkLine reports what an engine would refuse.
func checkLine(t *testing.T, l *pace.Line) {
	t.Helper()
	if l.Rate == 0 || l.Horizon <= 0 || l.Credit > pace.CreditOne {
		t.Fatalf("unusable line %+v", *l)
	}
}

func paceNonsense(t *testing.T, m pace.Module) {
	rng := rand.New(rand.NewPCG(1, 1))
	var in [16]pace.Event
	var out [16]pace.Line
	for i := range 20_000 {
		n := rng.IntN(len(in) + 1)
		for j := range in[:n] {
			in[j] = pace.Event{
				Flow: plugins.Flow{Slot: rng.Uint32N(6), Gen: rng.Uint32N(3)}, ID: rng.Uint64(), Time: plugins.Time(rng.Uint64()),
				Kind: uint8(rng.IntN(7)), MSS: extreme32(rng), Cwnd: extreme32(rng), Ssthresh: extreme32(rng),
				Rate: extreme64(rng), MaxRate: extreme64(rng), SRTT: time.Duration(extreme64(rng)),
			}
			if rng.IntN(100) == 0 {
				in[j].Flow.Slot = rng.Uint32()
			}
		}
		got := m.Poll(plugins.Time(i), in[:n], out[:rng.IntN(len(out)+1)])
		for j := range out[:got] {
			checkLine(t, &out[j])
		}
	}
}

func extreme32(rng *rand.Rand) uint32 { return uint32(extreme64(rng)) }

func extreme64(rng *rand.Rand) uint64 {
	switch rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return 1<<64 - 1
	case 3:
		return 1 << 63
	case 4:
		return rng.Uint64N(1 << 20)
	}
	return rng.Uint64()
}

// paceRun feeds events in batches of at most batch, with room for room answers, and returns each open flow's last line.
func paceRun(t *testing.T, m pace.Module, evs []pace.Event, batch, room int) map[plugins.Flow]pace.Line {
	t.Helper()
	got := map[plugins.Flow]pace.Line{}
	max := map[plugins.Flow]uint64{}
	out := make([]pace.Line, room)
	for part := range slices.Chunk(evs, batch) {
		now := part[len(part)-1].Time
		for i := range part {
			max[part[i].Flow] = part[i].MaxRate
		}
		in := part
		for polls := 0; ; polls++ {
			n := m.Poll(now, in, out)
			in = nil
			for i := range out[:n] {
				l := out[i]
				checkLine(t, &l)
				if l.Rate > max[l.Flow] {
					t.Fatalf("rate %d is above the flow's maximum %d", l.Rate, max[l.Flow])
				}
				if old := got[l.Flow]; l.AsOf < old.AsOf {
					t.Fatalf("answer to event %d follows the one to %d", l.AsOf, old.AsOf)
				}
				got[l.Flow] = l
			}
			if d := m.Deadline(); n < room && d != plugins.Never {
				t.Fatalf("the answers fit, but Deadline is %d", d)
			}
			if n < room {
				break
			}
			if polls > 10*len(part) {
				t.Fatal("the module never stops answering")
			}
		}
	}
	for i := range evs {
		if evs[i].Kind == pace.EvClose {
			delete(got, evs[i].Flow)
		}
	}
	for f, l := range got {
		l.AsOf = 0 // the same rate may have been answered to another event
		got[f] = l
	}
	return got
}

func paceBatches(t *testing.T, newModule func() pace.Module) {
	evs := paceEvents(rand.New(rand.NewPCG(7, 7)), 3000)
	want := paceRun(t, newModule(), evs, 1, 4)
	if len(want) < 4 {
		t.Fatalf("only %d flows have a line", len(want))
	}
	last := map[plugins.Flow]uint8{}
	for i := range evs {
		last[evs[i].Flow] = evs[i].Kind
	}
	for f, kind := range last {
		if _, ok := want[f]; !ok && kind != pace.EvClose {
			t.Errorf("flow %v has no line", f)
		}
	}
	for _, c := range [][2]int{{1, 1}, {7, 64}, {100, 3}, {3000, 1}, {3000, 1000}} {
		got := paceRun(t, newModule(), evs, c[0], c[1])
		for f, l := range want {
			if got[f] != l {
				t.Errorf("batches of %d, %d answers: flow %v has %+v, want %+v", c[0], c[1], f, got[f], l)
			}
		}
	}
}

func paceStale(t *testing.T, m pace.Module) {
	var out [4]pace.Line
	ev := pace.Event{ID: 1, Time: 1, MSS: 1448, Cwnd: 14480, Rate: 1000, MaxRate: 5000}
	send := func(gen uint32, kind uint8, max uint64) int {
		ev.Flow, ev.Kind, ev.MaxRate = plugins.Flow{Slot: 2, Gen: gen}, kind, max
		ev.ID++
		return m.Poll(plugins.Time(ev.ID), []pace.Event{ev}, out[:])
	}
	if send(1, pace.EvOpen, 5000) != 1 {
		t.Error("a new flow has no line")
	}
	if send(2, pace.EvOpen, 6000) != 1 {
		t.Error("a new flow in a used slot has no line")
	}
	if n := send(1, pace.EvUpdate, 10); n != 0 {
		t.Errorf("an event of a flow that is gone is answered with %+v", out[0])
	}
	send(1, pace.EvClose, 0) // must not close the new flow
	if n := send(2, pace.EvUpdate, 20); n != 1 || out[0].Flow.Gen != 2 || out[0].Rate > 20 {
		t.Errorf("%d lines, %+v: the slot's present flow is not served", n, out[0])
	}
}

func paceAllocs(t *testing.T, m pace.Module) {
	in := make([]pace.Event, 64)
	out := make([]pace.Line, 64)
	for i := range in {
		in[i] = pace.Event{Flow: plugins.Flow{Slot: uint32(i), Gen: 1}, Kind: pace.EvOpen, Cwnd: 14480, MaxRate: plugins.Unlimited}
	}
	m.Poll(1, in, out)
	rate := uint64(1e6)
	if n := testing.AllocsPerRun(100, func() {
		rate++
		for i := range in {
			in[i].Kind, in[i].Rate = pace.EvUpdate, rate
		}
		m.Poll(1, in, out[:17]) // the rest waits
		m.Poll(1, nil, out)
	}); n != 0 {
		t.Errorf("%v allocations per poll of 64 events", n)
	}
}

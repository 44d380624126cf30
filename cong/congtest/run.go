package congtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Run is the conformance suite: every congestion-control module must pass it. newModule is called with a seed for each
// instance; all instances must have the same parameters.
func Run(t *testing.T, newModule func(seed uint64) (cong.Module, error)) {
	mk := makerOf(newModule)
	Bounds(t, newModule)
	t.Run("deterministic", func(t *testing.T) { runDeterministic(t, mk) })
	t.Run("batches", func(t *testing.T) { runBatches(t, mk) })
	t.Run("short-out", func(t *testing.T) { runShortOut(t, mk) })
	t.Run("close", func(t *testing.T) { runClose(t, mk) })
	t.Run("foreign", func(t *testing.T) { runForeign(t, mk) })
	t.Run("resume", func(t *testing.T) { runResume(t, mk) })
	t.Run("resume/live", func(t *testing.T) { runResumeLive(t, mk) })
	t.Run("allocations", func(t *testing.T) { runAllocations(t, mk) })
}

// Bounds is the part of Run that holds for any parameters: windows, thresholds and rates stay within their bounds.
func Bounds(t *testing.T, newModule func(seed uint64) (cong.Module, error)) {
	t.Run("bounds", func(t *testing.T) { runBounds(t, makerOf(newModule), false) })
	t.Run("bounds/any-bits", func(t *testing.T) { runBounds(t, makerOf(newModule), true) })
}

type maker func(t testing.TB, seed uint64) cong.Module

func makerOf(newModule func(seed uint64) (cong.Module, error)) maker {
	return func(t testing.TB, seed uint64) cong.Module {
		m, err := newModule(seed)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// check holds an answer against its sample.
func check(in *cong.Sample, d *cong.Decision, rated bool) error {
	mss := min(max(in.MSS, 1), 1<<16)
	switch {
	case d.Flow != in.Flow || d.AsOf != in.ID:
		return fmt.Errorf("is for flow %v, event %d", d.Flow, d.AsOf)
	case d.Cwnd < mss:
		return fmt.Errorf("cwnd %d is below one segment of %d", d.Cwnd, mss)
	case d.Cwnd > 1<<30:
		return fmt.Errorf("cwnd %d is above 2^30", d.Cwnd)
	case d.Ssthresh < 2*mss:
		return fmt.Errorf("ssthresh %d is below two segments of %d", d.Ssthresh, mss)
	case d.Ssthresh > 1<<30 && d.Ssthresh != cong.InfiniteSsthresh:
		return fmt.Errorf("ssthresh %d is above 2^30", d.Ssthresh)
	case rated && d.Rate == 0:
		return fmt.Errorf("no rate after there was one")
	case d.TSOGoal > max(64<<10, 2*mss):
		return fmt.Errorf("TSO goal %d", d.TSOGoal)
	case d.Flags&^(cong.WantsPRR|cong.MarkAppLimited|cong.EnterCWR) != 0:
		return fmt.Errorf("unknown flags %#x", d.Flags)
	}
	return nil
}

// runBounds: no valid sample makes a window below its floor, a zero rate, an overflow or a panic; and neither do samples of
// any bits, so that a fault elsewhere stays where it is.
func runBounds(t *testing.T, mk maker, wild bool) {
	for seed := range uint64(120) {
		g := newGenerator(seed, plugins.Flow{Slot: uint32(seed % 7), Gen: uint32(seed)})
		g.wild = wild
		m := mk(t, seed)
		in := g.open()
		rated := false
		for i := range 600 {
			d, ok := ask(m, &in)
			if !ok {
				t.Fatalf("seed %d, sample %d: no answer to %+v", seed, i, in)
			}
			if err := check(&in, &d, rated); err != nil {
				t.Fatalf("seed %d, sample %d: answer %v\nsample   %+v\ndecision %+v", seed, i, err, in, d)
			}
			rated = d.Rate != 0
			g.dec = d
			in = g.next()
		}
	}
}

func ask(m cong.Module, in *cong.Sample) (cong.Decision, bool) {
	var out [2]cong.Decision
	n := m.Poll(in.Now, []cong.Sample{*in}, out[:])
	return out[0], n == 1
}

// record runs several flows at once in batches of one and returns the samples and the answers.
func record(m cong.Module, seed uint64, samples int) (in []cong.Sample, out []cong.Decision) {
	var gens [5]*generator
	for i := range gens {
		gens[i] = newGenerator(seed, plugins.Flow{Slot: uint32(i * 3), Gen: 9})
	}
	for i := range samples {
		g := gens[i%len(gens)]
		s := g.open
		if i >= len(gens) {
			s = g.next
		}
		in = append(in, s())
		d, _ := ask(m, &in[i])
		g.dec = d
		out = append(out, d)
	}
	return in, out
}

func compare(t *testing.T, what string, got, want []cong.Decision) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d answers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: answer %d\n got %+v\nwant %+v", what, i, got[i], want[i])
		}
	}
}

// runDeterministic: the same seed gives the same answers.
func runDeterministic(t *testing.T, mk maker) {
	for seed := range uint64(10) {
		_, a := record(mk(t, seed), seed, 2000)
		_, b := record(mk(t, seed), seed, 2000)
		compare(t, fmt.Sprintf("seed %d, second run", seed), b, a)
	}
}

// replay sends in to m in batches of size with room for room answers at a time.
func replay(t *testing.T, m cong.Module, in []cong.Sample, size, room int) (out []cong.Decision) {
	var buf [64]cong.Decision
	for len(in) > 0 {
		n := min(size, len(in))
		now := in[n-1].Now
		k := m.Poll(now, in[:n], buf[:room])
		out = append(out, buf[:k]...)
		in = in[n:]
		for m.Deadline() != plugins.Never {
			if m.Deadline() > now {
				t.Fatalf("Deadline %d is later than now %d with answers kept", m.Deadline(), now)
			}
			if k = m.Poll(now, nil, buf[:room]); k == 0 {
				t.Fatal("Poll keeps answers for ever")
			}
			out = append(out, buf[:k]...)
		}
	}
	return out
}

// runBatches: the size of the batch changes nothing.
func runBatches(t *testing.T, mk maker) {
	in, want := record(mk(t, 4), 4, 4000)
	for _, size := range []int{1, 8, 32} {
		compare(t, fmt.Sprintf("batches of %d", size), replay(t, mk(t, 4), in, size, 64), want)
	}
}

// runShortOut: what does not fit is kept and comes later.
func runShortOut(t *testing.T, mk maker) {
	in, want := record(mk(t, 5), 5, 1000)
	for _, room := range []int{1, 7} {
		compare(t, fmt.Sprintf("room for %d", room), replay(t, mk(t, 5), in, 32, room), want)
	}
}

// runClose: Close has no answer and frees the slot for another flow, which starts from nothing.
func runClose(t *testing.T, mk maker) {
	m := mk(t, 6)
	first := newGenerator(1, plugins.Flow{Slot: 2, Gen: 1})
	in := first.open()
	for range 500 {
		first.dec, _ = ask(m, &in)
		in = first.next()
	}
	end := first.sample(cong.KindClose)
	if _, ok := ask(m, &end); ok {
		t.Fatal("Close has an answer")
	}
	// A straggler of the closed flow finds no state.
	got, _ := ask(m, &in)
	if want, _ := ask(mk(t, 6), &in); got != want {
		t.Fatalf("after Close:\n got %+v\nwant %+v", got, want)
	}
	reopened(t, m, mk(t, 6), plugins.Flow{Slot: 2, Gen: 2}, nil)
}

// reopened compares how m and fresh answer a new flow. late is sent to m after the flow's first sample.
func reopened(t *testing.T, m, fresh cong.Module, flow plugins.Flow, late *cong.Sample) {
	t.Helper()
	g := newGenerator(77, flow)
	in := g.open()
	for i := range 500 {
		want, _ := ask(fresh, &in)
		got, ok := ask(m, &in)
		if !ok || got != want {
			t.Fatalf("sample %d of a new flow:\n got %+v\nwant %+v", i, got, want)
		}
		if late != nil {
			if _, ok := ask(m, late); ok {
				t.Fatal("a stale Close has an answer")
			}
		}
		g.dec = got
		in = g.next()
	}
}

// runForeign: a Close of an older flow of the slot leaves the present one alone; a slot out of all bounds is ignored; a
// flow that was never opened is taken as one that is handed over.
func runForeign(t *testing.T, mk maker) {
	stale := newGenerator(1, plugins.Flow{Slot: 2, Gen: 1}).sample(cong.KindClose)
	reopened(t, mk(t, 6), mk(t, 6), plugins.Flow{Slot: 2, Gen: 2}, &stale)

	m := mk(t, 6)
	out := newGenerator(1, plugins.Flow{Slot: 1<<32 - 1, Gen: 1})
	for range 20 {
		in := out.next()
		if _, ok := ask(m, &in); ok {
			t.Fatal("a slot of 2^32-1 has an answer")
		}
	}
	unknown := newGenerator(1, plugins.Flow{Slot: 8, Gen: 5})
	for i := range 100 {
		in := unknown.next()
		d, ok := ask(m, &in)
		if !ok {
			t.Fatal("no answer for a flow that was not opened")
		}
		if err := check(&in, &d, false); err != nil {
			t.Fatalf("sample %d of a flow that was not opened: %v", i, err)
		}
		unknown.dec = d
	}
}

// runResume: the answer to Resume is within bounds and gives no window above the snapshot's.
func runResume(t *testing.T, mk maker) {
	for seed := range uint64(2000) {
		g := newGenerator(seed, plugins.Flow{Slot: 1, Gen: 1})
		in := g.resume()
		d, ok := ask(mk(t, seed), &in)
		if !ok {
			t.Fatalf("seed %d: no answer", seed)
		}
		err := check(&in, &d, false)
		if err == nil && d.Cwnd > in.Cwnd {
			err = fmt.Errorf("cwnd %d is above the snapshot's %d", d.Cwnd, in.Cwnd)
		}
		if err != nil {
			t.Fatalf("seed %d: %v\nsample   %+v\ndecision %+v", seed, err, in, d)
		}
	}
}

// runResumeLive: a module that takes over a live flow is, within 3 round trips, at 80 % of the rate that the flow would have
// had, without a timeout. The flow runs over 40 Mbit/s, 20 ms, one BDP of buffer.
func runResumeLive(t *testing.T, mk maker) {
	var with, without uint64
	for i := range 4 {
		p := Path{Rate: 5_000_000, RTT: 20 * time.Millisecond, Buffer: 100_000}
		start := 4*time.Second + time.Duration(i)*137*time.Millisecond
		a, b := NewSim(p, mk(t, 1)), NewSim(p, mk(t, 1))
		a.Run(start)
		b.Run(start)
		TakeOver(t, b, mk(t, 2))
		a.Run(3 * p.RTT)
		w, wo := b.Delivered(), a.Delivered()
		a.Run(time.Second)
		b.Run(time.Second)
		with += b.Delivered() - w
		without += a.Delivered() - wo
	}
	if with < without*8/10 {
		t.Errorf("from 3 round trips on: %d bytes with, %d without a take-over", with, without)
	}
}

// TakeOver gives a live flow to m and runs it for 3 round trips. It fails the test if in the first one more is in flight than
// the snapshot's window and what was delivered since, that is, if m makes a burst, or if the flow times out.
func TakeOver(t testing.TB, s *Sim, m cong.Module) {
	t.Helper()
	limit, delivered, timeouts := uint64(max(s.window(), s.inFlight)), s.delivered, s.Stats.Timeouts
	s.Swap(m)
	worst := uint64(0)
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		flight := uint64(max(in.PriorInFlight, in.InFlight))
		worst = max(worst, flight-min(flight, s.delivered-delivered))
	}
	s.Run(s.Path.RTT)
	s.OnSample = nil
	if worst > limit {
		t.Errorf("in the first round trip after a take-over with a window of %d up to %d bytes beyond those delivered were in flight",
			limit, worst)
	}
	s.Run(2 * s.Path.RTT)
	if s.Stats.Timeouts != timeouts {
		t.Error("the flow timed out after a take-over")
	}
}

// runAllocations: samples of known flows allocate nothing.
func runAllocations(t *testing.T, mk maker) {
	in, _ := record(mk(t, 8), 8, 3000)
	m := mk(t, 8)
	out := [64]cong.Decision{}
	for i := range in {
		m.Poll(in[i].Now, in[i:i+1], out[:])
	}
	// Openings apart: they may come with a larger slot.
	var acks []cong.Sample
	for _, s := range in {
		if s.Kind != cong.KindOpen && s.Kind != cong.KindResume {
			acks = append(acks, s)
		}
	}
	for _, size := range []int{1, 8, 32} {
		i := 0
		n := testing.AllocsPerRun(500, func() {
			if i+size > len(acks) {
				i = 0
			}
			m.Poll(acks[i].Now, acks[i:i+size], out[:])
			i += size
		})
		if n != 0 {
			t.Errorf("batch %d: %v allocations per Poll", size, n)
		}
	}
}

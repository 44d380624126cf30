package rtx

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Events of any shape, in and out of order, with ranges that fit nothing: both modules agree, and their queues stay sound.
func TestHostileEventsAgree(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 9))
		mods := [2]*module{list(), tree(int(seed%3)*4, 1+int(seed%5))}
		now, tx := plugins.Time(1e9), uint32(0)
		isn := uint32(1<<32 - 3000)
		near := func() uint32 { return isn + uint32(rng.IntN(12_000)) }
		for i := range 8000 {
			now += plugins.Time(rng.IntN(3e6))
			ev := Event{Flow: plugins.Flow{Slot: rng.Uint32N(2), Gen: 1}, ID: uint64(i + 1), Time: now, Seq: near(), MSS: uint32(rng.IntN(2)) * 500}
			ev.End = ev.Seq + uint32(rng.IntN(2500))
			switch op := rng.IntN(20); {
			case op == 0 && rng.IntN(20) == 0:
				ev.Kind, ev.Seq, ev.Flags = EvOpen, isn, uint8(rng.IntN(2))*FlagNoSACK
			case op == 0 && rng.IntN(20) == 0:
				ev.Kind, ev.Echo = EvResume, plugins.Time(rng.IntN(1e8))
			case op < 2:
				tx += 3000
				ev.Kind, ev.Timer, ev.Flags, ev.TxID = EvLog, uint8(rng.IntN(8)), FlagLast*uint8(rng.IntN(2)), tx
			case op < 8:
				tx += 3000 // more packets than a range can have
				ev.Kind, ev.TxID = EvSent, tx
				ev.Flags = uint8(rng.Uint32()) & (FlagRetrans | FlagProbe | FlagAppLimited)
			case op < 10:
				ev.Kind, ev.Timer = EvTimer, uint8(rng.IntN(5))
			default:
				ev.Kind, ev.Flags, ev.NSack = EvAck, uint8(rng.Uint32())&FlagDup, uint8(rng.IntN(7))
				if rng.IntN(3) > 0 {
					ev.Seq = isn
				}
				for k := range ev.Sack {
					ev.Sack[k].Start = near()
					ev.Sack[k].End = ev.Sack[k].Start + uint32(rng.IntN(3000)) - 200
				}
				if rng.IntN(4) == 0 {
					ev.DSack = seq.Range{Start: near(), End: near()}
				}
				ev.Echo = now - plugins.Time(rng.IntN(1e8))
			}
			var outs [2][40]Command
			var n [2]int
			for j, m := range mods {
				n[j] = m.Poll(now, []Event{ev}, outs[j][:])
				if err := integrity(m); err != nil {
					t.Fatalf("seed %d, event %d, module %d: %v\nafter %+v", seed, i, j, err, ev)
				}
			}
			if n[0] != n[1] || outs[0] != outs[1] {
				t.Fatalf("seed %d, event %d: answers differ\n%s", seed, i, cmp.Diff(outs[0][:n[0]], outs[1][:n[1]]))
			}
		}
	}
}

// A peer that SACKs every second byte, or that acknowledges byte by byte, costs no memory and no more than a look at each event
// (CVE-2019-11477 and its kin).
func TestFragmentsAreBounded(t *testing.T) {
	r := newRig(tree(0, 64))
	for range 200 {
		r.send()
	}
	r.poll()
	f := r.m.slot(3)
	r.now += 10e6
	before := r.m.Visits()
	const n = 20_000
	for i := range uint32(n) {
		at := r.una + bsize + i*7
		r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt, NSack: 1, Sack: [MaxSack]seq.Range{{Start: at, End: at + 1}}})
	}
	r.poll()
	if f.q.n != 200 || f.sackedOut != 0 {
		t.Errorf("%d segments, %d bytes SACKed", f.q.n, f.sackedOut)
	}
	if v := r.m.Visits() - before; v > 40*n {
		t.Errorf("%d visits for %d acknowledgements", v, n)
	}
	before = r.m.Visits()
	for range uint32(10 * bsize) {
		r.una++
		r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt})
	}
	r.poll()
	if f.q.n != 190 || f.inFlight() != 190*bsize {
		t.Errorf("%d segments, %d bytes in flight", f.q.n, f.inFlight())
	}
	if v := r.m.Visits() - before; v > 2*10*bsize {
		t.Errorf("%d visits for %d acknowledgements", v, 10*bsize)
	}
}

// Acknowledgements of a long queue with random losses look at a logarithm of it, besides what they change.
func TestVisitsAreLogarithmic(t *testing.T) {
	const n = 20_000
	m := mustModule(NewBTree(nil, 1))
	r := newRig(m)
	for range n {
		r.now += 1e3
		r.send()
	}
	for len(r.in) > 0 {
		r.poll()
	}
	arrive := kept(n, func(i int) bool { return i == 0 || i%20 == 7 })
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(arrive), func(i, j int) { arrive[i], arrive[j] = arrive[j], arrive[i] })
	var v receiver
	v.reset(r.una, n)
	r.now += 10e6
	before := m.Visits()
	for _, i := range arrive {
		ev := Event{Kind: EvAck, Seq: r.una, End: r.nxt}
		v.arrive(i, &ev)
		r.push(ev)
		r.poll()
	}
	const log2 = 15
	if got := float64(m.Visits()-before) / float64(len(arrive)); got > 4*log2+4 {
		t.Errorf("%.1f visits per acknowledgement of %d segments, want at most %d", got, n, 4*log2+4)
	} else {
		t.Logf("%.1f visits per acknowledgement", got)
	}
	if err := integrity(m); err != nil {
		t.Error(err)
	}
}

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

// A peer that has announced a tiny segment size, and SACKs every second packet of what left in runs, cuts the queue into so many pieces at
// most, by what is outstanding, at the same work for each acknowledgement, and is told apart (CVE-2019-11477, CVE-2019-11479). What it
// acknowledges counts as ever. Large segments are cut wherever their packets end.
func TestPiecesAreBounded(t *testing.T) {
	const runs, run = 2000, 16
	for _, mss := range []uint32{88, 200, bsize} {
		r := newRig(tree(32, 64))
		for range runs {
			r.tx += run
			r.push(Event{Kind: EvSent, Seq: r.nxt, End: r.nxt + run*mss, TxID: r.tx - run + 1, MSS: mss})
			r.nxt += run * mss
		}
		r.poll()
		f := r.m.slot(3)
		r.now += 10e6
		before := r.m.Visits()
		limited := 0
		for i := range uint32(runs * run / 2) {
			at := r.una + (2*i+1)*mss
			r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt, NSack: 1, Sack: [MaxSack]seq.Range{{Start: at, End: at + mss}}})
			for k := range r.poll() {
				if c := &r.out[k]; c.Kind == CmdStatus && c.Flags&FlagSackLimited != 0 {
					limited++
				}
			}
		}
		pieces, sacked := f.q.n, f.sackedOut
		t.Logf("MSS %d: %d pieces, %d bytes SACKed of %d, limited %d times", mss, pieces, sacked, r.nxt-r.una, limited)
		if most := max(maxPieces, int((r.nxt-r.una)/pieceBytes)) + 2; mss < pieceBytes {
			if pieces > max(most, runs) || limited == 0 || sacked == 0 {
				t.Errorf("MSS %d: %d pieces, want at most %d; limited %d times", mss, pieces, most, limited)
			}
		} else if pieces != runs*run || sacked != runs*run/2*mss || limited != 0 {
			t.Errorf("MSS %d: %d pieces, %d bytes SACKed, limited %d times", mss, pieces, sacked, limited)
		}
		if v := r.m.Visits() - before; v > 40*runs*run/2 {
			t.Errorf("MSS %d: %d visits for %d acknowledgements", mss, v, runs*run/2)
		}
		r.una = r.nxt
		r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt})
		r.poll()
		if f.q != nil || f.inFlight() != 0 || f.delivered != uint64(runs*run*mss) {
			t.Errorf("MSS %d: %d bytes in flight, %d delivered", mss, f.inFlight(), f.delivered)
		}
	}
}

// rig drives one flow of a module.
type rig struct {
	m        *module
	now      plugins.Time
	id       uint64
	tx       uint32
	una, nxt uint32
	in       []Event
	out      [256]Command
}

const bsize = 1448

func newRig(m *module) *rig {
	r := &rig{m: m, now: 1e9}
	r.push(Event{Kind: EvOpen, MSS: bsize, Echo: r.now - 10*ms})
	r.poll()
	return r
}

func (r *rig) push(ev Event) {
	r.id++
	ev.ID, ev.Flow, ev.Time = r.id, plugins.Flow{Slot: 3, Gen: 1}, r.now
	r.in = append(r.in, ev)
}

func (r *rig) send() {
	r.tx++
	r.push(Event{Kind: EvSent, Seq: r.nxt, End: r.nxt + bsize, TxID: r.tx})
	r.nxt += bsize
}

// poll returns how many commands the last part of the answer had.
func (r *rig) poll() (n int) {
	for n = r.m.Poll(r.now, r.in, r.out[:]); n == len(r.out); {
		n = r.m.Poll(r.now, nil, r.out[:])
	}
	r.in = r.in[:0]
	return n
}

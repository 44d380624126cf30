// Package rtxload drives one flow of a retransmit-queue module for measurements: segments are sent, and acknowledged or selectively
// acknowledged in one of several patterns.
package rtxload

import (
	"math/rand/v2"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Size is the payload of a segment, bytes.
const Size = 1448

// Flow is one flow of a module. Its peer acknowledges what the caller says.
type Flow struct {
	mod      rtx.Module
	now      plugins.Time
	id       uint64
	tx       uint32
	una, nxt uint32
	in       []rtx.Event
	out      [256]rtx.Command
}

// New opens a flow.
func New(m rtx.Module) *Flow {
	f := &Flow{mod: m, now: 1e9}
	f.push(rtx.Event{Kind: rtx.EvOpen, MSS: Size, Echo: f.now - 10e6})
	f.Poll()
	return f
}

func (f *Flow) push(ev rtx.Event) {
	f.id++
	ev.ID, ev.Flow, ev.Time = f.id, plugins.Flow{Slot: 3, Gen: 1}, f.now
	f.in = append(f.in, ev)
}

// Wait moves the clock by ns nanoseconds.
func (f *Flow) Wait(ns int64) { f.now += plugins.Time(ns) }

// Send sends n segments one by one, each of which is an event.
func (f *Flow) Send(n int) {
	for range n {
		f.tx++
		f.push(rtx.Event{Kind: rtx.EvSent, Seq: f.nxt, End: f.nxt + Size, TxID: f.tx})
		f.nxt += Size
	}
}

// Fill sends n segments, a microsecond apart, in batches.
func (f *Flow) Fill(n int) {
	for i := range n {
		f.Wait(1e3)
		f.Send(1)
		if i%128 == 127 {
			f.Poll()
		}
	}
	f.Poll()
}

// Ack acknowledges the next n segments at once.
func (f *Flow) Ack(n int) {
	f.una += uint32(n) * Size
	f.push(rtx.Event{Kind: rtx.EvAck, Seq: f.una, End: f.nxt})
}

// AckAll acknowledges everything.
func (f *Flow) AckAll() { f.Ack(int((f.nxt - f.una) / Size)) }

// Sack is a duplicate acknowledgement with the blocks that r reports when segment i, counted from the first outstanding one, arrives.
func (f *Flow) Sack(r *Receiver, i int) {
	ev := rtx.Event{Kind: rtx.EvAck, Seq: f.una, End: f.nxt, Flags: rtx.FlagDup}
	r.arrive(f.una, i, &ev)
	f.push(ev)
}

// Poll gives the module what has gathered.
func (f *Flow) Poll() {
	for n := f.mod.Poll(f.now, f.in, f.out[:]); n == len(f.out); {
		n = f.mod.Poll(f.now, nil, f.out[:])
	}
	f.in = f.in[:0]
}

// Visits is how many entries of its queue the module has looked at; 0 if it does not count.
func (f *Flow) Visits() uint64 {
	if v, ok := f.mod.(interface{ Visits() uint64 }); ok {
		return v.Visits()
	}
	return 0
}

// Pattern is a way in which n outstanding segments arrive: the first one is lost, and perhaps others.
type Pattern struct {
	Name string
	// Arrivals returns the segments that arrive, in order of arrival: one at the least. There are two segments or more.
	Arrivals func(n int, rng *rand.Rand) []int
}

// Patterns of arrival.
var Patterns = []Pattern{
	{"hole", func(n int, _ *rand.Rand) []int { return kept(n, func(int) bool { return false }) }},
	{"second", func(n int, _ *rand.Rand) []int { return kept(n, func(i int) bool { return i%2 == 0 }) }},
	{"random5", random5},
	{"uniform5", func(n int, rng *rand.Rand) []int {
		s := random5(n, rng)
		rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		return s
	}},
}

func random5(n int, rng *rand.Rand) (arrive []int) {
	for len(arrive) == 0 { // of a few segments none may arrive: nothing would be acknowledged, for ever
		arrive = kept(n, func(int) bool { return rng.IntN(20) == 0 })
	}
	return arrive
}

func kept(n int, lost func(int) bool) (arrive []int) {
	for i := 1; i < n; i++ {
		if !lost(i) {
			arrive = append(arrive, i)
		}
	}
	return arrive
}

// Receiver makes the SACK blocks of arriving segments (RFC 2018, 4: the one that grew, and the two reported before), in constant time
// per segment.
type Receiver struct {
	// edge holds, at the first segment of a run, one past its last; and at its last segment, if that is another, the first one's number
	// plus one, negative.
	edge   []int32
	recent [3]int32 // first segments of the runs reported last
}

// Reset forgets what arrived; n segments are outstanding.
func (v *Receiver) Reset(n int) {
	if len(v.edge) != n+2 {
		v.edge = make([]int32, n+2)
	}
	clear(v.edge)
	v.recent = [3]int32{-1, -1, -1}
}

func (v *Receiver) arrive(base uint32, i int, ev *rtx.Event) {
	start, stop := int32(i), int32(i+1)
	if i > 0 && v.edge[i-1] > 0 { // a run of one on the left
		start = int32(i - 1)
	} else if i > 0 && v.edge[i-1] < 0 {
		start = -v.edge[i-1] - 1
	}
	if v.edge[i+1] > 0 {
		stop = v.edge[i+1]
	}
	v.edge[stop-1] = -start - 1
	v.edge[start] = stop
	r := [3]int32{start, -1, -1}
	k := 1
	for _, s := range v.recent {
		if s >= 0 && (s < start || s >= stop) && k < 3 {
			r[k] = s
			k++
		}
	}
	v.recent = r
	for _, s := range r {
		if s < 0 {
			break
		}
		ev.Sack[ev.NSack] = seq.Range{Start: base + uint32(s)*Size, End: base + uint32(v.edge[s])*Size}
		ev.NSack++
	}
}

package rtx

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// rig drives one flow of a module for benchmarks.
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

func (r *rig) poll() {
	for n := r.m.Poll(r.now, r.in, r.out[:]); n == len(r.out); {
		n = r.m.Poll(r.now, nil, r.out[:])
	}
	r.in = r.in[:0]
}

var modules = map[string]func() *module{
	"list":  list,
	"btree": func() *module { return mustModule(NewBTree(nil, 1)) },
	"pure":  func() *module { return tree(0, 1) }, // google/btree of single segments, no hybrid
}

var names = []string{"list", "btree", "pure"}

// In order: n segments outstanding; k are sent and one acknowledgement covers k, in batches as a worker makes them.
func BenchmarkInOrder(b *testing.B) {
	for _, n := range []int{1, 32, 1000, 100_000} {
		for _, k := range []int{1, 2, 32} {
			if k > n {
				continue
			}
			for _, name := range names {
				b.Run(fmt.Sprintf("n=%d/acked=%d/%s", n, k, name), func(b *testing.B) {
					r := newRig(modules[name]())
					for range n - k {
						r.send()
					}
					r.poll()
					visits := r.m.Visits()
					b.ReportAllocs()
					for b.Loop() {
						r.now += 1e6
						for range k {
							r.send()
						}
						r.poll()
						r.now += 1e3
						r.una += uint32(k * bsize)
						r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt})
						r.poll()
					}
					b.ReportMetric(float64(r.m.Visits()-visits)/float64(b.N), "visits/ack")
				})
			}
		}
	}
}

// Only sending, and only acknowledging, in batches of 32 events.
func BenchmarkEvent(b *testing.B) {
	for _, name := range names {
		for _, acked := range []int{1, 2, 8, 32} {
			b.Run(fmt.Sprintf("ack/acked=%d/%s", acked, name), func(b *testing.B) {
				r := newRig(modules[name]())
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%32 == 0 {
						b.StopTimer()
						for range 32 {
							for range acked {
								r.now += 1e3
								r.send()
							}
						}
						r.poll()
						r.now += 10e6
						for range 32 {
							r.una += uint32(acked * bsize)
							r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt})
						}
						b.StartTimer()
						r.poll()
					}
				}
			})
		}
		b.Run("sent/"+name, func(b *testing.B) {
			r := newRig(modules[name]())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%32 == 0 {
					b.StopTimer()
					if i%1024 == 0 {
						r.una = r.nxt
						r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt})
						r.poll()
					}
					r.now += 1e3
					for range 32 {
						r.send()
					}
					b.StartTimer()
					r.poll()
				}
			}
		})
	}
}

// patterns are the ways in which n outstanding segments are SACKed: the first is lost in all of them.
var patterns = []struct {
	name  string
	order func(n int, rng *rand.Rand) []int
}{
	{"hole", func(n int, _ *rand.Rand) []int { return kept(n, func(i int) bool { return i == 0 }) }},
	{"second", func(n int, _ *rand.Rand) []int { return kept(n, func(i int) bool { return i%2 == 0 }) }},
	{"random5", func(n int, rng *rand.Rand) []int {
		return kept(n, func(i int) bool { return i == 0 || rng.IntN(20) == 0 })
	}},
	{"shuffled5", func(n int, rng *rand.Rand) []int {
		s := kept(n, func(i int) bool { return i == 0 || rng.IntN(20) == 0 })
		rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		return s
	}},
}

func kept(n int, lost func(int) bool) (arrive []int) {
	for i := range n {
		if !lost(i) {
			arrive = append(arrive, i)
		}
	}
	return arrive
}

// SACKs: one acknowledgement per arrival, with the block that grew and the two reported before (RFC 2018).
func BenchmarkSack(b *testing.B) {
	for _, p := range patterns {
		for _, n := range []int{32, 1000, 10_000, 100_000} {
			for _, name := range names {
				if name == "list" && n > 10_000 && p.name == "shuffled5" {
					continue // minutes
				}
				b.Run(fmt.Sprintf("%s/n=%d/%s", p.name, n, name), func(b *testing.B) {
					m := modules[name]()
					r := newRig(m)
					arrive := p.order(n, rand.New(rand.NewPCG(1, 1)))
					var visits, acks uint64
					i := 0
					var blocks receiver
					for b.Loop() {
						if i == 0 {
							b.StopTimer()
							if r.una != r.nxt {
								r.una = r.nxt
								r.push(Event{Kind: EvAck, Seq: r.una, End: r.nxt})
								r.poll()
							}
							for j := range n {
								if r.now += 1e3; j%128 == 127 {
									r.poll()
								}
								r.send()
							}
							r.poll()
							r.now += 10e6
							blocks.reset(r.una, n)
							visits -= m.Visits()
							b.StartTimer()
						}
						ev := Event{Kind: EvAck, Seq: r.una, End: r.nxt, Flags: FlagDup}
						blocks.arrive(arrive[i], &ev)
						r.now += 1e3
						r.push(ev)
						r.poll()
						acks++
						if i++; i == len(arrive) {
							i = 0
							visits += m.Visits()
						}
					}
					if i != 0 {
						visits += m.Visits()
					}
					b.ReportMetric(float64(visits)/float64(acks), "visits/ack")
				})
			}
		}
	}
}

// receiver makes the SACK blocks of arriving packets, in constant time per packet. edge holds, at the first packet of a run, one past
// its last; and at its last packet, if that is another, the first one's number less one, negative.
type receiver struct {
	base   uint32
	edge   []int32
	recent [3]int32 // first packets of the runs reported last
}

func (v *receiver) reset(base uint32, n int) {
	if len(v.edge) != n+2 {
		v.edge = make([]int32, n+2)
	}
	clear(v.edge)
	v.base = base
	v.recent = [3]int32{-1, -1, -1}
}

func (v *receiver) arrive(i int, ev *Event) {
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
		ev.Sack[ev.NSack] = seq.Range{Start: v.base + uint32(s)*bsize, End: v.base + uint32(v.edge[s])*bsize}
		ev.NSack++
	}
}

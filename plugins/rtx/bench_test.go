package rtx_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/test/bench/rtxload"
)

var modules = []struct {
	name string
	make rtx.New
	p    plugins.Params
}{
	{"list", rtx.NewList, nil},
	{"btree", rtx.NewBTree, nil},
	{"pure", rtx.NewBTree, plugins.Params{"threshold": "0", "run": "1"}}, // google/btree of single segments, no hybrid
}

func mustMake(tb testing.TB, n rtx.New, p plugins.Params) rtx.Module {
	m, err := n(p, 1)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// In order: n segments outstanding; k are sent and one acknowledgement covers k, in batches as a worker makes them. `fastpath bench rtx`
// measures the patterns of selective acknowledgement.
func BenchmarkInOrder(b *testing.B) {
	for _, n := range []int{1, 32, 1000, 100_000} {
		for _, k := range []int{1, 2, 32} {
			if k > n {
				continue
			}
			for _, m := range modules {
				b.Run(fmt.Sprintf("n=%d/acked=%d/%s", n, k, m.name), func(b *testing.B) {
					f := rtxload.New(mustMake(b, m.make, m.p))
					f.Fill(n - k)
					visits := f.Visits()
					b.ReportAllocs()
					for b.Loop() {
						f.Wait(1e6)
						f.Send(k)
						f.Poll()
						f.Wait(1e3)
						f.Ack(k)
						f.Poll()
					}
					b.ReportMetric(float64(f.Visits()-visits)/float64(b.N), "visits/ack")
				})
			}
		}
	}
}

// Acknowledgements of a long queue with random losses look at a logarithm of it, besides what they change, in any order of arrival.
func TestVisitsAreLogarithmic(t *testing.T) {
	const n, log2 = 20_000, 15
	for _, p := range rtxload.Patterns {
		f := rtxload.New(mustMake(t, rtx.NewBTree, nil))
		f.Fill(n)
		f.Wait(10e6)
		var r rtxload.Receiver
		r.Reset(n)
		arrive := p.Arrivals(n, rand.New(rand.NewPCG(1, 1)))
		before := f.Visits()
		for _, i := range arrive {
			f.Sack(&r, i)
			f.Poll()
		}
		got := float64(f.Visits()-before) / float64(len(arrive))
		if t.Logf("%s: %.1f visits per acknowledgement", p.Name, got); got > 4*log2+4 {
			t.Errorf("%s: %.1f visits per acknowledgement of %d segments, want at most %d", p.Name, got, n, 4*log2+4)
		}
	}
}

// In steady state nothing is allocated, whatever the queue's length and shape.
func TestNoAllocations(t *testing.T) {
	for _, m := range modules {
		for _, n := range []int{1, 32, 2000} {
			f := rtxload.New(mustMake(t, m.make, m.p))
			var r rtxload.Receiver
			round := func() {
				f.Fill(n)
				f.Wait(10e6)
				r.Reset(n)
				for i := 1; i < n; i += 3 {
					f.Wait(1e3)
					f.Sack(&r, i)
					f.Poll()
				}
				f.AckAll()
				f.Poll()
			}
			round()
			if got := testing.AllocsPerRun(100, round); got != 0 {
				t.Errorf("%s, %d segments: %v allocations", m.name, n, got)
			}
		}
	}
}

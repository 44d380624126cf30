package congtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Bench measures ns and allocations per sample in batches of 1, 8 and 32, on the acknowledgements of a flow over
// 1 Gbit/s, 20 ms with one BDP of buffer.
func Bench(b *testing.B, newModule func(seed uint64) (cong.Module, error)) {
	for _, size := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			m, err := newModule(1)
			if err != nil {
				b.Fatal(err)
			}
			bench(b, m, size)
		})
	}
}

func bench(b *testing.B, m cong.Module, size int) {
	s := NewSim(Path{Rate: 125_000_000, RTT: 20 * time.Millisecond, Buffer: 2_500_000}, m)
	s.Run(5 * time.Second)
	var acks []cong.Sample
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		if in.Kind == cong.KindAck && len(acks) < 1024 {
			acks = append(acks, *in)
		}
	}
	s.Run(500 * time.Millisecond)
	if len(acks) < 1024 {
		b.Fatalf("only %d samples", len(acks))
	}
	span := acks[len(acks)-1].Now - acks[0].Now
	bytes := acks[len(acks)-1].Delivered - acks[0].Delivered
	// The module has seen these: the first round moves on, too.
	shift := func(by plugins.Time, delivered uint64) {
		for i := range acks {
			acks[i].Now += by
			acks[i].SendTime += by
			acks[i].Delivered += delivered
			acks[i].PriorDelivered += delivered
		}
	}
	shift(plugins.Time(time.Second), 1<<30)
	out := make([]cong.Decision, 64)
	i := 0
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		m.Poll(acks[i].Now, acks[i:i+size], out)
		if i += size; i == len(acks) {
			i = 0
			shift(span, bytes)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/sample")
}

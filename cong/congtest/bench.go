package congtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Load is a flow's acknowledgements, again and again, to measure what a module makes of them.
type Load struct {
	acks   []cong.Sample
	i      int
	period plugins.Time // of all
	bytes  uint64
}

// NewLoad runs m over 1 Gbit/s, 20 ms with one BDP of buffer, past its start, and takes down what it is told. The error says that it did
// not send enough.
func NewLoad(m cong.Module) (*Load, error) {
	const samples = 1024
	l := &Load{}
	s := NewSim(Path{Rate: 125_000_000, RTT: 20 * time.Millisecond, Buffer: 2_500_000}, m)
	s.Run(5 * time.Second)
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		if in.Kind == cong.KindAck && len(l.acks) < samples {
			l.acks = append(l.acks, *in)
		}
	}
	s.Run(500 * time.Millisecond)
	if len(l.acks) < samples {
		return nil, fmt.Errorf("only %d acknowledgements in half a second of 1 Gbit/s", len(l.acks))
	}
	l.period = l.acks[samples-1].Now - l.acks[0].Now
	l.bytes = l.acks[samples-1].Delivered - l.acks[0].Delivered
	// The module has seen these: the first round moves on, too.
	l.shift(plugins.Time(time.Second), 1<<30)
	return l, nil
}

func (l *Load) shift(by plugins.Time, delivered uint64) {
	for i := range l.acks {
		l.acks[i].Now += by
		l.acks[i].SendTime += by
		l.acks[i].Delivered += delivered
		l.acks[i].PriorDelivered += delivered
	}
}

// Next returns the next n acknowledgements, n a divisor of 1024, as the module would get them: times and bytes go on. They are valid
// until the next call.
func (l *Load) Next(n int) []cong.Sample {
	if l.i == len(l.acks) {
		l.i = 0
		l.shift(l.period, l.bytes)
	}
	l.i += n
	return l.acks[l.i-n : l.i]
}

// Bench measures ns and allocations per sample in batches of 1, 8 and 32.
func Bench(b *testing.B, newModule func(seed uint64) (cong.Module, error)) {
	for _, size := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			m, err := newModule(1)
			if err != nil {
				b.Fatal(err)
			}
			l, err := NewLoad(m)
			if err != nil {
				b.Fatal(err)
			}
			out := make([]cong.Decision, 64)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				in := l.Next(size)
				m.Poll(in[0].Now, in, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/sample")
		})
	}
}

package host

import (
	"slices"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// BenchmarkRoundTrip: one sample to a module process and its answer back. busy: the module finds each sample while it still
// looks; parked: it must be woken.
func BenchmarkRoundTrip(b *testing.B) {
	for name, spin := range map[string]time.Duration{"busy": time.Millisecond, "parked": time.Nanosecond} {
		b.Run(name, func(b *testing.B) {
			e := &idleEngine{}
			cfg := testConfig(b, e, testSpec(b, "good"))
			cfg.Spin = spin
			startManager(b, cfg)
			r := e.remote(plugins.Cong).(cong.Module)
			out := make([]cong.Decision, 4)
			took := make([]time.Duration, b.N)
			b.ResetTimer()
			for i := range b.N {
				s := sample(0, uint64(i+1), cong.KindAck)
				if i == 0 {
					s.Kind = cong.KindOpen
				}
				start := link.Now()
				for n := r.Poll(start, []cong.Sample{s}, out); n == 0; n = r.Poll(link.Now(), nil, out) {
				}
				took[i] = link.Now().Sub(start)
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "ns/p50")
			b.ReportMetric(float64(took[len(took)*99/100]), "ns/p99")
			b.ReportMetric(float64(took[len(took)-1]), "ns/max")
		})
	}
}

func BenchmarkRemote(b *testing.B) {
	for _, bench := range []struct {
		name  string
		batch int
	}{{"batch=1", 1}, {"batch=32", 32}, {"batch=128", 128}} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRig(b, mustThird(b), 1024, Guard{})
			in := make([]cong.Sample, bench.batch)
			out := make([]cong.Decision, 256)
			now, id := plugins.Time(1), uint64(0)
			for i := 0; i < b.N; i += bench.batch {
				for j := range in {
					id++
					in[j] = sample(uint32(j), id, cong.KindAck)
					if id <= uint64(len(in)) {
						in[j].Kind = cong.KindOpen
					}
				}
				now += 1000
				r.Poll(now, in, out)
				r.lane.Turn(now)
				r.Poll(now, nil, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/event")
		})
	}
}

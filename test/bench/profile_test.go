package bench

import (
	"testing"
	"time"
)

// BenchmarkFloor does the work of the speed floor's rows, for `make profile`: the compiler places and inlines by what it took.
func BenchmarkFloor(b *testing.B) {
	for _, r := range rows(FloorOptions{Time: time.Second, Conns: 10_000}) {
		if r.bench == NameIdle {
			continue // measures memory, and mostly waits
		}
		b.Run(r.name, func(b *testing.B) {
			for b.Loop() {
				run, err := once(r.bench, r.options)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(run.Values[r.metric], r.metric)
			}
		})
	}
}

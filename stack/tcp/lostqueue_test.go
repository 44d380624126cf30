package tcp

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// BenchmarkLostQueue: 100 000 ranges wait; one is sent again from the front, and one that was lost again, or lies behind all, comes in. None
// of it may cost more than with 100.
func BenchmarkLostQueue(b *testing.B) {
	for _, n := range []uint32{100, 100_000} {
		for _, again := range []bool{true, false} {
			name := map[bool]string{true: "front", false: "end"}[again]
			b.Run(name+"/"+map[uint32]string{100: "100", 100_000: "100k"}[n], func(b *testing.B) {
				var q lostQueue
				for i := range n {
					q.add(seq.Range{Start: 10 * i, End: 10*i + 1})
				}
				end := 10 * n
				b.ReportAllocs()
				for b.Loop() {
					f := q.first()
					q.trim(f.End)
					if again {
						q.add(f)
					} else {
						q.add(seq.Range{Start: end, End: end + 1})
						end += 10
					}
				}
			})
		}
	}
}

package rtxload

import (
	"math/rand/v2"
	"testing"
)

// With the fewest segments, too, one arrives: a measurement that waits for acknowledgements ends.
func TestArrivals(t *testing.T) {
	for _, p := range Patterns {
		for n := 2; n < 5; n++ {
			for seed := range uint64(100) {
				arrive := p.Arrivals(n, rand.New(rand.NewPCG(seed, 1)))
				if len(arrive) == 0 {
					t.Errorf("%s of %d, seed %d: none arrives", p.Name, n, seed)
				}
				for _, i := range arrive {
					if i < 1 || i >= n {
						t.Errorf("%s of %d, seed %d: segment %d arrives", p.Name, n, seed, i)
					}
				}
			}
		}
	}
}

package rng

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// The first outputs of splitmix64 with seed 1234567, as published with the generator.
func TestSplitmix64(t *testing.T) {
	r := Rand(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := r.Uint64(); got != want {
			t.Errorf("output %d: %d, want %d", i, got, want)
		}
	}
}

func TestFlowsDiffer(t *testing.T) {
	seen := map[uint64]plugins.Flow{}
	for slot := range uint32(100) {
		for gen := range uint32(10) {
			f := plugins.Flow{Slot: slot, Gen: gen}
			r := New(7, f)
			v := r.Uint64()
			if g, ok := seen[v]; ok {
				t.Fatalf("flows %v and %v draw the same", f, g)
			}
			seen[v] = f
		}
	}
}

func TestNIsUniform(t *testing.T) {
	const n, draws = 7, 70000
	var count [n]int
	r := Rand(1)
	for range draws {
		count[r.N(n)]++
	}
	for i, c := range count {
		// 10 000 expected, standard deviation 93.
		if c < 9600 || c > 10400 {
			t.Errorf("%d was drawn %d times of %d", i, c, draws)
		}
	}
}

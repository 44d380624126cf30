package bbr

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
)

// The filter against a list of all samples: never more than the window's maximum, never less than the newest sample.
func TestMaxFilter(t *testing.T) {
	const win = 10
	r := rng.Rand(1)
	for trial := range 200 {
		var f maxFilter
		var all []maxSample
		at := uint32(0)
		for range 300 {
			at += r.N(3)
			v := uint64(1 + r.N(1000))
			f.add(win, at, v)
			all = append(all, maxSample{at, v})
			var most uint64
			for _, s := range all {
				if at-s.at <= win {
					most = max(most, s.v)
				}
			}
			if got := f.get(); got > most || got < v {
				t.Fatalf("trial %d, round %d: %d, maximum of the window is %d, newest %d", trial, at, got, most, v)
			}
		}
	}
}

func TestMaxFilterForgets(t *testing.T) {
	var f maxFilter
	f.add(10, 0, 1000)
	for at := uint32(1); at <= 30; at++ {
		f.add(10, at, 100)
		want := uint64(1000)
		if at > 10 {
			want = 100
		}
		if f.get() != want {
			t.Fatalf("round %d: %d, want %d", at, f.get(), want)
		}
	}
	f.add(10, 31, 500)
	if f.get() != 500 {
		t.Errorf("a new maximum is not taken at once")
	}
}

// A falling sequence: the maximum is the sample that is a window old, as long as the three choices can tell; each choice
// covers a part of the window, so the result is at most a quarter to a half window newer.
func TestMaxFilterFalling(t *testing.T) {
	var f maxFilter
	for at := uint32(0); at < 100; at++ {
		f.add(10, at, uint64(1000-at))
		if at < 10 {
			continue
		}
		oldest := uint64(1000 - (at - 10))
		if got := f.get(); got > oldest || got < oldest-10 {
			t.Fatalf("round %d: %d, the window's maximum is %d", at, got, oldest)
		}
	}
}

// The three choices step by step (facts 1.6), window 8.
func TestMaxFilterSteps(t *testing.T) {
	var f maxFilter
	for i, c := range []struct {
		at   uint32
		v    uint64
		want [3]maxSample
	}{
		{0, 100, [3]maxSample{{0, 100}, {0, 100}, {0, 100}}},
		{2, 50, [3]maxSample{{0, 100}, {0, 100}, {0, 100}}}, // not beyond a quarter yet
		{3, 40, [3]maxSample{{0, 100}, {3, 40}, {3, 40}}},   // a quarter has passed without a second choice
		{4, 45, [3]maxSample{{0, 100}, {4, 45}, {4, 45}}},
		{5, 30, [3]maxSample{{0, 100}, {4, 45}, {5, 30}}}, // half has passed without a third
		{6, 35, [3]maxSample{{0, 100}, {4, 45}, {6, 35}}},
		{9, 10, [3]maxSample{{4, 45}, {6, 35}, {9, 10}}}, // the first is too old
		{16, 5, [3]maxSample{{9, 10}, {16, 5}, {16, 5}}}, // and two of them
		{25, 1, [3]maxSample{{25, 1}, {25, 1}, {25, 1}}}, // and all
	} {
		f.add(8, c.at, c.v)
		if f.s != c.want {
			t.Errorf("step %d: %v, want %v", i, f.s, c.want)
		}
	}
}

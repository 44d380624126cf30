package bbr

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
)

// The filter against a list of all samples: never more than the window's maximum, never less than the maximum of its last
// quarter's… choices, exact for samples that fall or rise.
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

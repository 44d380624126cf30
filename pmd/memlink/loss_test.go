package memlink

import (
	"slices"
	"testing"
)

// run returns which of n frames a loss model loses.
func losses(l Loss, n int, seed uint64) []bool {
	var m lossModel
	m.set(l)
	d := newDraws(seed, 1)
	out := make([]bool, n)
	for i := range out {
		out[i] = m.lost(d)
	}
	return out
}

// runs returns the lengths of the runs of losses.
func runs(lost []bool) (rs []int) {
	n := 0
	for _, l := range append(lost, false) {
		if l {
			n++
		} else if n > 0 {
			rs, n = append(rs, n), 0
		}
	}
	return rs
}

func count(lost []bool) (n int) {
	for _, l := range lost {
		if l {
			n++
		}
	}
	return n
}

func TestRandomLoss(t *testing.T) {
	const frames = 1_000_000
	for _, p := range []PPB{Percent / 100, Percent, 30 * Percent} {
		got := count(losses(Loss{Random: p}, frames, 1))
		want := int(uint64(p) * frames / uint64(Always))
		// Five standard deviations of a binomial.
		if d := got - want; d*d > 25*want {
			t.Errorf("%d ppb: %d of %d frames lost, want about %d", p, got, frames, want)
		}
	}
	if n := count(losses(Loss{Random: Always}, 1000, 1)); n != 1000 {
		t.Errorf("with certainty %d of 1000 frames are lost", n)
	}
}

func TestListedLoss(t *testing.T) {
	lost := losses(Loss{Frames: []uint64{7, 1, 7, 3, 1000}}, 10, 1)
	for i, l := range lost {
		if want := slices.Contains([]int{1, 3, 7}, i+1); l != want {
			t.Errorf("frame %d: lost %v, want %v", i+1, l, want)
		}
	}
}

func TestBurstLoss(t *testing.T) {
	const frames = 1_000_000
	rs := runs(losses(Loss{Burst: Percent / 10, BurstLen: 5}, frames, 1))
	longer := 0
	for _, r := range rs {
		if r < 5 {
			t.Fatalf("a burst of %d frames, want at least 5", r)
		}
		if r > 5 {
			longer++
		}
	}
	if len(rs) < 850 || len(rs) > 1150 || longer > 20 {
		t.Errorf("%d bursts of which %d adjoin another, want about 1000 and few", len(rs), longer)
	}
}

func TestGilbertElliott(t *testing.T) {
	const frames = 2_000_000
	// In the bad state 1/(1+20) of the time, for 5 frames on average.
	lost := losses(Loss{Gilbert: Gilbert{ToBad: Percent, ToGood: 20 * Percent, Good: 0, Bad: Always}}, frames, 3)
	if n, want := count(lost), frames/21; n < want*95/100 || n > want*105/100 {
		t.Errorf("%d frames lost, want about %d", n, want)
	}
	rs := runs(lost)
	if mean := count(lost) * 100 / len(rs); mean < 480 || mean > 520 {
		t.Errorf("mean burst of %d.%02d frames, want about 5", mean/100, mean%100)
	}
	// With losses in both states the rates add up in proportion.
	lost = losses(Loss{Gilbert: Gilbert{ToBad: Percent, ToGood: Percent, Good: Percent, Bad: 50 * Percent}}, frames, 3)
	if n, want := count(lost), frames*51/200; n < want*95/100 || n > want*105/100 {
		t.Errorf("%d frames lost, want about %d", n, want)
	}
}

// TestStreamsAreIndependent wants one impairment's draws not to depend on another's.
func TestStreamsAreIndependent(t *testing.T) {
	alone := losses(Loss{Random: Percent}, 10000, 9)
	both := losses(Loss{Random: Percent, Frames: []uint64{1}, Gilbert: Gilbert{ToBad: 1, ToGood: 1}}, 10000, 9)
	if !slices.Equal(alone[1:], both[1:]) {
		t.Error("another model changed which frames random loss takes")
	}
}

package bench

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Precision in virtual time, whatever the rate: within 0.001 % of the target when pieces leave late by up to half of their time, and never
// ahead of the line by more than a piece and a half. Without credit the mean falls by what pieces are late (F8).
func TestPrecision(t *testing.T) {
	for _, g := range []float64{0.1, 1, 8, 34.5, 100} {
		p := precise{gbit: g, credit: 50, pieces: 1000}
		m, err := precision(p)
		if err != nil {
			t.Fatal(err)
		}
		if off := m.bps()/(g*1e9) - 1; off > tolerance || off < -tolerance {
			t.Errorf("%v Gbit/s: %.0f bit/s, off by %.6f %%", g, m.bps(), 100*off)
		}
		if m.ahead > mostAhead || m.ahead < 0.9 {
			t.Errorf("%v Gbit/s: %.3f pieces ahead of the line", g, m.ahead)
		}
		half := float64(pieceBytes) / float64(bytesPerSec(g)) * 1e9 / 2
		if p50 := m.late(0.5); p50 < half/3 || p50 > half*2/3 || m.late(1) > half+float64(turnCost) {
			t.Errorf("%v Gbit/s: late by %v ns in the median, want half of %v", g, p50, half)
		}
		p.credit = 0
		if m, err = precision(p); err != nil {
			t.Fatal(err)
		}
		if share := m.bps() / (g * 1e9); share < 0.78 || share > 0.82 { // 1 of 1.25
			t.Errorf("%v Gbit/s without credit: %.3f of the target, want 0.8", g, share)
		}
	}
	m, err := precision(precise{gbit: 8, credit: 0, pieces: 2000, late: foundingLate})
	if err != nil {
		t.Fatal(err)
	}
	if mbit := m.bps() / 1e6; mbit < 7705 || mbit > 7715 {
		t.Errorf("without credit, late as in the founding document: %.2f Mbit/s, want 7710", mbit)
	}
}

// The proofs in virtual time: they are the same on every machine, so that their figures are tested.
func TestPaceProofs(t *testing.T) {
	r, err := Pace(context.Background(), PaceOptions{Virtual: 100 * time.Millisecond, Only: []string{"autocork", "smallqueues", "fairness"}})
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]float64{}
	for _, row := range r.Rows {
		v[row.Name] = row.Value.Median
		if !row.Virtual || row.Verdict == "missed" {
			t.Errorf("%s: %v, %s", row.Name, row.Value.Median, row.Verdict)
		}
	}
	for _, c := range []struct {
		name        string
		least, most float64
	}{
		{"100 Mbit/s, late completions: sends if nothing is unacknowledged", 75e6, 88e6},
		{"100 Mbit/s, late completions: sends if nothing or one piece is", 94e6, 94.2e6},
		{"Jain's index of 100 bulk flows", leastJain, 1},
		{"p99 of 100 flows' requests beside a greedy one, FIFO and ring filled as far as they take it", 3e6, 6e6},
		{"500-byte writes: Nagle, automatic corking", v["500-byte writes: Nagle"], 40e9},
		{"500-byte writes: no delay, automatic corking", 1.5 * v["500-byte writes: no delay"], 40e9},
	} {
		if v[c.name] < c.least || v[c.name] > c.most {
			t.Errorf("%s: %v is not within %v … %v", c.name, v[c.name], c.least, c.most)
		}
	}
}

// The benchmark's proofs run, and say what they are to say. How fast the machine is, is not tested.
func TestPace(t *testing.T) {
	r, err := Pace(context.Background(), PaceOptions{Runs: 1, Time: 20 * time.Millisecond, Pieces: 200, Only: []string{"precision", "realtime", "timer", "messages"}, Flows: []int{50}})
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, row := range r.Rows {
		n[row.Proof]++
		if row.Virtual && row.Verdict == "missed" || row.Value.N == 0 {
			t.Errorf("%+v", row)
		}
	}
	if n["precision"] != 9 || n["realtime"] != 4 || n["timer"] != 1 || n["messages"] != 4 || !r.Met {
		t.Errorf("rows %v, met: %v", n, r.Met)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Pace(ctx, PaceOptions{Runs: 1, Time: time.Second, Pieces: 100}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("cancelled: %v", err)
	}
}

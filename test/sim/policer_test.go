package sim

import (
	"testing"
	"time"
)

// TestPolicer: behind a token bucket a sender gets the bucket's rate, less what is lost at its edge. BBR's long-term sampling
// (facts, 1.1; lt_bw) finds the rate and keeps to it for 48 round trips: without it each round of probing is lost to the bucket.
func TestPolicer(t *testing.T) {
	t.Parallel()
	const link = "rate = \"100Mbit/s\"\nqueue = \"500kB\"\npolicer.rate = \"10Mbit/s\"\npolicer.burst = \"30kB\""
	lost := map[string]float64{}
	for _, lt := range []string{"true", "false"} {
		r := run(t, bulk(t, 1, Use{Use: "bbr", Params: map[string]string{"lt_bw": lt}}, link, 40*time.Millisecond, 20*time.Second), Options{})
		f, l := &r.Report.Flows[0], &r.Report.Links[0]
		rate := float64(delivered(r, 0, 5*time.Second, 20*time.Second)) * 8 / 15
		lost[lt] = float64(l.LostPolicer) / float64(l.Frames)
		t.Logf("lt_bw %s: %.2f Mbit/s of payload, %.2f %% policed, %d timeouts", lt, rate/1e6, 100*lost[lt], f.Timeouts)
		if most := 10e6 * segPayload / segFrame; rate > most*1.01 || lt == "true" && rate < 0.75*most {
			t.Errorf("lt_bw %s: %.0f bit/s through a policer that passes %.0f of payload", lt, rate, most)
		}
		if l.LostPolicer == 0 || l.LostQueue != 0 || l.LostRandom != 0 {
			t.Errorf("%d policed, %d found the queue full, %d lost at random", l.LostPolicer, l.LostQueue, l.LostRandom)
		}
	}
	if lost["true"] > 0.8*lost["false"] {
		t.Errorf("the policer takes %.3f of the frames, and %.3f where BBR does not look for it", lost["true"], lost["false"])
	}
}

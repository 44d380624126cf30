package sim

import (
	"math"
	"testing"
)

// The congestion controls against published figures and closed forms (facts, section 8).

// segment is a full frame of the scenarios: 1448 bytes of payload with timestamps, 1514 of frame.
const (
	segPayload = 1448
	segFrame   = 1514
)

// TestDCTCP: Alizadeh et al., SIGCOMM 2010, 3.3: with W = C·RTT + K segments alpha is √(2/W), and the queue of one flow stays between K
// and (W+1)·alpha/2 below it. Here acknowledgements come for two segments, so that the queue is a few frames off.
func TestDCTCP(t *testing.T) {
	t.Parallel()
	const k = 60
	r := run(t, load(t, "dctcp"), Options{})
	plausible(t, r)
	f, l := &r.Report.Flows[0], &r.Report.Links[0]
	least, most, sum, n := int64(math.MaxInt64), int64(0), int64(0), int64(0)
	for _, p := range r.Points {
		if p.TimeNS < 300e6 {
			continue
		}
		least, most = min(least, p.QueueBytes), max(most, p.QueueBytes)
		sum += p.QueueBytes
		n++
	}
	w := 1e9/8/1000/segFrame + k
	alpha := math.Sqrt(2 / w)
	low := k - (w+1)*alpha/2
	t.Logf("queue %d … %d frames, mean %d, want about %.0f … %d; %d marked, used to %d/1000", least/segFrame, most/segFrame, sum/n/segFrame, low, k, l.Marked, l.UtilPerMille)
	const burst = 4 // frames: two acknowledgements' worth
	if float64(least/segFrame) < low-burst || most/segFrame > k+burst {
		t.Errorf("queue from %d to %d frames", least/segFrame, most/segFrame)
	}
	if f.Dropped != 0 || f.Retransmits != 0 || l.Marked == 0 || l.UtilPerMille < 980 {
		t.Errorf("%d dropped, %d sent again, %d marked, used to %d/1000", f.Dropped, f.Retransmits, l.Marked, l.UtilPerMille)
	}
	golden(t, "dctcp", r)
}

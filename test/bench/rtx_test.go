package bench

import (
	"context"
	"testing"
	"time"
)

// The benchmark of retransmit queues measures what it says: every pattern, length and module, and entries that do not depend on the
// machine. Times are not judged here.
func TestRtx(t *testing.T) {
	r, err := Rtx(context.Background(), RtxOptions{Runs: 1, Most: 10_000, Budget: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, m := range r.Rows {
		if m.Acks == 0 || m.AckNS.Median <= 0 || m.VisitsPerAck <= 0 {
			t.Errorf("%+v", m)
		}
		if m.Pattern == "uniform5" && m.Segments == 1000 && m.Module == "btree" {
			rows++
			if m.ListVisits < 5 {
				t.Errorf("the list looks at %.1f times as many entries", m.ListVisits)
			}
		}
	}
	if rows != 1 || len(r.Rows) != 3*(7+4*6) {
		t.Errorf("%d rows, %d of them the one looked for", len(r.Rows), rows)
	}
	for _, c := range r.Checks {
		if c.AtMost > 1.05 && c.AtLeast == 0 && !c.OK {
			t.Errorf("%s: %v, at most %v", c.Name, c.Value, c.AtMost)
		}
	}
}

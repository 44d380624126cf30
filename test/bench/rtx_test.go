package bench

import (
	"context"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// The benchmark of retransmit queues measures what it says: every pattern, length and module, and entries that do not depend on the
// machine. Times are not judged here.
func TestRtx(t *testing.T) {
	steps := 0
	r, err := Rtx(context.Background(), RtxOptions{Runs: 1, Most: 10_000, Budget: 20 * time.Millisecond, Progress: func(done, total int, what string) {
		if done != steps || total != 7+4*6 || what == "" {
			t.Errorf("progress: %d of %d, %q", done, total, what)
		}
		steps++
	}})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, m := range r.Rows {
		if m.Acks == 0 || m.AckNS.Median <= 0 || m.VisitsPerAck <= 0 {
			t.Errorf("%+v", m)
		}
		if slow := m.Module == "list" && m.Pattern == "uniform5" && m.Segments == 10_000; slow && !m.CutShort || m.CutShort && m.Module != "list" {
			t.Errorf("%s, %d segments, %s: %d acknowledgements, cut short: %v", m.Pattern, m.Segments, m.Module, m.Acks, m.CutShort)
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

// The founding experiment runs with both queues, counts what they look at, and judges by its means. A short path and little time: the
// figures say nothing here.
func TestFounding(t *testing.T) {
	o := Options{Size: 64 << 10, Time: 300 * time.Millisecond, Pollers: 2, Link: memlink.Path{Rate: 200e6, Delay: time.Millisecond, Jitter: 100 * time.Microsecond,
		Loss: memlink.Loss{Random: memlink.Percent}}}
	o.Modules[plugins.Cong].Name, o.Modules[plugins.Pace].Name = "bbr", "edt"
	r, err := Founding(context.Background(), o, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"list", "btree"} {
		for i, run := range r.Runs {
			if run.Values[q+"_goodput_bps"] <= 0 || run.Values[q+"_visits_per_ack"] <= 0 {
				t.Errorf("run %d, %s: %v", i, q, run.Values)
			}
		}
	}
	if len(r.Runs) != 2 || r.Ratio <= 0 || len(r.Checks) != 2 || r.Met {
		t.Errorf("%d runs, ratio %v, met %v at 200 Mbit/s: %+v", len(r.Runs), r.Ratio, r.Met, r.Checks)
	}
}

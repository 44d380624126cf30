package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/plugins"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func load(t *testing.T, name string) *Scenario {
	t.Helper()
	s, err := Load(filepath.Join("testdata", name+".toml"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, s *Scenario, o Options) *Result {
	t.Helper()
	r, err := Run(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// golden compares a run with the committed result. Every figure is an integer, so it must be the same on every machine.
func golden(t *testing.T, name string, r *Result) {
	t.Helper()
	got, err := json.MarshalIndent(&r.Report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	goldenFile(t, name+".golden.json", append(got, '\n'))
}

// goldenFile compares with a committed file.
func goldenFile(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); if the change is meant, -update rewrites it:\n%s", file, diff)
	}
}

// plausible checks what holds of every scenario, whatever its figures are.
func plausible(t *testing.T, r *Result) {
	t.Helper()
	if !r.Report.Complete {
		t.Errorf("not complete: %+v", r.Report.Events)
	}
	for i := range r.Report.Flows {
		f := &r.Report.Flows[i]
		if !f.Verified || f.PayloadBytes == 0 || f.RTT.Samples == 0 {
			t.Errorf("flow %s: verified %v, %d bytes, %d RTT samples", f.Name, f.Verified, f.PayloadBytes, f.RTT.Samples)
		}
		if f.Retransmits > f.Dropped*6/5+20 {
			t.Errorf("flow %s: %d segments sent again for %d dropped", f.Name, f.Retransmits, f.Dropped)
		}
	}
	for i := range r.Report.Links {
		if l := &r.Report.Links[i]; l.UtilPerMille > 1000 {
			t.Errorf("link %s is used to %d/1000", l.Name, l.UtilPerMille)
		}
	}
}

// TestScenarios runs the scenario set with each congestion control.
func TestScenarios(t *testing.T) {
	for _, name := range []string{"clean", "loss", "mess", "bufferbloat", "fairness"} {
		for _, cc := range []string{"bbr", "bbr3", "cdg", "cubic", "reno"} {
			t.Run(name+"/"+cc, func(t *testing.T) {
				t.Parallel()
				s := load(t, name)
				if err := s.Override(plugins.Cong, Use{Use: cc}); err != nil {
					t.Fatal(err)
				}
				r := run(t, s, Options{})
				plausible(t, r)
				golden(t, name+"."+cc, r)
			})
		}
	}
	for _, name := range []string{"swap", "kinds", "backandforth", "latesent"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, load(t, name), Options{})
			plausible(t, r)
			golden(t, name, r)
		})
	}
}

// TestMarks: with ECN, classic or accurate, a queue that marks keeps flows from filling it: nothing is lost, nothing is sent again, the
// link is used, and delays stay far below a full queue's 80 ms.
func TestMarks(t *testing.T) {
	for _, name := range []string{"ecn", "accecn"} {
		for _, cc := range []string{"bbr3", "cubic", "dctcp", "reno"} {
			t.Run(name+"/"+cc, func(t *testing.T) {
				t.Parallel()
				s := load(t, name)
				if err := s.Override(plugins.Cong, Use{Use: cc}); err != nil {
					t.Fatal(err)
				}
				r := run(t, s, Options{})
				plausible(t, r)
				f, l := &r.Report.Flows[0], &r.Report.Links[0]
				if l.Marked == 0 || f.Dropped != 0 || f.Retransmits != 0 || l.UtilPerMille < 930 || f.RTT.P95NS > 45e6 {
					t.Errorf("%d marked, %d dropped, %d sent again, used to %d/1000, RTT up to %d", l.Marked, f.Dropped, f.Retransmits, l.UtilPerMille, f.RTT.P95NS)
				}
				golden(t, name+"."+cc, r)
			})
		}
	}
}

// TestSwap: a swap takes effect, loses nothing, and the flow goes on.
func TestSwap(t *testing.T) {
	r := run(t, load(t, "swap"), Options{})
	f := &r.Report.Flows[0]
	if f.Cong != "cdg" || f.Rtx != "list" || f.Pace != "none" {
		t.Errorf("at the end the modules are %s, %s, %s", f.Rtx, f.Pace, f.Cong)
	}
	if len(r.Report.Events) != 3 {
		t.Fatalf("events: %+v", r.Report.Events)
	}
	for _, e := range r.Report.Events {
		// It goes on within a second.
		var before, after int64
		for _, p := range r.Points {
			if p.TimeNS <= e.TimeNS {
				before = p.DeliveredBytes
			}
			if p.TimeNS <= e.TimeNS+1e9 {
				after = p.DeliveredBytes
			}
		}
		if after-before < 400e3 {
			t.Errorf("%s: only %d bytes in the second after it", e.Message, after-before)
		}
	}
}

// TestBackAndForth: two congestion controls take turns on live flows: the link stays used, each shows what it is, BBR by its rate and CDG by
// a shorter queue, nothing times out, and the plot marks each change.
func TestBackAndForth(t *testing.T) {
	r := run(t, load(t, "backandforth"), Options{})
	if len(r.Report.Events) != 4 {
		t.Fatalf("events: %+v", r.Report.Events)
	}
	for _, e := range r.Report.Events {
		if !strings.HasSuffix(e.Message, "2 flows") {
			t.Errorf("%s", e.Message)
		}
	}
	// The last 3 s of each phase of 4 s.
	var rate, srtt [5]float64
	for phase := range rate {
		from, to := int64(phase*4+1)*1e9, int64(phase*4+4)*1e9
		first, last, n := map[int]int64{}, map[int]int64{}, 0
		for _, p := range r.Points {
			if p.TimeNS < from || p.TimeNS > to {
				continue
			}
			if _, ok := first[p.Flow]; !ok {
				first[p.Flow] = p.DeliveredBytes
			}
			last[p.Flow] = p.DeliveredBytes
			srtt[phase] += float64(p.SRTTNS)
			n++
		}
		for f := range last {
			rate[phase] += float64(last[f]-first[f]) * 8 / 3e6
		}
		srtt[phase] /= float64(n) * 1e6
		t.Logf("phase %d: %.1f Mbit/s, round-trip time %.1f ms", phase, rate[phase], srtt[phase])
		if rate[phase] < 40 {
			t.Errorf("phase %d: only %.1f of 50 Mbit/s", phase, rate[phase])
		}
	}
	for _, p := range []int{1, 3} {
		if srtt[p] > 0.75*srtt[p-1] || srtt[p] > 0.75*srtt[p+1] {
			t.Errorf("CDG's round-trip time of %.1f ms in phase %d is not below BBR's", srtt[p], p)
		}
	}
	for i := range r.Report.Flows {
		if f := &r.Report.Flows[i]; f.Cong != "bbr" || f.Timeouts != 0 {
			t.Errorf("flow %d: %+v", i, f)
		}
	}
	lines := func() int {
		var svg bytes.Buffer
		if err := WritePlot(&svg, r); err != nil {
			t.Fatal(err)
		}
		return strings.Count(svg.String(), "<path")
	}
	marked := lines()
	r.Report.Events = nil
	if n := marked - lines(); n != 4*5 {
		t.Errorf("%d marks in five panels", n)
	}
}

// TestLongFat: buffers size themselves to 10 Gbit/s over 150 ms (BBR wants two windows of 188 MB), and no window holds the flow back.
func TestLongFat(t *testing.T) {
	r := run(t, load(t, "longfat"), Options{})
	last := r.Points[len(r.Points)-1]
	var before int64
	for _, p := range r.Points {
		if p.TimeNS <= last.TimeNS-1e9 {
			before = p.DeliveredBytes
		}
	}
	t.Logf("%d MB in the last second", (last.DeliveredBytes-before)/1e6)
	if got := last.DeliveredBytes - before; got < 1150e6 {
		t.Errorf("%d MB in the last second, the link carries 1250", got/1e6)
	}
}

// TestLongFatLossy: on a path that loses 1 % and reorders by its jitter, what is sent again is what was lost; neither the peer's window nor
// the buffers nor old timestamps hold the flow back while lost retransmissions keep holes open for several round trips.
func TestLongFatLossy(t *testing.T) {
	r := run(t, load(t, "longlossy"), Options{})
	last := r.Points[len(r.Points)-1]
	var before int64
	for _, p := range r.Points {
		if p.TimeNS <= last.TimeNS-3e9 {
			before = p.DeliveredBytes
		}
	}
	f := &r.Report.Flows[0]
	t.Logf("%d MB in the last three seconds, %d dropped, %d sent again", (last.DeliveredBytes-before)/1e6, f.Dropped, f.Retransmits)
	if got := last.DeliveredBytes - before; got < 300e6 {
		t.Errorf("%d MB in the last three seconds, the link carries 375", got/1e6)
	}
	if f.Retransmits > f.Dropped*21/20+3 {
		t.Errorf("%d segments sent again for %d dropped", f.Retransmits, f.Dropped)
	}
	golden(t, "longlossy", r)
}

// TestDeterminism: two runs give the same JSON, CSV, capture and plot; another seed gives others.
func TestDeterminism(t *testing.T) {
	outputs := func(s *Scenario) (out [4][]byte) {
		var pcap, csv, svg bytes.Buffer
		r := run(t, s, Options{Pcap: &pcap})
		js, err := json.Marshal(&r.Report)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.WriteCSV(&csv); err != nil {
			t.Fatal(err)
		}
		if err := WritePlot(&svg, r); err != nil {
			t.Fatal(err)
		}
		return [4][]byte{js, csv.Bytes(), pcap.Bytes(), svg.Bytes()}
	}
	s := load(t, "kinds")
	a, b := outputs(s), outputs(s)
	s.Seed++
	c := outputs(s)
	for i, what := range []string{"JSON", "CSV", "capture", "plot"} {
		if !bytes.Equal(a[i], b[i]) {
			t.Errorf("the %s differs between two runs with the same seed", what)
		}
		if bytes.Equal(a[i], c[i]) {
			t.Errorf("the %s is the same with another seed", what)
		}
		if len(a[i]) < 1000 {
			t.Errorf("the %s has only %d bytes", what, len(a[i]))
		}
	}
}

// TestObserving: a capture and a progress display change nothing.
func TestObserving(t *testing.T) {
	s := load(t, "mess")
	var pcap bytes.Buffer
	plain := run(t, s, Options{})
	watched := run(t, s, Options{Pcap: &pcap, Progress: func(_, _ time.Duration) {}})
	if diff := cmp.Diff(plain.Report, watched.Report); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(plain.Points, watched.Points); diff != "" {
		t.Error(diff)
	}
}

package bench

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
)

// The benchmarks do their work, whole and in the time given, and their figures fit together. How fast that is depends on the machine
// and is not tested.

const short = 200 * time.Millisecond

func TestBulk(t *testing.T) {
	for _, o := range []Options{{Size: 65536}, {Size: 500}, {Size: 1}, {Size: 65536, Flows: 4}, {Size: 65536, Spin: true}} {
		o.Time = short
		r, err := Bulk(o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if r.Bytes < 1e5 || r.Bytes%int64(o.Size) != 0 || r.Elapsed < short || r.CPU <= 0 || r.CPUPerGB <= 0 {
			t.Errorf("%+v: %+v", o, r)
		}
		if got := float64(r.Bytes) * 8 / r.Elapsed.Seconds(); r.BitsPerSec < got*0.999 || r.BitsPerSec > got*1.001 {
			t.Errorf("%+v: %v bit/s, but %v", o, r.BitsPerSec, got)
		}
	}
}

func TestRequestResponse(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer func() {
		if n := runtime.GOMAXPROCS(0); n != procs {
			t.Errorf("GOMAXPROCS was %d, and %d is left behind", procs, n)
		}
	}()
	for _, o := range []Options{{Size: 64}, {Size: 10_000, Flows: 3}, {Size: 64, Spin: true}} {
		o.Time = short
		r, err := RequestResponse(o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if r.Count < 10 || r.P50 <= 0 || r.P99 < r.P50 || r.Elapsed < short || r.P50*time.Duration(r.Count) > 3*time.Duration(max(o.Flows, 1))*r.Elapsed {
			t.Errorf("%+v: %+v", o, r)
		}
	}
}

func TestConnectionsPerSecond(t *testing.T) {
	r, err := ConnectionsPerSecond(Options{Size: 64, Count: 300, Time: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r.Count != 300 || r.PerSec <= 0 || r.Elapsed <= 0 {
		t.Errorf("%+v", r)
	}
	// The time ends it, too.
	if r, err = ConnectionsPerSecond(Options{Size: 64, Count: 1 << 30, Time: short}); err != nil || r.Count == 0 || r.Elapsed < short {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestIdle(t *testing.T) {
	r, err := Idle(Options{Count: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if r.Endpoints != 2000 || r.BytesPerEndpoint < 500 || r.BytesPerEndpoint > 20_000 || r.BytesPerEndpoint != r.HeapPerEndpoint+r.MappedPerEndpoint {
		t.Errorf("%+v", r)
	}
}

func TestRun(t *testing.T) {
	o := Options{Size: 65536, Time: short}
	o.Modules[plugins.Cong] = stack.ModuleConfig{Name: "cubic"}
	b, err := Run(context.Background(), NameBulk, o, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Runs) != 3 || b.Params["cong"] != "cubic" || b.Params["pace"] != "none" || b.Params["size"] != "65536B" || b.Machine.Gaps.MeasuredNS == 0 || b.Machine.GapsAfter.MeasuredNS == 0 {
		t.Errorf("%+v", b)
	}
	for _, m := range b.Metrics {
		if m.N != 3 || m.Min > m.Median || m.Median > m.Max {
			t.Errorf("%+v", m)
		}
	}
	for _, name := range []string{"goodput_bps", "cpu_seconds_per_gb"} {
		found := false
		for _, m := range b.Metrics {
			found = found || m.Name == name && m.Median > 0
		}
		if !found {
			t.Errorf("no %s in %+v", name, b.Metrics)
		}
	}
	if _, err := Run(context.Background(), "speed", Options{}, 1); err == nil {
		t.Error("an unknown benchmark runs")
	}
	o.Modules[plugins.Cong].Name = "vegas"
	if _, err := Run(context.Background(), NameBulk, o, 1); err == nil || !strings.Contains(err.Error(), "vegas") {
		t.Errorf("an unknown module: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, NameBulk, Options{Size: 1, Time: short}, 1); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// TestFloor: the table with and without a baseline, which a script stands for.
func TestFloor(t *testing.T) {
	script := filepath.Join(t.TempDir(), "baseline")
	// Each figure is so small that every ratio is met.
	text := `#!/bin/sh
echo starting
case "$1" in
bulk) test "$6" = -secs && echo "gvisor bulk link=$3 size=$5: 0.001 Gbit/s" ;;
rr) echo "gvisor rr link=chan size=64: 1 rr/s p50 16µs p99 30µs" ;;
cps) test "$2 $3" = "-n 50" && echo "gvisor cps link=chan: 1 conn/s" ;;
idle) echo "gvisor idle link=chan n=$3: heap+stack 5700 bytes per connection endpoint" ;;
esac
`
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := Floor(context.Background(), FloorOptions{Time: short, Runs: 1, Conns: 50, GVisor: script})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Rows {
		if r.Peer == nil || r.Peer.Median <= 0 || r.Ratio == 0 || r.RefMedian == 0 || r.Verdict == "unknown" {
			t.Errorf("%+v", r)
		}
		if r.RequireRatio > 0 && r.Verdict != "met" {
			t.Errorf("%s: %s", r.Name, r.Verdict)
		}
	}
	if bulk, idle := f.Rows[0].Peer, f.Rows[len(f.Rows)-1].Peer; bulk.Median != 1e6 || idle.Median != 5700 {
		t.Errorf("the baseline's figures: %+v, %+v", bulk, idle)
	}
	if f, err = Floor(context.Background(), FloorOptions{Time: short, Runs: 1, Conns: 50}); err != nil || f.Rows[0].Verdict != "unknown" || f.Rows[0].Peer != nil {
		t.Errorf("without a baseline: %+v, %v", f, err)
	}
	if _, err := Floor(context.Background(), FloorOptions{Time: short, Runs: 1, Conns: 5, GVisor: "false"}); err == nil {
		t.Error("a baseline that fails is no error")
	}
}

func TestParseBaseline(t *testing.T) {
	for _, c := range []struct {
		in   string
		want float64
	}{
		{"gvisor bulk link=chan size=65536: 2.100 Gbit/s\n", 2.1}, {"x\ngvisor rr link=chan size=64: 43000 rr/s p50 16µs p99 30µs\n", 43000},
		{"gvisor cps link=chan: 7700 conn/s\n", 7700}, {"gvisor idle link=chan n=10000: heap+stack 5700 bytes per connection endpoint\n", 5700},
		{"gvisor bulk link=chan size=65536: 0.000 Gbit/s\n", 0}, {"panic: no\n", 0}, {"", 0}, {"gvisor bulk x: 1.2.3 Gbit/s", 0},
	} {
		v, err := parseBaseline(c.in)
		if v != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%q: %v, %v", c.in, v, err)
		}
	}
}

// FuzzParseBaseline: whatever a baseline prints gives a positive figure or an error.
func FuzzParseBaseline(f *testing.F) {
	f.Add("gvisor bulk link=chan size=65536: 2.100 Gbit/s\n")
	f.Add("gvisor idle link=chan n=10000: heap+stack 5700 bytes per connection endpoint\n")
	f.Fuzz(func(t *testing.T, out string) {
		if v, err := parseBaseline(out); err == nil && !(v > 0) {
			t.Errorf("%q: %v", out, v)
		}
	})
}

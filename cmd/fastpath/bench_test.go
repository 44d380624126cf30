package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// TestBench: each benchmark gives JSON that reads back, and text.
func TestBench(t *testing.T) {
	for _, args := range [][]string{
		{"bulk", "--size", "16KiB", "--time", "50ms", "--flows", "2", "--cong", "cubic"}, {"rr", "--size", "100", "--time", "50ms", "--spin"},
		{"cps", "--count", "20"}, {"idle", "--count", "50", "--rtx", "list", "--pace", "edt"},
	} {
		args = append([]string{"bench"}, append(args, "--runs", "1", "--json")...)
		code, out, errOut := fastpath(args...)
		var b report.Bench
		if err := json.Unmarshal([]byte(out), &b); code != 0 || err != nil || b.Name != args[1] || len(b.Runs) != 1 || len(b.Metrics) == 0 || b.Metrics[0].Max <= 0 && b.Metrics[1].Max <= 0 {
			t.Errorf("%v: exit code %d, %v, %q, %q", args, code, err, out, errOut)
		}
	}
	if code, out, errOut := fastpath("bench", "rr", "--time", "50ms", "--runs", "1"); code != 0 || !strings.Contains(out, "p99_ns") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// More threads than processors are refused.
func TestBenchProcs(t *testing.T) {
	for _, n := range []int{-1, runtime.NumCPU() + 1, 999} {
		code, _, errOut := fastpath("bench", "rr", "--time", "1ms", "--runs", "1", "--procs", strconv.Itoa(n))
		if code == 0 || !strings.Contains(errOut, "--procs: "+strconv.Itoa(n)) {
			t.Errorf("--procs %d: exit code %d, %q", n, code, errOut)
		}
	}
}

func TestBenchPace(t *testing.T) {
	code, out, errOut := fastpath("bench", "pace", "--only", "precision", "--pieces", "100", "--json")
	var p report.Pace
	if err := json.Unmarshal([]byte(out), &p); code != 0 || err != nil || !p.Met || len(p.Rows) == 0 || p.Rows[0].Verdict != "met" {
		t.Errorf("exit code %d, %v, %q, %q", code, err, out, errOut)
	}
}

// TestBenchCong: every congestion control, in each size of batches, without allocations.
func TestBenchCong(t *testing.T) {
	_, out, errOut := fastpath("bench", "cong", "--runs", "1", "--json") // a busy machine may miss a limit
	var r report.Cong
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v, %q, %q", err, out, errOut)
	}
	names := builtin.Names(plugins.Cong)
	if len(r.Rows) != 3*len(names) {
		t.Errorf("%d rows for %v", len(r.Rows), names)
	}
	for _, row := range r.Rows {
		if !slices.Contains(names, row.Cong) || row.SampleNS.Median <= 0 || row.Allocs != 0 || row.RenoRatio <= 0 || row.Cong == "reno" && row.RenoRatio != 1 {
			t.Errorf("%+v", row)
		}
	}
}

// TestBenchModule: a module in a process of this binary, for each way to wait.
func TestBenchModule(t *testing.T) {
	wait := "park,spin"
	if runtime.NumCPU() < 2 {
		wait = "park"
	}
	for d := 50 * time.Millisecond; ; d *= 4 {
		code, out, errOut := fastpath("bench", "module", "--kinds", "pace,cong", "--flows", "2", "--wait", wait, "--runs", "1", "--time", d.String(), "--json")
		var r report.Module
		if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || len(r.Cells) != 4*(1+strings.Count(wait, ",")) {
			t.Fatalf("exit code %d, %v, %q, %q", code, err, out, errOut)
		}
		var nothing []string
		for _, c := range r.Cells {
			for _, m := range c.Metrics {
				if m.Median <= 0 && (m.Unit == "bit/s" || m.Unit == "s/GB" || m.Name == report.ModuleEvents) {
					nothing = append(nothing, fmt.Sprintf("%v, %s: %+v", c.Processes(), c.Wait, m))
				}
			}
		}
		if len(nothing) == 0 {
			return
		}
		if d > time.Second { // a busy machine may do nothing in a short time
			t.Fatalf("in %v: %q", d, nothing)
		}
	}
}

func TestBenchFlags(t *testing.T) {
	for _, args := range [][]string{
		{"bulk", "--runs", "0"}, {"bulk", "--size", "0"}, {"bulk", "--size", "x"}, {"bulk", "--time", "-1s"}, {"rr", "--flows", "0"}, {"cps", "--count", "0"},
		{"idle", "--size", "1"}, {"cong", "--runs", "0"}, {"bulk", "--cong", "vegas", "--runs", "1"}, {"pace", "--runs", "0"}, {"pace", "--pieces", "1"},
		{"pace", "--time", "1ms"}, {"pace", "--only", "speed"}, {"pace", "--flows", "0"}, {"pace", "--virtual", "1ms"}, {"all", "--gvisor", "nonexistent-baseline", "--runs", "1", "--time", "10ms", "--count", "5"},
		{"module", "--kinds", "x"}, {"module", "--flows", "0"}, {"module", "--wait", "sleep"},
	} {
		if code, out, errOut := fastpath(append([]string{"bench"}, args...)...); code != 1 || out != "" || !strings.HasPrefix(errOut, "fastpath: ") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
}

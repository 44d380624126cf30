package bench

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
)

// FloorOptions say how Floor measures.
type FloorOptions struct {
	Time   time.Duration // of each bulk and request/response run; at least 1 s
	Runs   int
	Conns  int                              // of cps and idle
	GVisor string                           // a binary of the gVisor baseline, to be run in turn with ours; may be empty
	Log    func(format string, args ...any) // progress; may be nil
}

// row is one benchmark of the speed floor.
type row struct {
	name, bench string
	options     Options
	metric      string
	peer        []string // arguments of the gVisor baseline; the numbers of seconds and connections are filled in
	unit        float64  // of the figure that the baseline prints
	ref         float64  // its median on an idle 2-core machine, on another day
	ratio, most float64  // what is required
}

// rows is the speed floor. The work is the same on both sides: two stacks in one process joined in memory, MTU 1500, no offloads.
func rows(o FloorOptions) []row {
	secs := strconv.Itoa(max(int(o.Time.Seconds()), 1))
	conns := strconv.Itoa(o.Conns)
	rr := []string{"rr", "-size", "64", "-n", "100000"}
	cps := []string{"cps", "-n", conns, "-secs", "30"}
	return []row{
		{"bulk, 64 KB writes", NameBulk, Options{Size: 65536, Time: o.Time, Pollers: bulkPollers()}, "goodput_bps", []string{"bulk", "-link", "chan", "-size", "65536", "-secs", secs}, 1e9, 2.1e9, 8, 0},
		{"bulk, 500-byte writes", NameBulk, Options{Size: 500, Time: o.Time, Pollers: bulkPollers()}, "goodput_bps", []string{"bulk", "-link", "pipe", "-size", "500", "-secs", secs}, 1e9, 0.6e9, 10, 0},
		{"request/response, polling", NameRR, Options{Size: 64, Time: o.Time, Procs: 1}, "rate_per_s", rr, 1, 43_000, 5, 0},
		{"the same, on all processors", NameRR, Options{Size: 64, Time: o.Time}, "rate_per_s", rr, 1, 43_000, 0, 0},
		{"request/response, locked worker", NameRR, Options{Size: 64, Time: o.Time, Spin: true}, "rate_per_s", rr, 1, 43_000, 2, 0},
		{"connections, polling", NameCPS, Options{Size: 64, Time: 30 * time.Second, Count: o.Conns, Procs: 1}, "rate_per_s", cps, 1, 7_700, 5, 0},
		{"the same, on all processors", NameCPS, Options{Size: 64, Time: 30 * time.Second, Count: o.Conns}, "rate_per_s", cps, 1, 7_700, 0, 0},
		{"idle endpoint", NameIdle, Options{Count: o.Conns}, "endpoint_bytes", []string{"idle", "-n", conns}, 1, 5_700, 0, 1_500},
	}
}

// Floor measures the speed floor. With a baseline binary its runs and ours alternate, so that whatever else the machine does
// hits both.
func Floor(ctx context.Context, o FloorOptions) (*report.Floor, error) {
	f := &report.Floor{Peer: "gVisor", Machine: report.ThisMachine(measureGaps)}
	all := rows(o)
	ours, peer := make([][]float64, len(all)), make([][]float64, len(all))
	for run := range o.Runs {
		for i, r := range all {
			if o.Log != nil {
				o.Log("run %d of %d: %s", run+1, o.Runs, r.name)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			got, err := once(r.bench, r.options)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			ours[i] = append(ours[i], got.Values[r.metric])
			if o.GVisor == "" {
				continue
			}
			v, err := baseline(ctx, o.GVisor, r.peer)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			peer[i] = append(peer[i], v*r.unit)
		}
	}
	f.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	for i, r := range all {
		out := report.FloorRow{Name: r.name, Ours: report.Summary(r.metric, ours[i]), RefMedian: r.ref, RequireRatio: r.ratio, RequireMost: r.most}
		if len(peer[i]) > 0 {
			m := report.Summary(r.metric, peer[i])
			out.Peer = &m
		}
		f.Rows = append(f.Rows, out)
	}
	f.Judge()
	return f, nil
}

// baseline runs the gVisor baseline once and returns its figure: Gbit/s, transactions or connections per second, or bytes.
func baseline(ctx context.Context, path string, args []string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, out)
	}
	v, err := parseBaseline(string(out))
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	return v, nil
}

var baselineLine = regexp.MustCompile(`(?m)^gvisor (bulk|rr|cps|idle) [^:]*: (?:heap\+stack )?([0-9.]+) (Gbit/s|rr/s|conn/s|bytes)`)

// parseBaseline finds the figure in the baseline's output.
func parseBaseline(out string) (float64, error) {
	m := baselineLine.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no figure in %q", out)
	}
	v, err := strconv.ParseFloat(m[2], 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%q is no figure", m[2])
	}
	return v, nil
}

// bulkPollers is how many polling goroutines bulk transfers get: one per stack, if each finds a core.
func bulkPollers() int { return min(runtime.NumCPU(), 2) }

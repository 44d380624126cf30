package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// Names of the benchmarks.
const (
	NameBulk = "bulk"
	NameRR   = "rr"
	NameCPS  = "cps"
	NameIdle = "idle"
)

// measureGaps is how long the machine's own scheduling gaps are measured before and after the runs.
const measureGaps = time.Second

// once runs the named benchmark one time.
func once(name string, o Options) (run report.Run, err error) {
	began := time.Now()
	run.Values = map[string]float64{}
	var cpu time.Duration
	switch name {
	case NameBulk:
		var r BulkResult
		r, err = Bulk(o)
		cpu = r.CPU
		run.CPUSecondsPerGB = r.CPUPerGB
		run.Values["goodput_bps"], run.Values["allocs_per_1000_packets"] = r.BitsPerSec, r.AllocsPerK
	case NameRR:
		var r RRResult
		r, err = RequestResponse(o)
		cpu = r.CPU
		run.Values["rate_per_s"], run.Values["p50_ns"], run.Values["p99_ns"] = r.PerSec, float64(r.P50), float64(r.P99)
		run.Values["cpu_per_transaction_ns"] = float64(r.CPU) / float64(max(r.Count, 1))
	case NameCPS:
		var r CPSResult
		r, err = ConnectionsPerSecond(o)
		cpu = r.CPU
		run.Values["rate_per_s"] = r.PerSec
		run.Values["cpu_per_connection_ns"] = float64(r.CPU) / float64(max(r.Count, 1))
	case NameIdle:
		var r IdleResult
		r, err = Idle(o)
		run.Values["endpoint_bytes"], run.Values["heap_bytes"], run.Values["mapped_bytes"] = r.BytesPerEndpoint, r.HeapPerEndpoint, r.MappedPerEndpoint
	default:
		err = fmt.Errorf("bench: no benchmark %q", name)
	}
	run.DurationNS, run.CPUNS = int64(time.Since(began)), int64(cpu)
	return run, err
}

// params are what was asked for, as the report shows it.
func params(name string, o Options) map[string]string {
	p := map[string]string{"mtu": "1500", "poll": "adaptive", "ring": strconv.Itoa(ring)}
	if o.Spin {
		p["poll"] = "spin"
	}
	if n := o.procs(); n > 0 {
		p["gomaxprocs"] = strconv.Itoa(n)
	}
	p["pollers"] = strconv.Itoa(max(o.Pollers, 1))
	o.setModules()
	for k := range plugins.NumKinds {
		p[k.String()] = o.Modules[k].Name
	}
	if name != NameIdle {
		p["size"] = fmt.Sprintf("%dB", o.Size)
	}
	switch name {
	case NameBulk, NameRR:
		if l := o.Link; l.Rate|uint64(l.Delay)|uint64(l.Jitter)|uint64(l.Loss.Random) != 0 {
			p["rate"], p["rtt"], p["jitter"] = fmt.Sprintf("%dbit/s", l.Rate), (2 * l.Delay).String(), l.Jitter.String()
			p["loss"] = fmt.Sprintf("%v%%", float64(l.Loss.Random)/float64(memlink.Percent))
			delete(p, "ring")
		}
		p["time"], p["flows"] = o.Time.String(), strconv.Itoa(max(o.Flows, 1))
	case NameCPS, NameIdle:
		p["count"] = strconv.Itoa(o.Count)
	}
	return p
}

// setModules fills in the modules that the benchmarks take where none is named: those that other stacks can be compared with.
func (o *Options) setModules() {
	for k, name := range [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "none", plugins.Cong: "reno"} {
		if o.Modules[k].Name == "" {
			o.Modules[k].Name = name
		}
	}
}

// Run runs the named benchmark so many times and sums up. ctx ends it between two runs.
func Run(ctx context.Context, name string, o Options, runs int) (*report.Bench, error) {
	b := &report.Bench{Name: name, Params: params(name, o), Machine: report.ThisMachine(measureGaps)}
	for range runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := once(name, o)
		if err != nil {
			return nil, err
		}
		b.Runs = append(b.Runs, r)
	}
	b.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	b.Summarize()
	return b, nil
}

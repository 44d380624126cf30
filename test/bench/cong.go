package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// congBase is what the others are compared with; congLimits are the ratios to it that batches of 32 may have.
const congBase = "reno"

var congLimits = map[string]float64{"cubic": 3, "cdg": 3, "bbr": 4, "bbr3": 6}

var congBatches = []int{1, 8, 32}

const (
	congChunk  = 1024 // samples that are measured together
	congChunks = 200
)

// congFigures are those of one algorithm, by batch.
type congFigures struct {
	times, ratios [][]float64
	allocs        []float64
}

// Cong measures what an acknowledgement's sample costs each built-in congestion control, in turn, in each of runs.
func Cong(ctx context.Context, runs int, log func(format string, args ...any)) (*report.Cong, error) {
	r := &report.Cong{Machine: report.ThisMachine(measureGaps)}
	names := slices.DeleteFunc(builtin.Names(plugins.Cong), func(name string) bool { return name == congBase })
	names = append([]string{congBase}, names...)
	all := map[string]*congFigures{}
	for run := range runs {
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if log != nil {
				log("run %d of %d: %s", run+1, runs, name)
			}
			f := all[name]
			if f == nil {
				f = &congFigures{make([][]float64, len(congBatches)), make([][]float64, len(congBatches)), make([]float64, len(congBatches))}
				all[name] = f
			}
			if err := f.measure(name, run, all[congBase]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for b, batch := range congBatches {
		for _, name := range names {
			f := all[name]
			slices.Sort(f.ratios[b])
			row := report.CongRow{Cong: name, Batch: batch, SampleNS: report.Summary("sample_ns", f.times[b]), Allocs: f.allocs[b],
				RenoRatio: report.Quantile(f.ratios[b], 0.5)}
			if batch == 32 {
				row.AtMost = congLimits[name]
			}
			r.Rows = append(r.Rows, row)
		}
	}
	r.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	r.Judge()
	return r, nil
}

// measure adds a run.
func (f *congFigures) measure(name string, run int, base *congFigures) error {
	e, _ := builtin.Find(plugins.Cong, name)
	m, err := e.Cong(nil, 1)
	if err != nil {
		return err
	}
	load, err := congtest.NewLoad(m)
	if err != nil {
		return err
	}
	for b, batch := range congBatches {
		ns, allocs := congMeasure(m, load, batch)
		f.times[b] = append(f.times[b], ns)
		f.ratios[b] = append(f.ratios[b], ns/base.times[b][run])
		f.allocs[b] = max(f.allocs[b], allocs)
	}
	return nil
}

// congMeasure returns ns, the median over short stretches, most of which no other process interrupts, and allocations per sample.
func congMeasure(m cong.Module, load *congtest.Load, batch int) (ns, allocs float64) {
	out := make([]cong.Decision, 2*batch)
	stretches := make([]float64, congChunks)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range stretches {
		in := load.Next(congChunk) // what makes the samples is not measured
		start := time.Now()
		for i := 0; i < len(in); i += batch {
			m.Poll(in[i].Now, in[i:i+batch], out)
		}
		stretches[i] = float64(time.Since(start).Nanoseconds()) / congChunk
	}
	runtime.ReadMemStats(&after)
	slices.Sort(stretches)
	return report.Quantile(stretches, 0.5), float64((after.Mallocs - before.Mallocs) / (congChunk * congChunks))
}

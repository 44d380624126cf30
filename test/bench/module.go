package bench

import (
	"context"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/stack"
)

// NameModule is the benchmark of modules as processes.
const NameModule = "module"

// inProcess gives the sender's modules of the given kinds to processes of this program.
func inProcess(ctx context.Context, o Options, kinds []plugins.Kind) func(a, b *stack.Stack) (func(), error) {
	return func(a, _ *stack.Stack) (func(), error) {
		c := host.Config{Engine: a}
		for k := range plugins.NumKinds {
			s := host.Spec{Kind: k, Name: o.Modules[k].Name}
			for _, p := range kinds {
				if p == k {
					s.Placement = host.Process
				}
			}
			c.Use = append(c.Use, host.Use{Spec: s, Fallback: s.Name})
		}
		m, err := host.New(c)
		if err != nil {
			return nil, err
		}
		if err := m.Start(ctx); err != nil {
			return nil, err
		}
		return func() { _ = m.Close() }, nil
	}
}

// Module measures a bulk transfer with all modules linked in and with those of the given kinds in processes of their own, in turn, so
// that both see the same machine. The program must be fastpath, whose `plugin` command serves a module.
func Module(ctx context.Context, o Options, kinds []plugins.Kind, pairs int) (*report.Bench, error) {
	o.setModules()
	b := &report.Bench{Name: NameModule, Params: params(NameBulk, o), Machine: report.ThisMachine(measureGaps)}
	names := ""
	for _, k := range kinds {
		names += k.String() + " "
	}
	b.Params["process"] = names[:max(len(names)-1, 0)]
	process := o
	process.Attach = inProcess(ctx, o, kinds)
	for range pairs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		built, err := Bulk(o)
		if err != nil {
			return nil, err
		}
		apart, err := Bulk(process)
		if err != nil {
			return nil, err
		}
		b.Runs = append(b.Runs, report.Run{
			DurationNS: int64(time.Since(began)), CPUNS: int64(built.CPU + apart.CPU),
			Values: map[string]float64{
				"builtin_bps": built.BitsPerSec, "process_bps": apart.BitsPerSec, "process_per_builtin_ratio": apart.BitsPerSec / built.BitsPerSec,
				"process_allocs_per_1000_packets": apart.AllocsPerK,
			},
		})
	}
	b.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	b.Summarize()
	return b, nil
}

package bench

import (
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// foundingLazy is what request/response gained on the machine of the founding document when no timer was armed after a send any more.
const foundingLazy = 1.10

// timers: requests and responses with the pacing timer armed only when something waits for it, and after each send as before.
func (b *paceBench) timers() error {
	o := Options{Size: 64, Time: b.Time, Procs: 1}
	o.Modules[plugins.Pace].Name = "edt"
	var ratio []float64
	f := map[string][]float64{}
	for run := range b.Runs {
		var r [2]RRResult // lazy, eager
		for k := range r {
			i := (k + run) % 2
			if err := b.step("run %d of %d", run+1, b.Runs); err != nil {
				return err
			}
			o.TCP.EagerPacing = i == 1
			var err error
			if r[i], err = RequestResponse(o); err != nil {
				return err
			}
		}
		ratio = append(ratio, r[0].PerSec/r[1].PerSec)
		for i, name := range []string{"", "eager_"} {
			f[name+"rate_per_s"] = append(f[name+"rate_per_s"], r[i].PerSec)
			f[name+"timers_per_1000"] = append(f[name+"timers_per_1000"], float64(r[i].Timers)*1000/float64(r[i].Count))
			f[name+"cpu_ns"] = append(f[name+"cpu_ns"], float64(r[i].CPU)/float64(r[i].Count))
		}
	}
	b.add(report.PaceRow{Name: "request/response, 64 B, timer armed when needed by armed after each send", Value: report.Summary("rate_ratio", ratio),
		Founding: foundingLazy, Figures: medians(f)})
	return nil
}

// medians of what was measured.
func medians(f map[string][]float64) map[string]float64 {
	m := map[string]float64{}
	for name, v := range f {
		m[name] = report.Summary(name, v).Median
	}
	return m
}

package bench

import (
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// messageTime is the most that a run with small messages takes: there are many.
const messageTime = 500 * time.Millisecond

// messages: many flows that write little at a time, with the linear retransmit queue and with the default, in turn. The founding thread
// reports 9 to 27 % less with a tree. What is done per second of processor time depends less on what else the machine does.
func (b *paceBench) messages() error {
	d := min(b.Time, messageTime)
	for _, flows := range b.Flows {
		for _, size := range []int{64, 128, 256, 512} {
			name := fmt.Sprintf("%d flows, %d B: the default by the list", flows, size)
			var ratio []float64
			f := map[string][]float64{}
			for run := range b.Runs {
				if err := b.step("%s, run %d of %d", name, run+1, b.Runs); err != nil {
					return err
				}
				var r [2]BulkResult
				for k := range r {
					i := (k + run) % 2
					o := Options{Size: size, Flows: flows, Time: d, Pollers: bulkPollers()}
					o.Modules[plugins.Rtx].Name = [...]string{"btree", "list"}[i]
					var err error
					if r[i], err = Bulk(o); err != nil {
						return err
					}
				}
				ratio = append(ratio, r[1].CPUPerGB/r[0].CPUPerGB)
				f["goodput_ratio"] = append(f["goodput_ratio"], r[0].BitsPerSec/r[1].BitsPerSec)
				f["goodput_bps"] = append(f["goodput_bps"], r[0].BitsPerSec)
				f["list_goodput_bps"] = append(f["list_goodput_bps"], r[1].BitsPerSec)
			}
			b.add(report.PaceRow{Name: name, Value: report.Summary("goodput_per_cpu_ratio", ratio), Founding: foundingMessages, Figures: medians(f)})
		}
	}
	return nil
}

// foundingMessages is the throughput with 512-byte messages that the founding thread reports of a tree, by that with a list.
const foundingMessages = 0.91

package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack"
)

// NameFounding is the experiment of the founding document.
const NameFounding = "founding"

// counter is an rtx module that counts the acknowledgements that the one inside is told of, and the entries that it looks at.
type counter struct {
	rtx.Module
	acks, visits atomic.Uint64
}

// Poll implements plugins.Module.
func (c *counter) Poll(now plugins.Time, in []rtx.Event, out []rtx.Command) int {
	acks := uint64(0)
	for i := range in {
		if in[i].Kind == rtx.EvAck {
			acks++
		}
	}
	n := c.Module.Poll(now, in, out)
	c.acks.Add(acks)
	if v, ok := c.Module.(interface{ Visits() uint64 }); ok {
		c.visits.Store(v.Visits())
	}
	return n
}

// perAck is how many entries were looked at for each acknowledgement.
func (c *counter) perAck() float64 { return float64(c.visits.Load()) / float64(max(c.acks.Load(), 1)) }

// serve gives new flows of stack a to the module inside.
func (c *counter) serve(a, _ *stack.Stack) (func(), error) {
	i, err := a.Attach(plugins.Rtx, NameFounding, []any{c})
	if err != nil {
		return nil, err
	}
	_, err = a.Use(plugins.Rtx, i, plugins.Selection{NewOnly: true})
	return func() {}, err
}

// foundingQueues are the retransmit queues that the experiment compares.
var foundingQueues = []struct {
	name string
	make rtx.New
}{{"list", rtx.NewList}, {"btree", rtx.NewBTree}}

// What the founding document reached with the tree, and what is required here.
const (
	foundingRatio = 6.4
	foundingBPS   = 4e9
)

// Founding transfers in bulk over a long, fast path that loses, with the linear retransmit queue and with the default one, in turn, so that
// both see the same machine. Log, which may be nil, is told of progress.
func Founding(ctx context.Context, o Options, runs int, log func(format string, args ...any)) (*report.Founding, error) {
	r := &report.Founding{Bench: report.Bench{Name: NameFounding, Params: params(NameBulk, o), Machine: report.ThisMachine(measureGaps)}}
	delete(r.Params, "rtx")
	r.Params["runs"] = strconv.Itoa(runs)
	for i := range runs {
		began := time.Now()
		run := report.Run{Values: map[string]float64{}}
		for j := range foundingQueues {
			q := &foundingQueues[(i+j)%len(foundingQueues)] // neither is always first
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if log != nil {
				log("run %d of %d, %s", i+1, runs, q.name)
			}
			m, err := q.make(nil, uint64(i+1))
			if err != nil {
				return nil, err
			}
			c := &counter{Module: m}
			o.Attach = c.serve
			b, err := Bulk(o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", q.name, err)
			}
			run.CPUNS += int64(b.CPU)
			run.Values[q.name+"_goodput_bps"] = b.BitsPerSec
			run.Values[q.name+"_visits_per_ack"] = c.perAck()
			run.Values[q.name+"_cpu_seconds_per_gb"] = b.CPUPerGB
		}
		run.DurationNS = int64(time.Since(began))
		r.Runs = append(r.Runs, run)
	}
	r.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	r.Summarize()
	r.Judge(foundingRatio, foundingBPS)
	return r, nil
}

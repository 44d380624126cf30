package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/test/bench/rtxload"
)

// NameRtx is the benchmark of retransmit queues.
const NameRtx = "rtx"

// RtxOptions of the benchmark.
type RtxOptions struct {
	Runs int // of each measurement, the modules in turn
	Most int // longest queue, segments
	// Budget of one measurement of the list: if it needs longer it is measured on the acknowledgements that it gets done. The others get ten
	// times as much, which they do not need.
	Budget   time.Duration
	Progress func(done, total int, what string) // called before each pattern and length; may be nil
}

// inOrder is the pattern in which nothing is lost: a segment is sent, another acknowledged.
const inOrder = "inorder"

// The modules: the linear queue of individually allocated nodes, the tree of single segments, and the default, which is linear while the
// queue is short.
var rtxModules = []struct {
	name   string
	make   rtx.New
	params plugins.Params
}{
	{"list", rtx.NewList, nil},
	{"tree", rtx.NewBTree, plugins.Params{"threshold": "0", "run": "1"}},
	{"btree", rtx.NewBTree, nil},
}

const (
	rtxList    = 0
	rtxDefault = 2
)

// rtxLengths are the queue lengths that are measured, segments.
var rtxLengths = []int{1, 2, 8, 32, 100, 1000, 10_000, 100_000, 1_000_000}

// rtxFigure is one measurement.
type rtxFigure struct {
	acks   int
	ns     float64 // per acknowledgement
	visits float64
	cut    bool // the budget was used up before the pattern's last acknowledgement
}

// Rtx measures what an acknowledgement costs.
func Rtx(ctx context.Context, o RtxOptions) (*report.Rtx, error) {
	r := &report.Rtx{Machine: report.ThisMachine(measureGaps)}
	names := []string{inOrder}
	for _, p := range rtxload.Patterns {
		names = append(names, p.Name)
	}
	type question struct {
		pattern  string
		segments int
	}
	var ask []question
	for _, pattern := range names {
		for _, n := range rtxLengths {
			if n <= o.Most && (n > 1 || pattern == inOrder) { // one segment cannot be passed by another
				ask = append(ask, question{pattern, n})
			}
		}
	}
	for i, q := range ask {
		if o.Progress != nil {
			o.Progress(i, len(ask), fmt.Sprintf("%s, %d segments", q.pattern, q.segments))
		}
		rows, err := rtxCase(ctx, o, q.pattern, q.segments)
		if err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	rtxChecks(r)
	r.Judge()
	return r, nil
}

// rtxCase measures one pattern and length with all modules, in turn: another one is the first in each run, so that what the machine does
// besides hits all of them alike. A ratio is the median of those of the runs. What is required of short queues is a few per cent, so these
// are measured more often.
func rtxCase(ctx context.Context, o RtxOptions, pattern string, n int) ([]report.RtxRow, error) {
	var times, ratios [3][]float64
	var rows [3]report.RtxRow
	runs := o.Runs
	switch {
	case n >= 100_000:
		runs = min(runs, 3)
	case n <= rtxFew:
		runs *= 5
	}
	for run := range runs {
		var f [3]rtxFigure
		for j := range rtxModules {
			i := j
			if n <= 1000 { // else the list comes first: the others are compared on what it got done
				i = (run + j) % len(rtxModules)
			}
			var err error
			if f[i], err = rtxOnce(ctx, i, pattern, n, uint64(run), o.Budget, math.MaxInt); err != nil {
				return nil, err
			}
		}
		list := f[rtxList]
		for i, m := range rtxModules {
			times[i] = append(times[i], f[i].ns)
			rows[i].Pattern, rows[i].Segments, rows[i].Module = pattern, n, m.name
			rows[i].Acks, rows[i].VisitsPerAck = f[i].acks, f[i].visits
			rows[i].CutShort = rows[i].CutShort || f[i].cut
			if i == rtxList {
				continue
			}
			same := f[i]
			if list.acks < same.acks && n > 1000 { // compare on what the list got done
				var err error
				if same, err = rtxOnce(ctx, i, pattern, n, uint64(run), o.Budget, list.acks); err != nil {
					return nil, err
				}
			}
			ratios[i] = append(ratios[i], same.ns/list.ns)
			rows[i].ListVisits = list.visits / same.visits
		}
	}
	for i := range rows {
		rows[i].AckNS = report.Summary("ack_ns", times[i])
		if len(ratios[i]) > 0 {
			slices.Sort(ratios[i])
			rows[i].ListRatio = report.Quantile(ratios[i], 0.5)
		}
	}
	return rows[:], nil
}

// rtxFew is the length up to which a queue must cost no more than the list.
const rtxFew = 32

// rtxOnce measures a fresh instance of module i.
func rtxOnce(ctx context.Context, i int, pattern string, n int, seed uint64, budget time.Duration, limit int) (rtxFigure, error) {
	m, err := rtxModules[i].make(rtxModules[i].params, 1)
	if err != nil {
		return rtxFigure{}, err
	}
	if i != rtxList {
		budget *= 10
	}
	return rtxMeasure(ctx, m, pattern, n, seed, budget, limit), ctx.Err()
}

// rtxShort is how long short queues are measured, over and over.
const rtxShort = 5 * time.Millisecond

// rtxMeasure measures a fresh module, for at most budget and limit acknowledgements, or until ctx ends.
func rtxMeasure(ctx context.Context, m rtx.Module, pattern string, n int, seed uint64, budget time.Duration, limit int) (r rtxFigure) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := rtxload.New(m)
	var spent time.Duration
	var visits uint64
	// timed measures a piece of work, in which it acknowledges that many times.
	timed := func(work func() int) {
		before, began := f.Visits(), threadTime()
		r.acks += work()
		spent += threadTime() - began
		visits += f.Visits() - before
	}
	if pattern == inOrder {
		f.Fill(n - 1)
		for r.acks < max(n, 1000) || spent < rtxShort {
			timed(func() int {
				for range 256 {
					f.Wait(1e3)
					f.Send(1)
					f.Poll()
					f.Ack(1)
					f.Poll()
				}
				return 256
			})
			if r.cut = spent > budget; r.cut || r.acks >= limit || ctx.Err() != nil {
				break
			}
		}
	} else {
		arrive := rtxArrivals(pattern, n, seed)
		var recv rtxload.Receiver
		for whole := false; !whole || spent < rtxShort; {
			f.AckAll()
			f.Fill(n)
			f.Wait(10e6)
			recv.Reset(n)
			step := 1 // one acknowledgement can take a long linear queue a minute: when the budget is used up is seen in time
			at := 0
			for at < len(arrive) && spent < budget && r.acks < limit && ctx.Err() == nil {
				part := arrive[at:min(at+step, len(arrive), at+limit-r.acks)]
				at += len(part)
				before := spent
				timed(func() int {
					for _, i := range part {
						f.Wait(1e3)
						f.Sack(&recv, i)
						f.Poll()
					}
					return len(part)
				})
				if spent-before < budget/256 {
					step = min(4*step, 256)
				}
			}
			r.cut = r.cut || !whole && at < len(arrive) && spent >= budget
			whole = true
			if spent >= budget || r.acks >= limit || ctx.Err() != nil {
				break
			}
		}
	}
	r.ns, r.visits = float64(spent)/float64(r.acks), float64(visits)/float64(r.acks)
	return r
}

// threadTime is the processor time that the calling thread has used: other work on the machine does not count.
func threadTime() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) //nolint:errcheck // the clock exists
	return time.Duration(ts.Nano())
}

func rtxArrivals(pattern string, n int, seed uint64) []int {
	for _, p := range rtxload.Patterns {
		if p.Name == pattern {
			return p.Arrivals(n, rand.New(rand.NewPCG(seed, 1)))
		}
	}
	panic("bench: no pattern " + pattern)
}

// rtxChecks states what is required of the default.
func rtxChecks(r *report.Rtx) {
	at := map[string]*report.RtxRow{}
	key := func(pattern string, n int) string { return fmt.Sprint(pattern, n) }
	for i := range r.Rows {
		if m := &r.Rows[i]; m.Module == rtxModules[rtxDefault].name {
			at[key(m.Pattern, m.Segments)] = m
		}
	}
	add := func(c report.RtxCheck) { r.Checks = append(r.Checks, c) }
	for i := range r.Rows {
		m := &r.Rows[i]
		if m.Module != rtxModules[rtxDefault].name {
			continue
		}
		if m.Segments <= rtxFew {
			add(report.RtxCheck{Name: fmt.Sprintf("%s, %d: time by the list's", m.Pattern, m.Segments), Value: m.ListRatio, AtMost: 1.05})
		}
		// Besides the search: the segment whose state changes, its neighbours, and those that loss detection moves past.
		add(report.RtxCheck{Name: fmt.Sprintf("%s, %d: visits", m.Pattern, m.Segments), Value: m.VisitsPerAck,
			AtMost: 4*math.Log2(float64(max(m.Segments, 2))) + rtxChanges})
	}
	if m := at[key("uniform5", 100_000)]; m != nil {
		add(report.RtxCheck{Name: "uniform5, 100000: list's visits by these", Value: m.ListVisits, AtLeast: 100})
		add(report.RtxCheck{Name: "uniform5, 100000: list's time by this", Value: 1 / m.ListRatio, AtLeast: 50})
	}
	for _, g := range []struct {
		pattern string
		most    float64
	}{{"random5", 2.5}, {"uniform5", 12}} {
		small, large := at[key(g.pattern, 10_000)], at[key(g.pattern, 1_000_000)]
		if small != nil && large != nil {
			add(report.RtxCheck{Name: g.pattern + ": time of 1000000 by that of 10000", Value: large.AckNS.Median / small.AckNS.Median, AtMost: g.most})
		}
	}
}

// rtxChanges is how many entries one acknowledgement of the patterns changes at the most, on average.
const rtxChanges = 8

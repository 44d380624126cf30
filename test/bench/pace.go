package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// PaceOptions of the benchmark.
type PaceOptions struct {
	Runs    int           // of each measurement in real time
	Time    time.Duration // of each run in real time
	Virtual time.Duration // of runs in virtual time that have a duration
	Pieces  int           // per measurement in virtual time
	Flows   []int         // numbers of flows with small messages
	Only    []string      // proofs to run; none: all
	// Ports are further ports for the proof in real time, which take what they are given and lead nowhere.
	Ports []SinkPort
	Log   func(format string, args ...any) // told of progress; may be nil
}

// SinkPort is a port to be opened for a measurement.
type SinkPort struct {
	Name string
	Open func() (pmd.Port, error)
}

// paceProofs are the parts of the benchmark, in the order in which they are run.
var paceProofs = []struct {
	name string
	run  func(*paceBench) error
}{
	{"precision", (*paceBench).precision},
	{"realtime", (*paceBench).realTime},
	{"timer", (*paceBench).timers},
	{"autocork", (*paceBench).autocork},
	{"smallqueues", (*paceBench).smallQueues},
	{"fairness", (*paceBench).fairness},
	{"messages", (*paceBench).messages},
}

// PaceProofs are the names that PaceOptions.Only may have.
func PaceProofs() (names []string) {
	for _, p := range paceProofs {
		names = append(names, p.name)
	}
	return names
}

// paceBench is a run of the benchmark.
type paceBench struct {
	PaceOptions
	ctx   context.Context
	proof string
	rows  []report.PaceRow
}

// Pace measures pacing and the send path.
func Pace(ctx context.Context, o PaceOptions) (*report.Pace, error) {
	b := &paceBench{PaceOptions: o, ctx: ctx}
	r := &report.Pace{Machine: report.ThisMachine(measureGaps)}
	for _, p := range paceProofs {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		b.proof = p.name
		if err := p.run(b); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	r.Rows = b.rows
	r.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	r.Judge()
	return r, nil
}

// step tells of progress and ends the benchmark when it is to stop.
func (b *paceBench) step(format string, args ...any) error {
	if b.Log != nil {
		b.Log(b.proof+": "+format, args...)
	}
	return b.ctx.Err()
}

func (b *paceBench) add(r report.PaceRow) {
	r.Proof = b.proof
	if r.Figures == nil {
		r.Figures = map[string]float64{}
	}
	b.rows = append(b.rows, r)
}

// tolerance of the mean rate in virtual time.
const tolerance = 1e-5

// foundingLate is how late pieces left in the mean on the machine of the founding document: what makes 7710 of 8000 Mbit/s of pieces like
// ours.
const foundingLate = 2416 * time.Nanosecond

// precision: the mean rate in virtual time when pieces leave late.
func (b *paceBench) precision() error {
	row := func(p precise, name string, founding float64, exact bool) error {
		if err := b.step("%s", name); err != nil {
			return err
		}
		m, err := precision(p)
		if err != nil {
			return err
		}
		r := report.PaceRow{Name: name, Virtual: true, Value: report.Summary("mean_bps", []float64{m.bps()}), Founding: founding, Figures: map[string]float64{
			"late_p50_ns": m.late(0.5), "late_p99_ns": m.late(0.99), "ahead_pieces": m.ahead, "off_ppm": (m.bps()/(p.gbit*1e9) - 1) * 1e6}}
		if exact {
			r.AtLeast, r.AtMost = p.gbit*1e9*(1-tolerance), p.gbit*1e9*(1+tolerance)
		}
		if m.ahead > mostAhead {
			return fmt.Errorf("%s: %.2f pieces were sent ahead of the line", name, m.ahead)
		}
		b.add(r)
		return nil
	}
	for _, g := range []float64{0.1, 1, 8, 20, 34.5, 40, 100} {
		founding := 0.0
		if g == 8 {
			founding = 7999.75e6
		}
		if err := row(precise{gbit: g, credit: 50, pieces: b.Pieces}, fmt.Sprintf("%v Gbit/s, late by up to half a piece", g), founding, true); err != nil {
			return err
		}
	}
	if err := row(precise{gbit: 8, credit: 50, pieces: b.Pieces, late: foundingLate}, "8 Gbit/s, late as in the founding document", 7999.75e6, true); err != nil {
		return err
	}
	return row(precise{gbit: 8, credit: 0, pieces: b.Pieces, late: foundingLate}, "the same, without credit", 7710e6, false)
}

// mostAhead is how many pieces may be sent ahead of the line.
const mostAhead = 1.5

// realTime: the mean rate in real time, on ports that lead nowhere, beside a loop that does nothing but pace, and one that
// copies as well.
func (b *paceBench) realTime() error {
	ports := []struct {
		name string
		open func(turnClock, func(plugins.Time, int)) (*sink, error)
	}{{"memlink", newMemSink}}
	for _, p := range b.Ports {
		ports = append(ports, struct {
			name string
			open func(turnClock, func(plugins.Time, int)) (*sink, error)
		}{p.Name, func(c turnClock, sent func(plugins.Time, int)) (*sink, error) {
			port, err := p.Open()
			if err != nil {
				return nil, err
			}
			return newSink(port, nil, c, sent), nil
		}})
	}
	for _, p := range ports {
		for _, g := range []float64{0.1, 1, 8, 20} {
			name := fmt.Sprintf("%s, %v Gbit/s", p.name, g)
			if err := b.step("%s", name); err != nil {
				return err
			}
			if err := b.realRow(name, g, p.open); err != nil {
				if p.name == "memlink" {
					return err
				}
				b.add(report.PaceRow{Name: p.name, Note: err.Error()})
				break
			}
		}
	}
	return nil
}

// leastShort is the shortfall below which a ratio says nothing.
const leastShort = 1e-5

func (b *paceBench) realRow(name string, gbit float64, open func(turnClock, func(plugins.Time, int)) (*sink, error)) error {
	rate := bytesPerSec(gbit)
	d := realRun(rate, b.Time)
	f := map[string][]float64{}
	add := func(key string, v float64) { f[key] = append(f[key], v) }
	short := func(m *lineMeter) float64 { return 1 - m.bps()/(gbit*1e9) }
	work := copying()
	for run := range b.Runs {
		var bare, copied, m *lineMeter
		var gaps loopGaps
		loops := []func() error{
			func() error { bare, gaps = bareLoop(rate, d, func() {}); return nil },
			func() error { copied, _ = bareLoop(rate, d, work); return nil },
			func() (err error) { m, err = realTime(open, rate, d); return err },
		}
		for i := range loops { // each is first, second and last in turn
			if err := loops[(run+i)%len(loops)](); err != nil {
				return err
			}
		}
		add("ratio", max(short(m), leastShort)/max(short(bare), leastShort))
		add("mean_bps", m.bps())
		add("bare_mean_bps", bare.bps())
		add("short_ppm", 1e6*short(m))
		add("bare_short_ppm", 1e6*short(bare))
		add("copying_short_ppm", 1e6*short(copied))
		add("short_per_copying_ratio", max(short(m), leastShort)/max(short(copied), leastShort))
		add("late_p50_ns", m.late(0.5))
		add("late_p90_ns", m.late(0.9))
		add("late_p99_ns", m.late(0.99))
		add("bare_late_p50_ns", bare.late(0.5))
		add("bare_late_p90_ns", bare.late(0.9))
		add("bare_late_p99_ns", bare.late(0.99))
		add("ahead_pieces", m.ahead)
		add("gaps_share_ppm", 1e6*gaps.sum.Seconds()/d.Seconds())
		add("gap_max_ns", float64(gaps.most))
	}
	ratio := f["ratio"]
	delete(f, "ratio")
	b.add(report.PaceRow{Name: name, Value: report.Summary("short_per_bare_ratio", ratio), AtMost: 1.2, Figures: medians(f)})
	return nil
}

package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/test/bench"
	"github.com/fastpath-tcp/fastpath/test/sim"
)

// benchFlags are the flags of the benchmarks; each has those that mean something for it.
type benchFlags struct {
	size        size
	time        time.Duration
	runs, count int
	flows       int
	pollers     int
	procs       int
	spin, json  bool
	rtt, jitter time.Duration
	rate, loss  string
	link        memlink.Path
	mods        [plugins.NumKinds]string
	gvisor      string
}

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the stack: two stacks of this process joined in memory",
		Long: `Measure the stack: two stacks of this process, joined in memory, MTU 1500, without offloads. Checksums are computed and
verified, and payload is copied in and out through net.Conn. Figures are the median of several runs, with their spread, the
machine, and the machine's own scheduling gaps before and after.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newBenchOne(bench.NameBulk, "Write as fast as possible; what the reader gets, CPU seconds per GB, allocations", 64<<10),
		newBenchOne(bench.NameRR, "Exchange messages, one outstanding per connection; rate and latency", 64),
		newBenchOne(bench.NameCPS, "Open and close connections, one after the other, the server closing first", 64),
		newBenchOne(bench.NameIdle, "Open connections and measure the memory that they hold at rest", 0),
		newBenchModule(),
		newBenchRtx(),
		newBenchPace(),
		newBenchCong(),
		newBenchFounding(),
		newBenchAll(),
	)
	return cmd
}

func newBenchOne(name, what string, defSize int64) *cobra.Command {
	f := &benchFlags{size: size(defSize)}
	cmd := &cobra.Command{Use: name, Short: what, Args: cobra.NoArgs}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&f.runs, "runs", 5, "repetitions")
	for k := range plugins.NumKinds {
		def := [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "none", plugins.Cong: "reno"}[k]
		fl.StringVar(&f.mods[k], k.String(), def, "built-in "+k.String()+" module")
	}
	if name != bench.NameIdle {
		fl.Var(&f.size, "size", "bytes per write or message, such as 64KiB or 500")
		fl.BoolVar(&f.spin, "spin", false, "lock the server's worker to the last core, with a notifier")
	}
	fl.IntVar(&f.procs, "procs", 0, "GOMAXPROCS for the runs, up to the number of processors (default: as it is); 1 is fastest for rr")
	fl.IntVar(&f.pollers, "pollers", 1, "polling goroutines of the two stacks: 1 for both, or 2, one each")
	switch name {
	case bench.NameBulk, bench.NameRR:
		fl.DurationVar(&f.time, "time", 3*time.Second, "duration of a run")
		fl.IntVar(&f.flows, "flows", 1, "connections at the same time")
		f.pathFlags(fl, 0, 0, "", "")
	default:
		fl.IntVar(&f.count, "count", 10_000, "connections")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(name); err != nil {
			return err
		}
		b, err := bench.Run(cmd.Context(), name, f.options(name), f.runs)
		if err != nil {
			return err
		}
		return f.print(cmd.OutOrStdout(), b)
	}
	return cmd
}

func newBenchAll() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Measure the speed floor, beside gVisor's netstack on the same work",
		Long: `Measure the speed floor: bulk transfer, request/response, connections and idle memory, beside what gVisor's netstack does on the
same work. With --gvisor PATH the baseline binary is run in turn with this stack, and ratios are those of the medians of this run.
Without it there are no ratios to judge by: the figures shown for gVisor were taken in another run, for orientation only.
The exit code is 1 if something that is required is missed.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&f.runs, "runs", 7, "repetitions of each benchmark")
	fl.DurationVar(&f.time, "time", 2*time.Second, "duration of each bulk and request/response run")
	fl.IntVar(&f.count, "count", 10_000, "connections, of the benchmarks that count them")
	fl.StringVar(&f.gvisor, "gvisor", "", "binary of the gVisor baseline")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.size, f.flows = 1, 1
		if err := f.check("all"); err != nil {
			return err
		}
		o := bench.FloorOptions{Time: f.time, Runs: f.runs, Conns: f.count, GVisor: f.gvisor}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		o.Log = p.line
		r, err := bench.Floor(cmd.Context(), o)
		if err != nil {
			return err
		}
		return f.judge(cmd.OutOrStdout(), r, r.Met)
	}
	return cmd
}

// pathFlags adds the flags of the link, with their defaults.
func (f *benchFlags) pathFlags(fl *pflag.FlagSet, rtt, jitter time.Duration, rate, loss string) {
	fl.DurationVar(&f.rtt, "rtt", rtt, "round-trip time that the link adds")
	fl.DurationVar(&f.jitter, "jitter", jitter, "each frame's delay differs by up to this, either way")
	fl.StringVar(&f.rate, "rate", rate, "rate of the link, such as 10Gbit/s; empty: no limit")
	fl.StringVar(&f.loss, "loss", loss, "share of the writer's frames that are lost, such as 1%")
}

// path reads the flags of the link.
func (f *benchFlags) path() error {
	if f.rtt < 0 || f.jitter < 0 || f.rtt > 10*time.Second || f.jitter > f.rtt/2 {
		return fmt.Errorf("--rtt, --jitter: %v and %v are not within 0 … 10s, the jitter at most half of the time", f.rtt, f.jitter)
	}
	f.link.Delay, f.link.Jitter = f.rtt/2, f.jitter
	if f.rate != "" {
		var r conf.Rate
		if err := r.UnmarshalText([]byte(f.rate)); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
		f.link.Rate = r.Bits()
	}
	if f.loss != "" {
		var p sim.Probability
		if err := p.UnmarshalText([]byte(f.loss)); err != nil {
			return fmt.Errorf("--loss: %w", err)
		}
		f.link.Loss.Random = memlink.PPB(p)
	}
	return nil
}

// maxProcs is how many threads can run at once: more would measure the kernel's scheduler.
func maxProcs() int { return runtime.NumCPU() }

func (f *benchFlags) check(name string) error {
	if err := f.path(); err != nil {
		return err
	}
	timed := name == bench.NameBulk || name == bench.NameRR || name == bench.NameFounding || name == "all"
	switch {
	case f.procs < 0 || f.procs > maxProcs():
		return fmt.Errorf("--procs: %d is not within 1 … %d, the processors that this process may use (0: as it is)", f.procs, maxProcs())
	case f.pollers < 0 || f.pollers > 2:
		return fmt.Errorf("--pollers: %d is not 1 or 2", f.pollers)
	case f.runs < 1:
		return fmt.Errorf("--runs: %d is less than 1", f.runs)
	case timed && f.time <= 0:
		return fmt.Errorf("--time: %v is not more than 0", f.time)
	case (name == bench.NameBulk || name == bench.NameRR) && f.flows < 1:
		return fmt.Errorf("--flows: %d is less than 1", f.flows)
	case name != bench.NameIdle && (f.size < 1 || f.size > 1<<30):
		return fmt.Errorf("--size: %d is not within 1 … 2^30", f.size)
	case (name == bench.NameCPS || name == bench.NameIdle || name == "all") && f.count < 1:
		return fmt.Errorf("--count: %d is less than 1", f.count)
	}
	return nil
}

func (f *benchFlags) options(name string) bench.Options {
	o := bench.Options{Size: int(f.size), Time: f.time, Count: f.count, Flows: f.flows, Spin: f.spin, Pollers: f.pollers, Procs: f.procs, Link: f.link}
	for k := range plugins.NumKinds {
		o.Modules[k].Name = f.mods[k]
	}
	if name == bench.NameCPS {
		o.Time = time.Minute // the count ends it, on any machine that is worth measuring
	}
	return o
}

// print writes a result as JSON or as text.
func (f *benchFlags) print(w io.Writer, r interface{ WriteText(io.Writer) error }) error {
	if f.json {
		return writeJSON(w, r)
	}
	return r.WriteText(w)
}

// judge prints a result, and fails if something that is required is missed.
func (f *benchFlags) judge(w io.Writer, r interface{ WriteText(io.Writer) error }, met bool) error {
	err := f.print(w, r)
	if err == nil && !met {
		err = errSilent
	}
	return err
}

// size is a flag: a number of bytes, with or without a unit.
type size int64

func (s *size) String() string { return conf.Size(*s).String() }

func (s *size) Type() string { return "size" }

func (s *size) Set(text string) error {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		*s = size(n)
		return nil
	}
	v, err := conf.ParseSize(text)
	*s = size(v)
	return err
}

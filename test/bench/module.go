package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/stack"
)

// NameModule is the benchmark of modules as processes.
const NameModule = "module"

// ModuleSet is a way to place modules: those of some kinds in processes, of their own or one for all.
type ModuleSet struct {
	Kinds    []plugins.Kind
	Together bool
}

// ModuleOptions say what of modules in processes is measured: each set of kinds with each number of flows and each way to wait.
type ModuleOptions struct {
	Options
	Sets  []ModuleSet
	Flows []int
	Spin  []bool // true: module processes have the last processor for themselves, and all the rest the others
	Pairs int
	Log   func(format string, args ...any) // told of progress; may be nil
}

// Module measures bulk transfers with all modules linked in and with those of some kinds in processes of their own, in turn, so that both
// see the same machine. The program must be fastpath, whose `plugin` command serves a module.
func Module(ctx context.Context, o ModuleOptions) (*report.Module, error) {
	o.setModules()
	r := &report.Module{Params: params(NameBulk, o.Options), Machine: report.ThisMachine(measureGaps)}
	delete(r.Params, "flows")
	r.Params["pairs"] = strconv.Itoa(o.Pairs)
	for _, spin := range o.Spin {
		for _, set := range o.Sets {
			for _, flows := range o.Flows {
				c, err := o.cell(ctx, set, flows, spin)
				if err != nil {
					return nil, err
				}
				r.Cells = append(r.Cells, *c)
			}
		}
	}
	r.Machine.GapsAfter = report.MeasureGaps(measureGaps)
	return r, nil
}

// cell measures one way to place modules.
func (o *ModuleOptions) cell(ctx context.Context, set ModuleSet, flows int, spin bool) (c *report.ModuleCell, err error) {
	c = &report.ModuleCell{Flows: flows, Wait: "park", Together: set.Together}
	for _, k := range set.Kinds {
		c.Kinds = append(c.Kinds, k.String())
	}
	built := o.Options
	built.Flows = flows
	cpu := -1
	if spin {
		c.Wait = "spin"
		var undo func() error
		if cpu, undo, err = leaveLastCPU(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, undo()) }()
		built.Procs = max(runtime.NumCPU()-1, 1)
	}
	for i := range o.Pairs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o.Log != nil {
			o.Log("%s, %d flows, %s: pair %d of %d", c.Processes(), flows, c.Wait, i+1, o.Pairs)
		}
		run, err := modulePair(ctx, built, set, cpu)
		if err != nil {
			return nil, err
		}
		c.Runs = append(c.Runs, run)
	}
	c.Summarize()
	return c, nil
}

// modulePair measures one run with modules linked in, and one with those of set in processes, which have a processor for themselves
// unless cpu is negative.
func modulePair(ctx context.Context, o Options, set ModuleSet, cpu int) (run report.Run, err error) {
	began := time.Now()
	built, err := Bulk(o)
	if err != nil {
		return run, err
	}
	p := &processes{ctx: ctx, modules: o.Modules, set: set, cpu: cpu}
	o.Attach, o.Look = p.attach, p.look
	apart, err := Bulk(o)
	if err != nil {
		return run, err
	}
	l := p.stats.Latency
	secs, gb := apart.Elapsed.Seconds(), float64(apart.Bytes)/1e9
	run = report.Run{DurationNS: int64(time.Since(began)), CPUNS: int64(built.CPU + apart.CPU + p.used), Values: map[string]float64{
		report.ModuleBuiltin: built.BitsPerSec, report.ModuleProcess: apart.BitsPerSec, report.ModuleRatio: apart.BitsPerSec / built.BitsPerSec,
		report.ModuleBuiltinCPU: built.CPUPerGB, report.ModuleProcessCPU: (apart.CPU + p.used).Seconds() / gb,
		report.ModuleEvents: float64(p.stats.Events) / secs, report.ModuleEvent: float64(p.used) / float64(max(p.stats.Events, 1)),
		report.ModuleP50: float64(l.Quantile(0.5)), report.ModuleP99: float64(l.Quantile(0.99)), report.ModuleP999: float64(l.Quantile(0.999)),
		report.ModuleWakes: float64(p.stats.Wakes) / secs, report.ModuleAllocs: apart.AllocsPerK,
	}}
	return run, nil
}

// processes are the sender's modules of some kinds, in processes of this program.
type processes struct {
	ctx     context.Context
	modules [plugins.NumKinds]stack.ModuleConfig
	set     ModuleSet
	cpu     int
	m       *host.Manager
	stats   host.Stats    // of the measured time
	used    time.Duration // of processor time, meanwhile
}

func (p *processes) attach(a, _ *stack.Stack) (func(), error) {
	c := host.Config{Engine: a}
	if p.set.Together {
		c.Together = p.set.Kinds
	}
	for k := range plugins.NumKinds {
		s := host.Spec{Kind: k, Name: p.modules[k].Name}
		u := host.Use{Fallback: s.Name}
		for _, kind := range p.set.Kinds {
			if kind == k {
				s.Placement = host.Process
				if p.cpu >= 0 {
					u.CPUs = []int{p.cpu}
				}
			}
		}
		u.Spec = s
		c.Use = append(c.Use, u)
	}
	m, err := host.New(c)
	if err != nil {
		return nil, err
	}
	if err := m.Start(p.ctx); err != nil {
		return nil, err
	}
	p.m = m
	return func() { _ = m.Close() }, nil
}

// look takes what the processes have done and used at the start of the measured time from what they have at its end.
func (p *processes) look(end bool) {
	stats, used := host.Stats{}, time.Duration(0)
	seen := map[int]bool{0: true}
	for _, s := range p.m.List() {
		stats.Add(&s.Stats)
		if !seen[s.PID] {
			seen[s.PID] = true
			used += processTime(s.PID)
		}
	}
	if end {
		stats.Sub(&p.stats)
		p.stats, p.used = stats, used-p.used
		return
	}
	p.stats, p.used = stats, used
}

// processTime is how long the threads of a process have run.
func processTime(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		sum += ranFor(f)
	}
	return sum
}

// leaveLastCPU keeps this process, and what it starts from now on, away from its last processor until undo.
func leaveLastCPU() (cpu int, undo func() error, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return 0, nil, err
	}
	if all.Count() < 2 {
		return 0, nil, errors.New("bench: modules that spin need a processor of their own, and there is one only")
	}
	for i := range 1024 {
		if all.IsSet(i) {
			cpu = i
		}
	}
	rest := all
	rest.Clear(cpu)
	undo = func() error { return setAffinity(&all) }
	if err := setAffinity(&rest); err != nil {
		return 0, nil, errors.Join(err, undo())
	}
	return cpu, undo, nil
}

// setAffinity is for all threads of this process; new ones inherit it.
func setAffinity(set *unix.CPUSet) error {
	threads, err := filepath.Glob("/proc/self/task/*")
	for _, t := range threads {
		tid, e := strconv.Atoi(filepath.Base(t))
		if e == nil {
			e = unix.SchedSetaffinity(tid, set)
		}
		if e != nil && !errors.Is(e, unix.ESRCH) { // it has ended meanwhile
			err = errors.Join(err, e)
		}
	}
	return err
}

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/test/bench"
)

func newBenchModule() *cobra.Command {
	f := &benchFlags{size: 64 << 10, flows: 1}
	kinds, flows, wait := "", "", ""
	cmd := &cobra.Command{
		Use:   bench.NameModule,
		Short: "Bulk transfer with modules linked in and in processes of their own, in turn",
		Long: `Measure bulk transfers with all modules linked in, and with some in processes of their own, in turn: goodput and their ratio, processor
time of all processes, events to the modules and what one costs their process, and how long answers take, from the turn of the worker that
writes an event to the one that reads its answer.

Modules that share a process are shown in parentheses.

With --wait park the module processes share the processors, and sleep when there is nothing to do. With --wait spin they have the last
processor for themselves, and everything else, in both runs of a pair, has the others.`,
		Example: "  fastpath bench module --kinds rtx,pace,cong --flows 1,10,100,1000 --wait park,spin --json",
		Args:    cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&f.runs, "runs", 20, "pairs of runs")
	fl.DurationVar(&f.time, "time", 2*time.Second, "duration of a run")
	fl.Var(&f.size, "size", "bytes per write, such as 64KiB or 500")
	fl.StringVar(&flows, "flows", "1", "connections at the same time; several numbers, separated by commas, are measured one after the other")
	fl.StringVar(&kinds, "kinds", "cong", "kinds whose modules run in processes, separated by commas: each alone, then all, in a process for each and in one for all")
	fl.StringVar(&wait, "wait", "park", "how module processes wait: park, spin, or both, separated by a comma")
	for k := range plugins.NumKinds {
		def := [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "none", plugins.Cong: "reno"}[k]
		fl.StringVar(&f.mods[k], k.String(), def, "built-in "+k.String()+" module")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(bench.NameBulk); err != nil {
			return err
		}
		o := bench.ModuleOptions{Options: f.options(bench.NameBulk), Pairs: f.runs}
		var all []plugins.Kind
		for _, s := range strings.Split(kinds, ",") {
			k, err := plugins.ParseKind(strings.TrimSpace(s))
			if err != nil {
				return fmt.Errorf("--kinds: %w", err)
			}
			all = append(all, k)
			o.Sets = append(o.Sets, bench.ModuleSet{Kinds: []plugins.Kind{k}})
		}
		if len(all) > 1 {
			o.Sets = append(o.Sets, bench.ModuleSet{Kinds: all}, bench.ModuleSet{Kinds: all, Together: true})
		}
		for _, s := range strings.Split(flows, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || n < 1 {
				return fmt.Errorf("--flows: %q is no number above 0", s)
			}
			o.Flows = append(o.Flows, n)
		}
		for _, s := range strings.Split(wait, ",") {
			switch strings.TrimSpace(s) {
			case "park":
				o.Spin = append(o.Spin, false)
			case "spin":
				o.Spin = append(o.Spin, true)
			default:
				return fmt.Errorf("--wait: %q is neither park nor spin", s)
			}
		}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		o.Log = p.line
		b, err := bench.Module(cmd.Context(), o)
		if err != nil {
			return err
		}
		return f.print(cmd.OutOrStdout(), b)
	}
	return cmd
}

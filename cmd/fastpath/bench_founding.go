package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/test/bench"
)

func newBenchFounding() *cobra.Command {
	f := &benchFlags{size: 64 << 10, flows: 1}
	cmd := &cobra.Command{
		Use:   "founding",
		Short: "The founding experiment: bulk transfer over a long path that loses, list against btree",
		Long: `Repeat the experiment of the founding document in real time: a bulk transfer over 10 Gbit/s, 150 ms ± 200 µs and 1 % loss, with
BBR and paced, without offloads or coalescing below TCP, with the linear retransmit queue of individually allocated segments and with
the default one, in turn, each stack polled by a goroutine of its own. It needs two idle cores and 2 GB of memory.
The exit code is 1 if something that is required is missed: a mean goodput of 4 Gbit/s, and 6.4 times the list's.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&f.runs, "runs", 10, "repetitions with each queue")
	fl.DurationVar(&f.time, "time", 30*time.Second, "duration of a run")
	fl.IntVar(&f.pollers, "pollers", 2, "polling goroutines of the two stacks: 1 for both, or 2, one each")
	fl.StringVar(&f.mods[plugins.Cong], plugins.Cong.String(), "bbr", "built-in cong module")
	fl.StringVar(&f.mods[plugins.Pace], plugins.Pace.String(), "edt", "built-in pace module")
	f.pathFlags(fl, 150*time.Millisecond, 200*time.Microsecond, "10Gbit/s", "1%")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(bench.NameFounding); err != nil {
			return err
		}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		r, err := bench.Founding(cmd.Context(), f.options(bench.NameFounding), f.runs, p.line)
		if err != nil {
			return err
		}
		return f.judge(cmd.OutOrStdout(), r, r.Met)
	}
	return cmd
}

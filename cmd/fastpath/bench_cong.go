package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/test/bench"
)

func newBenchCong() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "cong",
		Short: "What a sample costs each congestion control, beside Reno, in batches of 1, 8 and 32",
		Long: `Measure what an acknowledgement's sample costs each built-in congestion control: time and allocations, in batches of 1, 8 and 32 samples of
a flow over 1 Gbit/s. The algorithms are measured in turn; ratios are to Reno in the same run.
The exit code is 1 if something that is required is missed.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&f.runs, "runs", 7, "repetitions of each measurement")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.runs < 1 {
			return fmt.Errorf("--runs: %d is less than 1", f.runs)
		}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		r, err := bench.Cong(cmd.Context(), f.runs, p.line)
		if err != nil {
			return err
		}
		return f.judge(cmd.OutOrStdout(), r, r.Met)
	}
	return cmd
}

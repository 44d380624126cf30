package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/test/bench"
)

func newBenchRtx() *cobra.Command {
	f := &benchFlags{}
	o := bench.RtxOptions{}
	cmd := &cobra.Command{
		Use:   bench.NameRtx,
		Short: "What an acknowledgement costs the retransmit queue, by its length and what was lost",
		Long: `Measure what an acknowledgement costs the modules of the retransmit queue: time, and entries of the queue that are looked at, for
queues of 1 to 1,000,000 segments. In "inorder" nothing is lost; in "hole" the first segment is, in "second" every second one, and in
"random5" the first and 5 % of the others, SACKs coming in order; in "uniform5" they come in random order. The modules are list,
the linear queue; tree, a B-tree of single segments; and btree, the default. They are measured in turn. Where the list would need
longer than --budget it is measured on the first acknowledgements, its row says so, and the others are compared with it on these.
All of it takes some minutes.
The exit code is 1 if something that is required is missed.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&o.Runs, "runs", 15, "repetitions of each measurement; five times as many up to 32 segments, 3 at most from 100,000 on")
	fl.IntVar(&o.Most, "most", 1_000_000, "longest queue, segments")
	fl.DurationVar(&o.Budget, "budget", 2*time.Second, "longest measurement of the list; ten times as long for the others")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.Runs < 1:
			return fmt.Errorf("--runs: %d is less than 1", o.Runs)
		case o.Most < 1:
			return fmt.Errorf("--most: %d is less than 1", o.Most)
		case o.Budget <= 0:
			return fmt.Errorf("--budget: %v is not more than 0", o.Budget)
		}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		o.Progress = p.steps
		r, err := bench.Rtx(cmd.Context(), o)
		if err != nil {
			return err
		}
		return f.judge(cmd.OutOrStdout(), r, r.Met)
	}
	return cmd
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/dpdk"
	"github.com/fastpath-tcp/fastpath/test/bench"
)

func newBenchPace() *cobra.Command {
	f := &benchFlags{}
	o := bench.PaceOptions{}
	cmd := &cobra.Command{
		Use:   "pace",
		Short: "What pacing and the send path do, beside the figures of the founding documents",
		Long: `Measure pacing and the send path. "precision" is the mean rate in virtual time while pieces leave late, with the jitter credit and
without it. "realtime" is the same in real time, on a sink in memory and, where DPDK is built in, on net_null and net_ring, beside a loop
that does nothing but pace: what both fall short of their rate is the machine's share. A second such loop copies and sums what it lets go
("copying"): what a sender must do at the least lengthens the machine's gaps. "timer" is request/response with the pacing timer
armed only when something waits for it, by the same with one armed after each send. "autocork" is 500-byte writes with automatic corking and without, with Nagle's
algorithm and without, on a virtual machine with one processor and a port that tells late what it has sent: with Nagle's algorithm alone
segments are full, too, and both come near to what 125 ns per write and 500 ns per segment allow. "smallqueues" is a 100 Mbit/s
port that tells late, with the rules of small queues before and after. "fairness" is what light flows wait beside a greedy one,
with what the port holds limited and not, and how 100 bulk flows share a port. "messages" are many flows that write little, with the
default retransmit queue by the linear one.
The exit code is 1 if a limit in virtual time is missed. Figures in real time depend on the machine, and fail nothing.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&o.Runs, "runs", 5, "repetitions of each measurement in real time")
	fl.DurationVar(&o.Time, "time", time.Second, "duration of each run in real time")
	fl.DurationVar(&o.Virtual, "virtual", time.Second, "duration of each run in virtual time, half of the fairness proof's")
	fl.IntVar(&o.Pieces, "pieces", 20_000, "pieces of each measurement in virtual time")
	fl.IntSliceVar(&o.Flows, "flows", []int{500, 1000, 2000, 4000}, "numbers of flows with small messages, separated by commas")
	fl.StringSliceVar(&o.Only, "only", nil, "proofs to run, separated by commas: "+strings.Join(bench.PaceProofs(), ", "))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.Runs < 1:
			return fmt.Errorf("--runs: %d is less than 1", o.Runs)
		case o.Time < 10*time.Millisecond:
			return fmt.Errorf("--time: %v is less than 10ms", o.Time)
		case o.Virtual < 10*time.Millisecond:
			return fmt.Errorf("--virtual: %v is less than 10ms", o.Virtual)
		case o.Pieces < 100:
			return fmt.Errorf("--pieces: %d is less than 100", o.Pieces)
		}
		for _, n := range o.Flows {
			if n < 1 || n > 20_000 {
				return fmt.Errorf("--flows: %d is not within 1 … 20000", n)
			}
		}
		for _, p := range o.Only {
			if !slices.Contains(bench.PaceProofs(), p) {
				return fmt.Errorf("--only: there is no %q (there are %s)", p, strings.Join(bench.PaceProofs(), ", "))
			}
		}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		o.Log = p.line
		opened := false
		o.Ports = dpdkSinks(cmd.Context(), &opened)
		defer func() {
			if opened {
				dpdk.Shutdown()
			}
		}()
		r, err := bench.Pace(cmd.Context(), o)
		if err != nil {
			return err
		}
		return f.judge(cmd.OutOrStdout(), r, r.Met)
	}
	return cmd
}

// dpdkSinks are ports of DPDK that take what they are given: one drops it, the other gives it back. *opened says whether one was
// opened.
func dpdkSinks(ctx context.Context, opened *bool) (ports []bench.SinkPort) {
	for _, vdev := range []string{"net_null0,no-rx=1", "net_ring0"} {
		name, _, _ := strings.Cut(vdev, "0")
		ports = append(ports, bench.SinkPort{Name: name, Open: func() (pmd.Port, error) {
			p, err := dpdk.Open(ctx, dpdk.Config{Vdev: vdev, EAL: dpdk.EAL{Hugepages: dpdk.HugepagesOff, FilePrefix: "fastpath-bench"}})
			if err != nil {
				return nil, err
			}
			*opened = true
			return p, nil
		}})
	}
	return ports
}

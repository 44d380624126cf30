package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/test/bench"
)

func newBenchModule() *cobra.Command {
	f := &benchFlags{size: 64 << 10}
	kinds := ""
	cmd := &cobra.Command{
		Use:   bench.NameModule,
		Short: "Bulk transfer with modules linked in and in processes of their own, in turn",
		Args:  cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.IntVar(&f.runs, "runs", 20, "pairs of runs")
	fl.DurationVar(&f.time, "time", 2*time.Second, "duration of a run")
	fl.Var(&f.size, "size", "bytes per write, such as 64KiB or 500")
	fl.IntVar(&f.flows, "flows", 1, "connections at the same time")
	fl.StringVar(&kinds, "kinds", "cong", "kinds whose modules run in processes, separated by commas")
	for k := range plugins.NumKinds {
		def := [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "none", plugins.Cong: "reno"}[k]
		fl.StringVar(&f.mods[k], k.String(), def, "built-in "+k.String()+" module")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(bench.NameBulk); err != nil {
			return err
		}
		var ks []plugins.Kind
		for _, s := range strings.Split(kinds, ",") {
			k, err := plugins.ParseKind(strings.TrimSpace(s))
			if err != nil {
				return fmt.Errorf("--kinds: %w", err)
			}
			ks = append(ks, k)
		}
		b, err := bench.Module(cmd.Context(), f.options(bench.NameBulk), ks, f.runs)
		if err != nil {
			return err
		}
		return f.print(cmd.OutOrStdout(), b)
	}
	return cmd
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/test/sim"
)

// simFlags are the flags of `fastpath sim`.
type simFlags struct {
	json            bool
	csv, plot, pcap string
	seed            uint64
	mods            [plugins.NumKinds]string
	compare         string
	report, against string
	seedIsSet       bool
}

func newSim() *cobra.Command {
	f := &simFlags{}
	cmd := &cobra.Command{
		Use:   "sim [FILE...]",
		Short: "Run a scenario on virtual time: two hosts, a link, flows; with tables, plots and captures",
		Long: `Run a scenario file (TOML) on virtual time: two hosts with the real stack, the link between them with its rate, delay, losses and
queue, flows, and what changes meanwhile. The same file and seed give the same result, byte for byte, on every machine.
The exit code is 1 if a flow did not move all its bytes.

With --report a congestion control is compared with others on the scenarios of the files, or, without any, on a set of them: goodput,
delay, what was sent again, fairness, with plots, in one HTML file. It may be one that is not built in: --cong ./my-module is a directory with
a Go module's main package, which is built, or the binary of one; it runs in a process of its own, in lockstep with the simulation.`,
		Example: `  fastpath sim loss.toml --cong bbr --plot bbr.svg
  fastpath sim loss.toml --cong bbr --compare cong=cubic --plot both.svg
  fastpath sim loss.toml --json --csv series.csv --pcap frames.pcapng
  fastpath sim --cong ./my-module --report my-module.html
  fastpath sim --cong ./my-module --report one.html --against bbr,cubic loss.toml`,
		Args: cobra.ArbitraryArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.StringVar(&f.csv, "csv", "", "write the time series to this `file`")
	fl.StringVar(&f.plot, "plot", "", "draw the time series to this `file.svg`")
	fl.StringVar(&f.pcap, "pcap", "", "write all frames, as host a sees them, to this `file` (pcapng)")
	fl.Uint64Var(&f.seed, "seed", 0, "seed, instead of the file's")
	for k := range plugins.NumKinds {
		fl.StringVar(&f.mods[k], k.String(), "", k.String()+" `module` of all flows, instead of the file's")
	}
	fl.StringVar(&f.compare, "compare", "", "also run another scenario, or the same with another module (`FILE or KIND=MODULE`), and plot both; its time series and frames go to files of their own (series-2.csv)")
	fl.StringVar(&f.report, "report", "", "compare the congestion control with others, and write a report to this `file.html`")
	fl.StringVar(&f.against, "against", strings.Join(others, ","), "what --report compares with: built-in `modules`, separated by commas")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.seedIsSet = fl.Changed("seed")
		switch {
		case f.report != "":
			return f.evaluate(cmd, args)
		case isPath(f.mods[plugins.Cong]):
			return errors.New("--cong: a module that is not built in needs --report")
		case len(args) != 1:
			return fmt.Errorf("%d scenario files: want one, or --report", len(args))
		}
		return f.run(cmd, args[0])
	}
	return cmd
}

func (f *simFlags) run(cmd *cobra.Command, file string) error {
	if f.plot != "" && filepath.Ext(f.plot) != ".svg" {
		return fmt.Errorf("--plot: %s does not end in .svg", f.plot)
	}
	scenarios, err := f.load(file)
	if err != nil {
		return err
	}
	var results []*sim.Result
	for i, s := range scenarios {
		r, err := f.simulate(cmd, s, i)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if err := f.write(results); err != nil {
		return err
	}
	return f.print(cmd.OutOrStdout(), results)
}

// load reads the scenario, and the one to compare it with.
func (f *simFlags) load(file string) ([]*sim.Scenario, error) {
	one := func(file string) (*sim.Scenario, error) {
		s, err := sim.Load(file)
		if err != nil {
			return nil, err
		}
		if f.seedIsSet {
			s.Seed = f.seed
		}
		for k := range plugins.NumKinds {
			if f.mods[k] == "" {
				continue
			}
			if err := s.Override(k, sim.Use{Use: f.mods[k]}); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
	s, err := one(file)
	if err != nil || f.compare == "" {
		return []*sim.Scenario{s}, err
	}
	kind, module, ok := strings.Cut(f.compare, "=")
	k, err := plugins.ParseKind(kind)
	if !ok || err != nil {
		other, err := one(f.compare)
		return []*sim.Scenario{s, other}, err
	}
	other, err := one(file)
	if err != nil {
		return nil, err
	}
	if err := other.Override(k, sim.Use{Use: module}); err != nil {
		return nil, err
	}
	other.Name += " " + module
	return []*sim.Scenario{s, other}, nil
}

func (f *simFlags) simulate(cmd *cobra.Command, s *sim.Scenario, run int) (r *sim.Result, err error) {
	o := sim.Options{Stop: cmd.Context().Done()}
	p := newProgress(cmd.ErrOrStderr())
	defer p.done()
	o.Progress = p.bar
	if f.pcap == "" {
		return sim.Run(s, o)
	}
	err = toFile(ofRun(f.pcap, run), func(w io.Writer) (err error) {
		o.Pcap = w
		r, err = sim.Run(s, o)
		return err
	})
	return r, err
}

// ofRun is the name of a file of a run, of which the second with --compare has its number in it: series.csv, series-2.csv.
func ofRun(path string, run int) string {
	if run == 0 {
		return path
	}
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), run+1, ext)
}

// write writes the files that were asked for.
func (f *simFlags) write(results []*sim.Result) error {
	if f.csv != "" {
		for i, r := range results {
			if err := toFile(ofRun(f.csv, i), r.WriteCSV); err != nil {
				return err
			}
		}
	}
	if f.plot != "" {
		return toFile(f.plot, func(w io.Writer) error { return sim.WritePlot(w, results...) })
	}
	return nil
}

// print writes the result: one JSON object, or an array of two with --compare.
func (f *simFlags) print(w io.Writer, results []*sim.Result) (err error) {
	complete := true
	var reports []*report.Sim
	for _, r := range results {
		reports = append(reports, &r.Report)
		complete = complete && r.Report.Complete
	}
	switch {
	case f.json && len(reports) == 1:
		err = writeJSON(w, reports[0])
	case f.json:
		err = writeJSON(w, reports)
	default:
		for _, r := range reports {
			err = errors.Join(err, r.WriteText(w))
		}
	}
	if err == nil && !complete {
		err = errSilent
	}
	return err
}

// toFile writes a file.
func toFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

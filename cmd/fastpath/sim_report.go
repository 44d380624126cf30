package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/test/sim"
)

// others are what a congestion control is compared with by default.
var others = []string{"reno", "cubic", "cdg", "bbr", "bbr3"}

// isPath tells the name of a built-in module from a place in the file system.
func isPath(module string) bool {
	return strings.ContainsRune(module, filepath.Separator) || module == "." || module == ".."
}

// evaluate compares --cong with others and writes the report.
func (f *simFlags) evaluate(cmd *cobra.Command, files []string) error {
	switch {
	case filepath.Ext(f.report) != ".html":
		return fmt.Errorf("--report: %s does not end in .html", f.report)
	case f.mods[plugins.Cong] == "":
		return errors.New("--report: which congestion control? --cong names one")
	case f.json || f.csv != "" || f.plot != "" || f.pcap != "" || f.compare != "" || f.mods[plugins.Rtx] != "" || f.mods[plugins.Pace] != "":
		return errors.New("--report goes with --cong, --against and --seed only")
	}
	contenders, cleanup, err := f.contenders(cmd.Context())
	if err != nil {
		return err
	}
	defer cleanup()
	load := func() (list []*sim.Scenario, err error) { // each trial changes its scenario
		if len(files) == 0 {
			return sim.Set(), nil
		}
		for _, file := range files {
			s, err := sim.Load(file)
			if err != nil {
				return nil, err
			}
			list = append(list, s)
		}
		return list, nil
	}
	list, err := load()
	if err != nil {
		return err
	}
	p := newProgress(cmd.ErrOrStderr())
	defer p.done()
	descriptions := map[string]string{}
	var trials []*sim.Trial
	for i, s := range list {
		if _, twice := descriptions[s.Name]; twice {
			return fmt.Errorf("two scenarios %q", s.Name)
		}
		descriptions[s.Name] = s.Description
		for j := range contenders {
			p.line("%s: %s", s.Name, contenders[j].Name)
			fresh, err := load()
			if err != nil {
				return err
			}
			if f.seedIsSet {
				fresh[i].Seed = f.seed
			}
			t, err := sim.Try(fresh[i], &contenders[j], sim.Options{Stop: cmd.Context().Done()})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.Name, contenders[j].Name, err)
			}
			trials = append(trials, t)
		}
	}
	title := contenders[0].Name + " beside " + strings.Join(names(contenders[1:]), ", ")
	command := "fastpath sim --cong " + f.mods[plugins.Cong] + " --against " + f.against + " --report " + f.report
	if f.seedIsSet {
		command += fmt.Sprintf(" --seed %d", f.seed)
	}
	if len(files) > 0 {
		command += " " + strings.Join(files, " ")
	}
	if err := toFile(f.report, func(w io.Writer) error { return sim.WriteHTML(w, title, command, descriptions, trials) }); err != nil {
		return err
	}
	return printTrials(cmd.OutOrStdout(), trials)
}

func names(cs []sim.Contender) (list []string) {
	for i := range cs {
		list = append(list, cs[i].Name)
	}
	return list
}

// contenders are --cong, and those of --against that it is not itself.
func (f *simFlags) contenders(ctx context.Context) (list []sim.Contender, cleanup func(), err error) {
	subject, cleanup := sim.Contender{Name: f.mods[plugins.Cong]}, func() {}
	if isPath(subject.Name) {
		if subject, cleanup, err = external(ctx, subject.Name); err != nil {
			return nil, nil, err
		}
	}
	list = append(list, subject)
	for _, name := range strings.Split(f.against, ",") {
		if name = strings.TrimSpace(name); name != "" && name != subject.Name {
			list = append(list, sim.Contender{Name: name})
		}
	}
	return list, cleanup, nil
}

// external makes a contender of a Go module's directory, which is built, or of a binary.
func external(ctx context.Context, path string) (c sim.Contender, cleanup func(), err error) {
	cleanup = func() {}
	info, err := os.Stat(path)
	if err != nil {
		return c, nil, err
	}
	bin, err := filepath.Abs(path)
	if err != nil {
		return c, nil, err
	}
	if info.IsDir() {
		dir, err := os.MkdirTemp("", "fastpath-sim-")
		if err != nil {
			return c, nil, err
		}
		cleanup = func() { os.RemoveAll(dir) }
		bin = filepath.Join(dir, "module")
		build := exec.CommandContext(ctx, "go", "build", "-o", bin, ".")
		build.Dir = path
		if out, err := build.CombinedOutput(); err != nil {
			cleanup()
			return c, nil, fmt.Errorf("go build in %s: %w\n%s", path, err, strings.TrimSpace(string(out)))
		}
	}
	l, err := host.OpenLone(ctx, plugins.Cong, bin, nil, 1) // what is it?
	if err != nil {
		cleanup()
		return c, nil, err
	}
	c.Name = l.Info.Name
	if err := l.Close(); err != nil {
		cleanup()
		return c, nil, err
	}
	c.Open = func(seed uint64) (any, io.Closer, error) {
		l, err := host.OpenLone(ctx, plugins.Cong, bin, nil, seed)
		if err != nil {
			return nil, nil, err
		}
		return l.Module, lone{l}, nil
	}
	return c, cleanup, nil
}

// lone reports a module that died during its run: its flows went on with another.
type lone struct{ *host.Lone }

func (l lone) Close() error {
	var err error
	if why := l.Fault(); why != "" {
		err = fmt.Errorf("the module died: %s", why)
	}
	return errors.Join(err, l.Lone.Close())
}

// printTrials writes the figures as a table, and fails if bytes were lost or changed.
func printTrials(w io.Writer, trials []*sim.Trial) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tCONG\tMBIT/S\tUSED\tRTT P50\tP95\tSENT AGAIN\tRTO\tFAIRNESS")
	verified := true
	for _, r := range trials {
		verified = verified && r.Verified
		jain := "-"
		if r.Jain > 0 {
			jain = fmt.Sprintf("%.3f", float64(r.Jain)/1000)
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%.1f%%\t%v\t%v\t%.2f%%\t%d\t%s\n", r.Scenario, r.Contender, float64(r.GoodputBPS)/1e6, float64(r.UsedPerMille)/10,
			time.Duration(r.RTT.P50NS).Round(100*time.Microsecond), time.Duration(r.RTT.P95NS).Round(100*time.Microsecond),
			float64(r.Retransmits)*100/float64(max(r.Segments, 1)), r.Timeouts, jain)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !verified {
		return errSilent
	}
	return nil
}

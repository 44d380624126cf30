package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// checkResult is the JSON of `fastpath check`.
type checkResult struct {
	OK       bool          `json:"ok"` // no errors
	Errors   conf.Problems `json:"errors"`
	Warnings conf.Problems `json:"warnings"`
}

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a configuration: all errors at once, each as file:line: key: message",
		Long: `Validate a configuration and compare it with this machine: cores, interfaces, module binaries and their checksums.
All errors are printed at once, each as file:line: key: message; then warnings, which do not keep the daemon from starting.
The exit code is 1 if there are errors.`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	syntax := cmd.Flags().Bool("syntax", false, "look at the file only, not at this machine")
	force := cmd.Flags().Bool("force", false, "accept ports on network cards that carry this machine's default route, as fastpath run --force does")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := check(args[0], *syntax, *force)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if *asJSON {
			err = writeJSON(out, r)
		} else {
			for _, p := range r.Errors {
				fmt.Fprintln(out, p)
			}
			for _, p := range r.Warnings {
				w := *p
				w.Message = "warning: " + w.Message
				fmt.Fprintln(out, &w)
			}
			if r.OK {
				_, err = fmt.Fprintf(out, "%s: ok\n", args[0])
			}
		}
		if err == nil && !r.OK {
			err = errSilent
		}
		return err
	}
	return cmd
}

// check validates the configuration at path. A file that cannot be read is an error; one that is wrong is a result.
func check(path string, syntax, force bool) (*checkResult, error) {
	r := &checkResult{Errors: conf.Problems{}, Warnings: conf.Problems{}}
	c, errs, err := conf.Examine(path)
	if err != nil {
		return nil, err
	}
	r.Errors = append(r.Errors, errs...)
	if !syntax {
		m, err := conf.ReadMachine("")
		if err != nil {
			return nil, err
		}
		m.Force = force
		errs, warnings := conf.Check(c, m, builtin.Checker)
		r.Errors, r.Warnings = append(r.Errors, errs...), append(r.Warnings, warnings...)
		r.Errors.Sort()
	}
	r.OK = len(r.Errors) == 0
	return r, nil
}

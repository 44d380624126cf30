package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

func (c *ctl) filter() *cobra.Command {
	cmd := simple(c, &cobra.Command{
		Use:   "filter",
		Short: "Show the packet filter: its rules, with the packets and bytes that each has matched; or replace it",
		Args:  cobra.NoArgs,
	}, control.OpFilter, nil, control.WriteFilter)
	cmd.AddCommand(
		simple(c, &cobra.Command{
			Use:     "load FILE",
			Short:   "Replace the rules by those of a file with [[filter]] and [firewall] (-: standard input)",
			Example: "  fastpath ctl filter load filter.toml",
			Args:    cobra.ExactArgs(1),
		}, control.OpFilter, func(argv []string) (any, error) {
			text, err := readRules(argv[0])
			return control.FilterRequest{Load: true, File: argv[0], Text: text}, err
		}, control.WriteFilterLoaded),
		simple(c, &cobra.Command{
			Use:   "reload",
			Short: "Replace the rules by those in the daemon's configuration, which is read again",
			Args:  cobra.NoArgs,
		}, control.OpFilter, func([]string) (any, error) { return control.FilterRequest{Reload: true}, nil }, control.WriteFilterLoaded),
	)
	return cmd
}

// maxRules bounds the length of a file of rules, so that it fits into a request.
const maxRules = control.MaxRequest / 2

func readRules(file string) (string, error) {
	var in io.Reader = os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRules+1))
	if err == nil && len(text) > maxRules {
		err = fmt.Errorf("%s: more than %d bytes is too large", file, maxRules)
	}
	return string(text), err
}

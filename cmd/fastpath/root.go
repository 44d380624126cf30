package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "fastpath",
		Short: "A TCP/IP stack that polls network cards, with swappable congestion control, pacing and loss recovery",
		// Errors are printed once, by run; usage is for who asks for it.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newRun(), newCheck(), newCtl(), newDemo(), newBench(), newSim(), newPlugin(), newPluginLaunch(), newVersion())
	return root
}

// writeJSON writes v as an indented JSON document.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

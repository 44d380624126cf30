package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/daemon"
	"github.com/fastpath-tcp/fastpath/plugins/host"
)

func newPluginLaunch() *cobra.Command {
	return &cobra.Command{
		Use:                daemon.Launcher,
		Short:              "Isolate this process and execute a module",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return host.Launch(args) },
	}
}

func newPlugin() *cobra.Command {
	return &cobra.Command{
		Use:    "plugin KIND NAME [KIND NAME]...",
		Short:  "Serve built-in modules to the daemon that started this process",
		Hidden: true,
		Args:   cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			signal.Reset(os.Interrupt, syscall.SIGTERM) // a module is its host's, not the terminal's
			return host.ServeBuiltin(args)
		},
	}
}

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/daemon"
	"github.com/fastpath-tcp/fastpath/conf"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the daemon in the foreground",
		Long: `Run the daemon in the foreground, as the configuration says, until SIGTERM or SIGINT. It then stops listening, lets connections
finish for shutdown.drain, resets those that are left, and ends with exit code 0. A second signal ends it at once.`,
		Example: "  fastpath run -c fastpath.toml",
		Args:    cobra.NoArgs,
	}
	file := cmd.Flags().StringP("config", "c", "", "configuration file")
	_ = cmd.MarkFlagRequired("config")
	force := cmd.Flags().Bool("force", false, "also take network cards that carry this machine's default route")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := conf.Load(*file)
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		signal.Ignore(syscall.SIGPIPE) // a daemon goes on when nobody reads its log any more
		// The first signal ends ctx. From then on signals do what they do by default: they end the process.
		defer context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) })()
		v := readVersion()
		return daemon.Run(ctx, c, daemon.Options{Config: *file, Version: v.Version, Force: *force, Log: daemon.Logger(c.Log, cmd.ErrOrStderr())})
	}
	return cmd
}

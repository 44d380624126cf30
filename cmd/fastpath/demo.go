package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/demo"
	"github.com/fastpath-tcp/fastpath/conf"
)

func newDemo() *cobra.Command {
	o := demo.Options{}
	size := ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Download and upload through the kernel's TCP while modules are swapped and killed",
		Long: `Makes a network namespace joined by a veth pair, starts the daemon on it, and checks what it serves to curl: a download,
during which congestion control is swapped and its process killed, and an upload. It ends with a table, a plot of the
connection and a capture. It needs root, and removes what it made.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Size, err = conf.ParseSize(size); err != nil {
				return err
			}
			if o.Program, err = os.Executable(); err != nil {
				return err
			}
			o.Stdout, o.Log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			_, err = unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
			o.IsTerm = err == nil
			return demo.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Config, "config", "c", "conf/demo.toml", "configuration of the daemon")
	f.StringVar(&o.Driver, "driver", "dpdk", "driver of the daemon's port: dpdk, afpacket or tap")
	f.StringVar(&size, "size", "1GiB", "size of the download; the upload is a quarter of it")
	f.StringVar(&o.Out, "out", demo.DefaultOut, "directory for the plot and the capture")
	f.BoolVar(&o.JSON, "json", false, "print the result as JSON")
	return cmd
}

// Command fastpath is the one binary: the daemon, the tools that control it, benchmarks and simulations.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errSilent makes the program fail without a further message: the command has said what is wrong.
var errSilent = errors.New("failed")

// run is the program; it returns its exit code: 0, or 1 after an error.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(stderr, "fastpath: %v\n", err)
	}
	return 1
}

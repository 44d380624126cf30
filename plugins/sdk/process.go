package sdk

import (
	"io"
	"os"

	plugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// prepare does what a module process does before anything else.
func prepare(modules []Module) {
	// It was executed through a descriptor, so the kernel calls it by that descriptor's number. At most 15 bytes.
	name := []byte("fp-modules")
	if len(modules) == 1 {
		info := &modules[0].Info
		name = []byte("fp-" + info.Kind.String() + "-" + info.Name)
	}
	_ = os.WriteFile("/proc/self/comm", name[:min(len(name), 15)], 0)
	_ = unix.Close(link.BinaryFD)
	unix.CloseOnExec(link.HostFD)
	unix.CloseOnExec(link.ModuleFD)
	logToHost()
}

// exitWithHost ends the process when the host does: standard input is a pipe that only the host holds. The parent-death
// signal usually comes first; this is for a host that could not set it.
func exitWithHost() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	if dir := os.Getenv(plugin.EnvUnixSocketDir); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(0)
}

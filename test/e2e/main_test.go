package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var full = flag.Bool("full", false, "run every combination of driver, link and peer")

// helperEnv makes this binary one of the helpers instead of running tests.
const helperEnv = "FASTPATH_E2E_HELPER"

// scratch holds the program and what tests write.
var scratch string

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		if err := helpers[name](); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "fastpath-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// helpers are the programs that this binary can be, by name.
var helpers = map[string]func() error{
	"burn": burnMain,
	"peer": peerMain,
}

// program builds bin/fastpath once, with DPDK where there is one.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "fastpath")
	args := []string{"build", "-o", path}
	if haveDPDK() {
		args = append(args, "-tags", "dpdk")
	}
	if out, err := exec.Command("go", append(args, "../../cmd/fastpath")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

var haveDPDK = sync.OnceValue(func() bool { return exec.Command("pkg-config", "--exists", "libdpdk").Run() == nil })

// need skips the test, saying why, if it is not run by root or a program is missing.
func need(t *testing.T, tools ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	for _, tool := range append([]string{"ip"}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); errors.Is(err, os.ErrNotExist) {
		t.Skip("needs /dev/net/tun: modprobe tun")
	}
}

// needDriver skips the test if the driver cannot be used.
func needDriver(t *testing.T, driver string) {
	t.Helper()
	if (driver == "dpdk" || driver == "virtio") && !haveDPDK() {
		t.Skip("needs libdpdk (Debian: libdpdk-dev)")
	}
}

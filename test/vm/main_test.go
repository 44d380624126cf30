package vm

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var vms = flag.Bool("vm", false, "start virtual machines")

// scratch holds what the machines are made of.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "fastpath-vm-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

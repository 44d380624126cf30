package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/fastpath-tcp/fastpath/test/script/posix" // a kept result of this test shall end with a change of the stack
)

// TestTable: a program in C loads the shared object and drives the stack through packetdrill's table.
func TestTable(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to build a shared object and a program in C")
	}
	for _, f := range []string{"testdata/drive.c", "interface.h", "table.c", "export.go", "instance.go"} { // or of these
		if _, err := os.Stat(f); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	lib, drive := filepath.Join(dir, "libfastpath.so"), filepath.Join(dir, "drive")
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env = append(c.Environ(), "CGO_ENABLED=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("go", "build", "-tags", "packetdrill", "-buildmode=c-shared", "-o", lib, ".")
	run(gcc, "-Wall", "-Wextra", "-Werror", "-O1", "-o", drive, "testdata/drive.c", "-ldl", "-lpthread")
	// What the program says is of the flag that there is not.
	if out := run(drive, lib); !strings.Contains(out, `unknown flag "frob"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("it says %q", out)
	}
}

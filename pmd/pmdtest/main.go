package pmdtest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// Main runs a package's tests with every pool tracked and exits with status 1 if a pool leaked or was never unmapped, after
// naming it and where its buffers were taken. Benchmarks run untracked.
func Main(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		os.Exit(m.Run())
	}
	pmd.Watch()
	code := m.Run()
	if err := pmd.Watched(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: leaks\n%v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// CheckLeaks fails the test if buffers of the pool are neither free nor with its driver. Only the pool's owner calls it.
func CheckLeaks(t testing.TB, p *pmd.Pool) {
	t.Helper()
	if err := p.CheckLeaks(); err != nil {
		t.Error(err)
	}
}

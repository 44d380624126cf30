//go:build dpdk

package dpdk

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("DPDK and network namespaces need root")
	}
}

// config fills in what all tests share.
func config(c Config) Config {
	if c.Buffers == 0 {
		c.Buffers = 2048
	}
	// Free hugepages may be another process's a moment later, for DPDK takes them as it needs them.
	c.EAL.Hugepages, c.EAL.Memory = HugepagesOff, 192<<20
	return c
}

// open opens a port, and closes it at the test's end unless the test did.
func open(t testing.TB, c Config) pmd.Port {
	t.Helper()
	needRoot(t)
	p, err := Open(t.Context(), config(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, pmd.ErrClosed) {
			t.Error(err)
		}
	})
	return p
}

// until waits for a condition.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("this took longer than 5 s")
		}
	}
}

//go:build dpdk

package dpdk

import (
	"errors"
	"os"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

func TestMain(m *testing.M) {
	pmdtest.Main(m)
}

// open opens a port with a small pool.
func open(t testing.TB, c Config) pmd.Port {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("DPDK needs root")
	}
	if c.Buffers == 0 {
		c.Buffers = 2048
	}
	c.EAL.Memory = 128 << 20
	p, err := Open(c)
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

// TestShutdown runs alone, in a process of its own.
func TestNull(t *testing.T) {
	p := open(t, Config{Vdev: "net_null0"})
	q := p.Queue(0)
	rx := make([]*pmd.Buf, 64)
	_, n := q.Poll(nil, rx)
	if n != 64 {
		t.Fatal(n)
	}
	for _, b := range rx[:n] {
		q.Pool().Put(b)
	}
}

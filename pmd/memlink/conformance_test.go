package memlink

import (
	"hash/crc32"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

func must(t testing.TB, c Config) (a, b *Port) {
	t.Helper()
	a, b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func opener(c Config) func(t *testing.T) (a, b pmd.Port) {
	return func(t *testing.T) (pmd.Port, pmd.Port) { return must(t, c) }
}

// steer spreads test frames over n queues by their content.
func steer(n int) func([]byte) (uint32, int) {
	return func(f []byte) (uint32, int) {
		h := crc32.ChecksumIEEE(f[:min(len(f), 40)])
		return h, int(h % uint32(n))
	}
}

func TestConformance(t *testing.T) {
	t.Run("clean", func(t *testing.T) {
		pmdtest.Run(t, opener(Config{Ring: 256, Bufs: 1024}), pmdtest.Options{TxRing: 256})
	})
	t.Run("jumbo", func(t *testing.T) {
		pmdtest.Run(t, opener(Config{Ring: 64, Bufs: 256, MTU: 9000}), pmdtest.Options{TxRing: 64})
	})
	t.Run("queues", func(t *testing.T) {
		pmdtest.Run(t, opener(Config{Ring: 128, Bufs: 512, Queues: 3}), pmdtest.Options{TxRing: 128})
	})
	t.Run("steered", func(t *testing.T) {
		pmdtest.Run(t, opener(Config{Ring: 64, Bufs: 1024, Queues: 4, Steer: steer(4),
			RSSKey: make([]byte, 40), RSSTable: []uint16{0, 1, 2, 3}}), pmdtest.Options{})
	})
	t.Run("tso", func(t *testing.T) {
		pmdtest.Run(t, opener(Config{Ring: 256, Bufs: 1024, TSO: 65000}), pmdtest.Options{TxRing: 256})
	})
	path := Path{Rate: 1e9, Delay: 3 * time.Millisecond, Jitter: time.Millisecond, KeepOrder: true}
	t.Run("virtual", func(t *testing.T) {
		v := &virtual{}
		c := Config{Ring: 256, Bufs: 1024, Queues: 2, AtoB: path, BtoA: path, Now: v.read, Virtual: true}
		pmdtest.Run(t, opener(c), pmdtest.Options{TxRing: 256, Idle: func() { v.add(4 * time.Millisecond) }})
	})
	t.Run("virtual tso", func(t *testing.T) {
		v := &virtual{}
		c := Config{Ring: 256, Bufs: 1024, AtoB: path, BtoA: path, Now: v.read, Virtual: true, TSO: 65000}
		pmdtest.Run(t, opener(c), pmdtest.Options{TxRing: 256, Idle: func() { v.add(4 * time.Millisecond) }})
	})
	t.Run("real", func(t *testing.T) {
		path.Delay, path.Jitter = 200*time.Microsecond, 100*time.Microsecond
		c := Config{Ring: 256, Bufs: 1024, AtoB: path, BtoA: path, Now: monotonic}
		pmdtest.Run(t, opener(c), pmdtest.Options{TxRing: 256, Async: true})
	})
}

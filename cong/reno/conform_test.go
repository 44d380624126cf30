package reno

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
)

func TestConformance(t *testing.T) {
	congtest.Run(t, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

func BenchmarkSample(b *testing.B) {
	congtest.Bench(b, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

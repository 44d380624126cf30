package cubic

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

func TestConformance(t *testing.T) {
	congtest.Run(t, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

// The same bounds hold at the ends of the parameters' ranges.
func TestBoundsOfParameters(t *testing.T) {
	for _, p := range []plugins.Params{
		{"beta": "950", "c": "10000", "hystart": "false"},
		{"beta": "100", "c": "1", "fast_convergence": "false", "tcp_friendliness": "false", "slow_start_after_idle": "false"},
	} {
		congtest.Bounds(t, func(seed uint64) (cong.Module, error) { return New(p, seed) })
	}
}

func BenchmarkSample(b *testing.B) {
	congtest.Bench(b, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

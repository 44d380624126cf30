package cdg

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
		{"window": "256", "backoff_beta": "1", "backoff_factor": "1000000", "use_tolerance": "true"},
		{"window": "1", "backoff_beta": "1024", "use_ineff": "0", "use_shadow": "false", "hystart_detect": "0", "slow_start_after_idle": "false"},
	} {
		congtest.Bounds(t, func(seed uint64) (cong.Module, error) { return New(p, seed) })
	}
}

func BenchmarkSample(b *testing.B) {
	congtest.Bench(b, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

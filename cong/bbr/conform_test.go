package bbr

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
		{"high_gain": "1024", "cwnd_gain": "2048", "bw_rtts": "2", "min_rtt_win_sec": "1", "extra_acked_gain": "1024", "pacing_margin_percent": "0"},
		{"high_gain": "257", "cwnd_gain": "256", "probe_rtt_mode_ms": "10000", "extra_acked_gain": "0", "lt_bw": "false", "pacing_margin_percent": "50"},
	} {
		congtest.Bounds(t, func(seed uint64) (cong.Module, error) { return New(p, seed) })
	}
}

func BenchmarkSample(b *testing.B) {
	congtest.Bench(b, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

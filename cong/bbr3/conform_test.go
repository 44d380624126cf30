package bbr3

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
		{"startup_gain": "400", "cwnd_gain": "800", "up_cwnd_gain": "800", "up_gain": "400", "loss_thresh": "50", "beta": "99", "headroom": "0",
			"min_rtt_win_sec": "1", "probe_rtt_interval_ms": "100", "probe_wait_rand_ms": "600000", "pacing_margin_percent": "0", "ecn_max_rtt_us": "0"},
		{"startup_gain": "101", "drain_gain": "10", "down_gain": "10", "up_gain": "101", "cwnd_gain": "100", "probe_rtt_cwnd_gain": "10", "loss_thresh": "0",
			"beta": "10", "headroom": "50", "startup_loss_ranges": "1", "probe_wait_ms": "1", "probe_wait_rand_ms": "0", "pacing_margin_percent": "50",
			"ecn_max_rtt_us": "10000000"},
	} {
		congtest.Bounds(t, func(seed uint64) (cong.Module, error) { return New(p, seed) })
	}
}

func BenchmarkSample(b *testing.B) {
	congtest.Bench(b, func(seed uint64) (cong.Module, error) { return New(nil, seed) })
}

// Command fastpath-cong-aimd is a complete congestion-control module for fastpath: additive increase, multiplicative decrease
// (Chiu and Jain, 1989), with both as parameters.
package main

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

var info = plugins.Info{Kind: plugins.Cong, Name: "aimd", Version: "1.0.0", Params: []plugins.Param{
	{Name: "increase", Type: "uint", Unit: "segments", Default: "1", Doc: "added to the window in each round trip"},
	{Name: "keep", Type: "uint", Unit: "percent", Default: "50", Doc: "what a loss leaves of the window"},
}}

type aimd struct{ increase, keep uint64 }

type state struct {
	acked          uint64 // bytes acknowledged towards the next increase, times aimd.increase
	cwnd, ssthresh uint32 // before the last decrease
}

func main() { sdk.Serve(sdk.Module{Info: info, Cong: newModule}) }

func newModule(p plugins.Params, _ uint64) (cong.Module, error) {
	r := sdk.ReadParams(info, p)
	m := &aimd{increase: r.Uint("increase", 1, 100), keep: r.Uint("keep", 10, 90)}
	return cong.Each(m.step), r.Err()
}

// step sees one sample of one flow. out holds the flow's last decision: what it does not change stays.
func (m *aimd) step(s *state, in *cong.Sample, out *cong.Decision) {
	out.Flags |= cong.WantsPRR // in recovery the engine goes down to Ssthresh step by step
	if in.Has(cong.FlagEnter) {
		s.acked, s.cwnd, s.ssthresh = 0, out.Cwnd, out.Ssthresh
		out.Ssthresh = max(uint32(uint64(out.Cwnd)*m.keep/100), 2*in.MSS)
		out.Cwnd = out.Ssthresh
	}
	switch {
	case in.Kind == cong.KindTimeout:
		out.Cwnd = in.MSS
	case in.Has(cong.FlagUndo): // nothing was lost after all
		out.Cwnd, out.Ssthresh = max(out.Cwnd, s.cwnd), max(out.Ssthresh, s.ssthresh)
	case in.Kind != cong.KindAck || in.CA == cong.CARecovery || in.CA == cong.CACWR || !in.Has(cong.FlagCwndLimited):
	case out.Cwnd < out.Ssthresh: // slow start
		out.Cwnd = min(out.Cwnd+in.Acked, out.Ssthresh)
	default:
		s.acked += uint64(in.Acked) * m.increase
		out.Cwnd += uint32(s.acked/uint64(out.Cwnd)) * in.MSS
		s.acked %= uint64(out.Cwnd)
	}
}

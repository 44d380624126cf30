// Command fastpath-cong-aimd is a complete congestion-control module for fastpath: additive increase, multiplicative decrease
// (Chiu and Jain, 1989), with both as parameters.
package main

import "github.com/fastpath-tcp/fastpath/plugins/sdk"

var info = sdk.Info{Kind: sdk.Cong, Name: "aimd", Version: "1.0.0", Params: []sdk.Param{
	{Name: "increase", Type: "uint", Unit: "segments", Default: "1", Doc: "added to the window in each round trip"},
	{Name: "keep", Type: "uint", Unit: "percent", Default: "50", Doc: "what a loss leaves of the window"},
}}

type aimd struct{ increase, keep uint64 }

type state struct {
	acked          uint64 // bytes acknowledged towards the next increase, times aimd.increase
	cwnd, ssthresh uint32 // before the last decrease
}

var module = sdk.Module{Info: info, Cong: newModule}

func main() { sdk.Serve(module) }

func newModule(p sdk.Values, _ uint64) (sdk.CongModule, error) {
	r := sdk.ReadParams(info, p)
	m := &aimd{increase: r.Uint("increase", 1, 100), keep: r.Uint("keep", 10, 90)}
	return sdk.Each(m.step), r.Err()
}

// step sees one sample of one flow. out holds the flow's last decision: what it does not change stays.
func (m *aimd) step(s *state, in *sdk.Sample, out *sdk.Decision) {
	out.Flags |= sdk.WantsPRR // in recovery the engine goes down to Ssthresh step by step
	if in.Has(sdk.FlagEnter) {
		s.acked, s.cwnd, s.ssthresh = 0, out.Cwnd, out.Ssthresh
		out.Ssthresh = max(uint32(uint64(out.Cwnd)*m.keep/100), 2*in.MSS)
		out.Cwnd = out.Ssthresh
	}
	switch {
	case in.Kind == sdk.KindTimeout:
		out.Cwnd = in.MSS
	case in.Has(sdk.FlagUndo): // nothing was lost after all
		out.Cwnd, out.Ssthresh = max(out.Cwnd, s.cwnd), max(out.Ssthresh, s.ssthresh)
	case in.Kind != sdk.KindAck || in.CA == sdk.CARecovery || in.CA == sdk.CACWR || !in.Has(sdk.FlagCwndLimited):
	case out.Cwnd < out.Ssthresh: // slow start
		out.Cwnd = min(out.Cwnd+in.Acked, out.Ssthresh)
	default:
		s.acked += uint64(in.Acked) * m.increase
		out.Cwnd += uint32(s.acked/uint64(out.Cwnd)) * in.MSS
		s.acked %= uint64(out.Cwnd)
	}
	mss := min(max(in.MSS, 1), 1<<16) // which may have changed
	out.Cwnd = min(max(out.Cwnd, mss), 1<<30)
	if out.Ssthresh != sdk.InfiniteSsthresh {
		out.Ssthresh = min(max(out.Ssthresh, 2*mss), 1<<30)
	}
}

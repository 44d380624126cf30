// Package bbr is BBR congestion control, version 1 (Cardwell et al., ACM Queue 14(5), 2016), with what Linux added to it:
// 1 % pacing margin, 64-bit rates, quantisation by TSO goal, allowance for aggregated acknowledgements, detection of policers,
// and pacing by departure time.
//
// It models the path by two figures: the bottleneck's bandwidth, a maximum over 10 round trips, and the path's propagation
// delay, a minimum over 10 s, and paces at the one while it keeps about their product in flight.
package bbr

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/param"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// unit is a gain of 1.
const unit = 256

// Info describes the module.
func Info() plugins.Info {
	return plugins.Info{Kind: plugins.Cong, Name: "bbr", Version: "1.0.0", Needs: []string{plugins.FeaturePacing}, Params: []plugins.Param{
		{Name: "high_gain", Type: "uint", Unit: "1/256", Default: "739",
			Doc: "pacing and window gain in STARTUP: 2/ln 2; DRAIN paces at its inverse"},
		{Name: "cwnd_gain", Type: "uint", Unit: "1/256", Default: "512", Doc: "window gain in PROBE_BW"},
		{Name: "bw_rtts", Type: "uint", Unit: "round trips", Default: "10", Doc: "window of the bandwidth filter"},
		{Name: "min_rtt_win_sec", Type: "uint", Unit: "s", Default: "10",
			Doc: "window of the minimum-RTT filter, after which PROBE_RTT is entered"},
		{Name: "probe_rtt_mode_ms", Type: "uint", Unit: "ms", Default: "200", Doc: "least time in PROBE_RTT"},
		{Name: "pacing_margin_percent", Type: "uint", Unit: "%", Default: "1",
			Doc: "how far pacing stays below the estimated bandwidth"},
		{Name: "extra_acked_gain", Type: "uint", Unit: "1/256", Default: "256",
			Doc: "allowance in the window for aggregated acknowledgements; 0: none"},
		{Name: "lt_bw", Type: "bool", Default: "true", Doc: "detect token-bucket policers and hold their rate"},
	}}
}

type module struct {
	seed                uint64
	highGain, drainGain uint32
	cwndGain            uint32
	bwRounds            uint32
	minRTTWin, probeRTT time.Duration
	marginPercent       uint64 // 100 less the margin
	extraGain           uint64
	detectPolicer       bool
}

// New makes a BBR module. seed decides in which phase each flow starts to cycle through the gains.
func New(p plugins.Params, seed uint64) (cong.Module, error) {
	r := param.Read(Info(), p)
	m := &module{
		seed:          seed,
		highGain:      uint32(r.Uint("high_gain", unit+1, 4*unit)),
		cwndGain:      uint32(r.Uint("cwnd_gain", unit, 8*unit)),
		bwRounds:      uint32(r.Uint("bw_rtts", 2, 1000)),
		minRTTWin:     time.Duration(r.Uint("min_rtt_win_sec", 1, 3600)) * time.Second,
		probeRTT:      time.Duration(r.Uint("probe_rtt_mode_ms", 1, 10_000)) * time.Millisecond,
		marginPercent: 100 - r.Uint("pacing_margin_percent", 0, 50),
		extraGain:     r.Uint("extra_acked_gain", 0, 4*unit),
		detectPolicer: r.Bool("lt_bw"),
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	m.drainGain = unit * unit / m.highGain
	return cong.Each(m.step), nil
}

type mode uint8

const (
	startup  mode = iota // ramp up the rate until the pipe is full
	drain                // drain the queue that this built
	probeBW              // discover and share bandwidth: pace around the estimate
	probeRTT             // cut what is in flight to the minimum to see the path's delay
)

var modeNames = [...]string{"STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT"}

// publish puts the state that Describe shows into the decision.
func (s *state) publish(out *cong.Decision) {
	out.Aux[0] = s.bandwidth()
	out.Aux[1] = uint64(s.minRTT)
	out.Aux[2] = uint64(s.mode) | uint64(s.pacingGain)<<8 | uint64(s.cwndGain)<<32
}

// Describe formats the algorithm's state as `ss -tin` does, with the mode behind it.
func Describe(aux [3]uint64, _ *cong.Decision) string {
	name := "?"
	if i := aux[2] & 0xff; i < uint64(len(modeNames)) {
		name = modeNames[i]
	}
	return fmt.Sprintf("bbr:(bw:%dbps,mrtt:%s,pacing_gain:%s,cwnd_gain:%s,mode:%s)", aux[0]*8,
		decimal(aux[1]/1000, 1000), decimal(aux[2]>>8&0xffffff, unit), decimal(aux[2]>>32, unit), name)
}

// decimal formats n/den with up to five decimals, trailing zeros cut off.
func decimal(n, den uint64) string {
	const scale = 100_000
	v := (n*scale + den/2) / den
	text := strconv.FormatUint(v/scale, 10)
	frac := fmt.Sprintf("%05d", v%scale)
	for len(frac) > 0 && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	if frac == "" {
		return text
	}
	return text + "." + frac
}

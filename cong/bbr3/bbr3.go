// Package bbr3 is BBR congestion control, version 3, as draft-ietf-ccwg-bbr-06 writes it down.
//
// It models the path by its bandwidth and delay, as BBR always did, and by the volume that it holds without much loss:
// inflight_longterm is what probing found, inflight_shortterm and bw_shortterm follow the losses since the last probe. Long
// cruises below these bounds leave room for others; every 2 to 3 s, or after as many round trips as Reno would need, the flow
// probes for more, and stops where more than 2 % is lost.
//
// Random loss below 2 % costs some of the rate, by design: each round trip of CRUISE slows down by the share that it lost, until the next
// probe (5.3.3.8.3). Over 100 Mbit/s and 100 ms that leaves 88 % of the capacity at 1 % loss, where version 1 has 97 %.
//
// Where the draft leaves a choice, or differs from Google's code (google/bbr, branch v3), this package does this:
//   - The gains are the draft's (DRAIN 0.5, DOWN 0.9), and so is the bound of DRAIN to 3 rounds; the code has neither.
//   - The bandwidth filter is the code's: two slots, one for each cycle, and a slot without a sample is not passed on.
//   - The maximum of the acknowledgements' aggregation is the code's: two bins of 5 rounds, of 1 round before the pipe is full.
//   - A range that the engine reports lost counts as one of the lost ranges that end STARTUP.
//   - What a spurious loss undoes is saved at the first loss of an episode, not at each first loss of a round.
//   - When the minimum RTT has expired, one of an acknowledgement that the receiver probably delayed is not taken (the code).
//   - ECN: the draft only says that a mark is congestion. On paths whose minimum RTT is at most ecn_max_rtt_us, where marks
//     come early and often, the reaction is the code's: a mean share of marked bytes (alpha) cuts inflight_shortterm, and a
//     round with half of its bytes marked ends a probe, two of them STARTUP. On longer paths a marked byte counts as a lost
//     one. Marks are judged by whole rounds. The code's early probe after a cycle with marks but no loss is not here.
package bbr3

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/param"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// percent is a gain of 1.
const percent = 100

// Info describes the module.
func Info() plugins.Info {
	return plugins.Info{Kind: plugins.Cong, Name: "bbr3", Version: "1.0.0", Needs: []string{plugins.FeaturePacing, plugins.FeatureLost}, Params: []plugins.Param{
		{Name: "startup_gain", Type: "uint", Unit: "%", Default: "277", Doc: "pacing gain in STARTUP: 4 ln 2"},
		{Name: "drain_gain", Type: "uint", Unit: "%", Default: "50", Doc: "pacing gain in DRAIN"},
		{Name: "down_gain", Type: "uint", Unit: "%", Default: "90", Doc: "pacing gain in PROBE_BW's DOWN"},
		{Name: "up_gain", Type: "uint", Unit: "%", Default: "125", Doc: "pacing gain in PROBE_BW's UP"},
		{Name: "cwnd_gain", Type: "uint", Unit: "%", Default: "200", Doc: "window as a share of the path's product"},
		{Name: "up_cwnd_gain", Type: "uint", Unit: "%", Default: "225", Doc: "the same in UP"},
		{Name: "probe_rtt_cwnd_gain", Type: "uint", Unit: "%", Default: "50", Doc: "the same in PROBE_RTT"},
		{Name: "loss_thresh", Type: "uint", Unit: "%", Default: "2", Doc: "loss in a round trip that says that too much is in flight"},
		{Name: "beta", Type: "uint", Unit: "%", Default: "70", Doc: "what a reduction leaves of a bound"},
		{Name: "headroom", Type: "uint", Unit: "%", Default: "15", Doc: "share of inflight_longterm left free in CRUISE and PROBE_RTT"},
		{Name: "startup_loss_ranges", Type: "uint", Default: "6", Doc: "lost ranges in a round trip that may end STARTUP"},
		{Name: "min_rtt_win_sec", Type: "uint", Unit: "s", Default: "10", Doc: "window of the minimum-RTT filter"},
		{Name: "probe_rtt_interval_ms", Type: "uint", Unit: "ms", Default: "5000",
			Doc: "time without a lower RTT after which PROBE_RTT is entered"},
		{Name: "probe_rtt_mode_ms", Type: "uint", Unit: "ms", Default: "200", Doc: "least time in PROBE_RTT"},
		{Name: "probe_wait_ms", Type: "uint", Unit: "ms", Default: "2000", Doc: "least time between probes for bandwidth"},
		{Name: "probe_wait_rand_ms", Type: "uint", Unit: "ms", Default: "1000", Doc: "random addition to probe_wait_ms"},
		{Name: "pacing_margin_percent", Type: "uint", Unit: "%", Default: "1",
			Doc: "how far pacing stays below the estimated bandwidth"},
		{Name: "ecn_max_rtt_us", Type: "uint", Unit: "µs", Default: "5000",
			Doc: "minimum RTT up to which the reaction to marks is by their share; on longer paths a mark counts as a loss"},
	}}
}

type module struct {
	seed                                     uint64
	startupGain, drainGain, downGain, upGain uint32 // pacing, percent
	cwndGain, upCwndGain, probeRTTGain       uint32 // windows, percent
	lossThresh, beta, headroom               uint64 // percent
	startupLossRanges                        uint32
	minRTTWin, probeRTTInterval, probeRTT    time.Duration
	probeWait, probeWaitRand                 time.Duration
	marginPercent                            uint64 // 100 less the margin
	ecnMaxRTT                                time.Duration
}

// New makes a BBRv3 module. seed decides how long each flow waits between probes.
func New(p plugins.Params, seed uint64) (cong.Module, error) {
	m, err := newModule(p, seed)
	if err != nil {
		return nil, err
	}
	return cong.Each(m.step), nil
}

func newModule(p plugins.Params, seed uint64) (*module, error) {
	r := param.Read(Info(), p)
	gain := func(name string, lo, hi uint64) uint32 { return uint32(r.Uint(name, lo, hi)) }
	ms := func(name string, lo, hi uint64) time.Duration {
		return time.Duration(r.Uint(name, lo, hi)) * time.Millisecond
	}
	m := &module{
		seed:              seed,
		startupGain:       gain("startup_gain", 101, 400),
		drainGain:         gain("drain_gain", 10, 100),
		downGain:          gain("down_gain", 10, 100),
		upGain:            gain("up_gain", 101, 400),
		cwndGain:          gain("cwnd_gain", 100, 800),
		upCwndGain:        gain("up_cwnd_gain", 100, 800),
		probeRTTGain:      gain("probe_rtt_cwnd_gain", 10, 100),
		lossThresh:        r.Uint("loss_thresh", 0, 50),
		beta:              r.Uint("beta", 10, 99),
		headroom:          r.Uint("headroom", 0, 50),
		startupLossRanges: gain("startup_loss_ranges", 1, 1000),
		minRTTWin:         time.Duration(r.Uint("min_rtt_win_sec", 1, 3600)) * time.Second,
		probeRTTInterval:  ms("probe_rtt_interval_ms", 100, 3_600_000),
		probeRTT:          ms("probe_rtt_mode_ms", 1, 10_000),
		probeWait:         ms("probe_wait_ms", 1, 600_000),
		probeWaitRand:     ms("probe_wait_rand_ms", 0, 600_000),
		marginPercent:     100 - r.Uint("pacing_margin_percent", 0, 50),
		ecnMaxRTT:         time.Duration(r.Uint("ecn_max_rtt_us", 0, 10_000_000)) * time.Microsecond,
	}
	return m, r.Err()
}

type mode uint8

const (
	startup  mode = iota // ramp up the rate until the pipe is full
	drain                // drain the queue that this built
	down                 // PROBE_BW: drain what probing queued, and leave headroom
	cruise               // PROBE_BW: hold
	refill               // PROBE_BW: fill the pipe for a round trip, without a queue
	up                   // PROBE_BW: probe for more
	probeRTT             // cut what is in flight to see the path's delay
)

var modeNames = [...]string{"STARTUP", "DRAIN", "PROBE_BW_DOWN", "PROBE_BW_CRUISE", "PROBE_BW_REFILL", "PROBE_BW_UP", "PROBE_RTT"}

func (m mode) probesBW() bool { return m >= down && m <= up }

// The fields of Decision.Aux: the bandwidth in bytes/s and alpha, the minimum RTT in µs and inflight_shortterm, the mode, the
// gains and inflight_longterm. Bounds of 0 are not set.
const (
	alphaShift      = 48
	shortTermShift  = 32
	pacingGainShift = 4
	cwndGainShift   = 14
	longTermShift   = 24
	gainMask        = 1<<10 - 1
)

// publish puts the state that Describe shows into the decision.
func (s *state) publish(out *cong.Decision) {
	bound := func(v uint32) uint64 {
		if v == unset {
			return 0
		}
		return uint64(v)
	}
	out.Aux[0] = s.bw | uint64(s.ecn.alpha)<<alphaShift
	out.Aux[1] = min(uint64(s.minRTT/time.Microsecond), 1<<32-1) | bound(s.inflightShortTerm)<<shortTermShift
	out.Aux[2] = uint64(s.mode) | uint64(s.pacingGain)<<pacingGainShift | uint64(s.cwndGain)<<cwndGainShift |
		bound(s.inflightLongTerm)<<longTermShift
}

// Describe formats the algorithm's state in the manner of `ss -tin`. Bounds that are not set are left out.
func Describe(aux [3]uint64, _ *cong.Decision) string {
	name := "?"
	if i := aux[2] & (1<<pacingGainShift - 1); i < uint64(len(modeNames)) {
		name = modeNames[i]
	}
	text := fmt.Sprintf("bbr3:(bw:%dbps,mrtt:%s,pacing_gain:%s,cwnd_gain:%s,mode:%s", aux[0]&maxBW*8,
		decimal(aux[1]&(1<<32-1), 1000), decimal(aux[2]>>pacingGainShift&gainMask, percent),
		decimal(aux[2]>>cwndGainShift&gainMask, percent), name)
	if v := aux[2] >> longTermShift; v != 0 {
		text += fmt.Sprintf(",inflight_longterm:%d", v)
	}
	if v := aux[1] >> shortTermShift; v != 0 {
		text += fmt.Sprintf(",inflight_shortterm:%d", v)
	}
	if v := aux[0] >> alphaShift; v != 0 {
		text += ",ecn_alpha:" + decimal(v, alphaUnit)
	}
	return text + ")"
}

// decimal formats n/den with up to three decimals, trailing zeros cut off.
func decimal(n, den uint64) string {
	const scale = 1000
	return strconv.FormatFloat(float64((n*scale+den/2)/den)/scale, 'f', -1, 64)
}

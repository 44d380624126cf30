package bbr3

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// minRTT is the state of the minimum-RTT filter and of PROBE_RTT.
type minRTT struct {
	stamp        plugins.Time  // of state.minRTT
	probeDelay   time.Duration // probe_rtt_min_delay: least since the last PROBE_RTT
	probeStamp   plugins.Time
	probeExpired bool
	doneStamp    plugins.Time // PROBE_RTT ends then; 0: what is in flight has not fallen far enough yet
	roundDone    bool
}

// updateMinRTT is BBRUpdateMinRTT.
func (m *module) updateMinRTT(s *state, in *cong.Sample) {
	r := &s.rtt
	r.probeExpired = in.Now > r.probeStamp.Add(m.probeRTTInterval)
	if in.Has(cong.FlagRTTValid) && in.RTT > 0 && (r.probeDelay == 0 || in.RTT < r.probeDelay || r.probeExpired && !in.Has(cong.FlagAckDelayed)) {
		r.probeDelay, r.probeStamp = in.RTT, in.Now
	}
	if r.probeDelay > 0 && (s.minRTT == 0 || r.probeDelay < s.minRTT || in.Now > r.stamp.Add(m.minRTTWin)) {
		s.minRTT, r.stamp = r.probeDelay, r.probeStamp
	}
}

// checkProbeRTT is BBRCheckProbeRTT.
func (m *module) checkProbeRTT(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if s.mode != probeRTT && s.rtt.probeExpired && !s.idleRestart {
		s.saveCwnd(out)
		s.mode, s.pacingGain, s.cwndGain = probeRTT, percent, m.probeRTTGain
		s.rtt.doneStamp = 0
		s.ackPhase = acksProbeStopping
		s.startRound(in)
	}
	if s.mode == probeRTT {
		m.runProbeRTT(s, in, out, mss)
	}
	if in.Acked > 0 { // restart after idle ends with the first data acknowledged
		s.idleRestart = false
	}
}

func (m *module) runProbeRTT(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	out.Flags |= cong.MarkAppLimited // the low rate of this mode is our own doing
	if s.rtt.doneStamp == 0 {
		if in.InFlight <= m.probeRTTCwnd(s, mss) {
			s.rtt.doneStamp = in.Now.Add(m.probeRTT)
			s.rtt.roundDone = false
			s.startRound(in)
		}
		return
	}
	s.rtt.roundDone = s.rtt.roundDone || s.roundStart
	if s.rtt.roundDone {
		m.checkProbeRTTDone(s, in, out)
	}
}

func (m *module) checkProbeRTTDone(s *state, in *cong.Sample, out *cong.Decision) {
	if s.rtt.doneStamp == 0 || in.Now <= s.rtt.doneStamp {
		return
	}
	s.rtt.probeStamp = in.Now // wait an interval until the next PROBE_RTT
	out.Cwnd = max(out.Cwnd, s.priorCwnd)
	s.resetShortTerm()
	if !s.full.reached {
		m.enterStartup(s)
		return
	}
	m.startDown(s, in)
	m.startCruise(s)
}

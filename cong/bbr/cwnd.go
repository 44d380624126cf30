package bbr

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
)

const (
	minTSORate = 150_000  // bytes/s (1.2 Mbit/s): below it one segment per burst
	maxTSO     = 64 << 10 // bytes per burst
	maxTSOSegs = 127
)

// tsoSegs is the size of a burst in segments: 1 ms worth of the pacing rate.
func tsoSegs(rate uint64, mss uint32) uint32 {
	least := uint32(2)
	if rate < minTSORate {
		least = 1
	}
	return min(max(uint32(min(rate>>10, maxTSO))/mss, least), maxTSOSegs)
}

// bdp is gain times the product of bandwidth and minimum RTT, rounded up to segments, in bytes; the initial window before
// the RTT is known.
func (m *module) bdp(s *state, bw uint64, gain, mss uint32) uint32 {
	if s.minRTT <= 0 {
		return initCwndSegs * mss
	}
	bytes := cong.MulDiv(bw*uint64(gain), uint64(s.minRTT), unit*uint64(time.Second))
	return roundUp(min(bytes, window.Max), mss)
}

func roundUp(bytes uint64, mss uint32) uint32 {
	return uint32((bytes + uint64(mss) - 1) / uint64(mss) * uint64(mss))
}

// quantize leaves room for the three bursts that are in the making at both ends and below TCP, makes the number of segments
// even against delayed acknowledgements, and lets the probing phase always probe, even where the BDP is small.
func (m *module) quantize(s *state, out *cong.Decision, bytes, mss uint32) uint32 {
	segs := bytes/mss + 3*tsoSegs(out.Rate, mss)
	segs = (segs + 1) &^ 1
	if s.mode == probeBW && s.cycle == 0 {
		segs += 2
	}
	return uint32(min(uint64(segs)*uint64(mss), window.Max))
}

// inflight is the quantised volume for a bandwidth and gain.
func (m *module) inflight(s *state, out *cong.Decision, bw uint64, gain, mss uint32) uint32 {
	return m.quantize(s, out, m.bdp(s, bw, gain, mss), mss)
}

func (m *module) setCwnd(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if in.Acked > 0 {
		m.growCwnd(s, in, out, mss)
	}
	if s.mode == probeRTT {
		out.Cwnd = min(out.Cwnd, minCwndSegs*mss)
	}
}

func (m *module) growCwnd(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	cwnd, acked := uint64(out.Cwnd), uint64(in.Acked)
	cwnd = s.recoverOrRestore(in, cwnd, mss)
	if s.conservation {
		// For the first round of recovery send as much as arrives.
		out.Cwnd = uint32(min(max(cwnd, uint64(in.InFlight)+acked), window.Max))
		return
	}
	target := uint64(m.bdp(s, s.bandwidth(), s.cwndGain, mss)) + m.extraCwnd(s)
	target = uint64(m.quantize(s, out, uint32(min(target, window.Max)), mss))
	switch {
	case s.pipeFull:
		cwnd = min(cwnd+acked, target)
	case cwnd < target || in.Delivered < initCwndSegs*uint64(mss):
		cwnd += acked
	}
	out.Cwnd = uint32(min(max(cwnd, minCwndSegs*uint64(mss)), window.Max))
}

// recoverOrRestore takes losses out of the window, conserves packets for the first round of recovery, and restores the window
// when recovery is over.
func (s *state) recoverOrRestore(in *cong.Sample, cwnd uint64, mss uint32) uint64 {
	if in.Lost > 0 {
		cwnd = max(cwnd, uint64(in.Lost)+uint64(mss)) - uint64(in.Lost)
	}
	switch {
	case in.CA == cong.CARecovery && s.prevCA != cong.CARecovery:
		s.conservation = true
		s.nextRoundDelivered = in.Delivered // the round starts now
		cwnd = uint64(in.InFlight) + uint64(in.Acked)
	case s.prevCA >= cong.CARecovery && in.CA < cong.CARecovery:
		cwnd = max(cwnd, uint64(s.priorCwnd))
		s.conservation = false
	}
	s.prevCA = in.CA
	return cwnd
}

package bbr3

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
)

const (
	maxQuantum = 64 << 10 // bytes per burst
	quanta     = 3        // bursts that are in the making at both ends and below TCP
)

// initRate paces by window and RTT, 1 ms if that is not known yet, until there is a bandwidth.
func (m *module) initRate(s *state, in *cong.Sample, out *cong.Decision) {
	rtt := time.Millisecond
	if in.SRTT > 0 {
		rtt = in.SRTT
		s.hasRTT = true
	}
	bw := min(cong.MulDiv(uint64(out.Cwnd), uint64(time.Second), uint64(rtt)), maxBW)
	out.Rate = max(bw*uint64(m.startupGain)/percent, 1)
}

// setRate paces at gain times the bandwidth, a margin below it; before the pipe is full the rate only rises.
func (m *module) setRate(s *state, out *cong.Decision, gain uint32) {
	rate := max(cong.MulDiv(s.bw*uint64(gain), m.marginPercent, percent*percent), 1)
	if s.full.reached || rate > out.Rate {
		out.Rate = rate
	}
}

// quantum is BBRSetSendQuantum: 1 ms worth of the pacing rate.
func quantum(rate uint64, mss uint32) uint32 {
	return min(max(uint32(min(rate/1000, maxQuantum)), 2*mss), max(maxQuantum, mss))
}

// bdp is gain times the product of bandwidth and minimum RTT; the initial window before the RTT is known.
func (m *module) bdp(s *state, bw uint64, gain, mss uint32) uint32 {
	if s.minRTT <= 0 {
		return window.Initial(mss)
	}
	return uint32(min(cong.MulDiv(bw*uint64(gain), uint64(s.minRTT), percent*uint64(time.Second)), window.Max))
}

// quantize is BBRQuantizationBudget: room for the bursts in the making and for acknowledgements that are delayed.
func (m *module) quantize(s *state, out *cong.Decision, bytes uint64, mss uint32) uint32 {
	bytes = max(bytes, uint64(quanta*quantum(out.Rate, mss)), uint64(minPipeSegs*mss))
	if s.mode == up {
		bytes += 2 * uint64(mss)
	}
	return uint32(min(bytes, window.Max))
}

// inflight is BBRInflight: the quantised volume for a bandwidth and gain.
func (m *module) inflight(s *state, out *cong.Decision, bw uint64, gain, mss uint32) uint32 {
	return m.quantize(s, out, uint64(m.bdp(s, bw, gain, mss)), mss)
}

func (m *module) targetInflight(s *state, out *cong.Decision, mss uint32) uint32 {
	return min(m.bdp(s, s.bw, percent, mss), out.Cwnd)
}

// inflightWithHeadroom is what a flow that does not probe holds, so that others find room.
func (m *module) inflightWithHeadroom(s *state, mss uint32) uint32 {
	if s.inflightLongTerm == unset {
		return unset
	}
	room := max(mss, uint32(uint64(s.inflightLongTerm)*m.headroom/percent))
	return max(s.inflightLongTerm-min(s.inflightLongTerm, room), minPipeSegs*mss)
}

func (m *module) probeRTTCwnd(s *state, mss uint32) uint32 {
	return max(m.bdp(s, s.bw, m.probeRTTGain, mss), minPipeSegs*mss)
}

// setCwnd is BBRSetCwnd.
func (m *module) setCwnd(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	limit := uint64(m.quantize(s, out, uint64(m.bdp(s, s.bw, s.cwndGain, mss))+uint64(s.extra.max()), mss))
	cwnd := uint64(out.Cwnd)
	switch {
	case s.full.reached:
		cwnd = min(cwnd+uint64(in.Acked), limit)
	case cwnd < limit || in.Delivered < s.initialEnd:
		cwnd += uint64(in.Acked)
	}
	floor := minPipeSegs * mss
	out.Cwnd = max(uint32(min(cwnd, window.Max)), floor)
	if s.mode == probeRTT {
		out.Cwnd = min(out.Cwnd, m.probeRTTCwnd(s, mss))
	}
	out.Cwnd = min(out.Cwnd, max(m.modelBound(s, mss), floor))
}

// modelBound is the cap of BBRBoundCwndForModel.
func (m *module) modelBound(s *state, mss uint32) uint32 {
	bound := uint32(unset)
	switch s.mode {
	case down, refill, up:
		bound = s.inflightLongTerm
	case cruise, probeRTT:
		bound = m.inflightWithHeadroom(s, mss)
	}
	return min(bound, s.inflightShortTerm)
}

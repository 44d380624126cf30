// Package window holds what the window-based algorithms (reno, cubic, cdg) share: the bounds of a window, when the engine's
// congestion state calls for a reduction and when the reduction is over, undo, when a window may grow and by how much, and
// what becomes of a window that is not used.
package window

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Max is the largest window, as RFC 7323 bounds it (2^30 bytes).
const Max = 1 << 30

// MSS returns the sample's segment size, made safe to divide by and to multiply with.
func MSS(in *cong.Sample) uint32 { return min(max(in.MSS, 1), 1<<16) }

// Initial is the initial window (RFC 6928, 2).
func Initial(mss uint32) uint32 { return min(10*mss, max(2*mss, 14600)) }

// Clamp holds a decision within [1 MSS, Max] and its threshold within [2 MSS, Max] or infinite.
func Clamp(out *cong.Decision, mss uint32) {
	out.Cwnd = min(max(out.Cwnd, mss), Max)
	if out.Ssthresh != cong.InfiniteSsthresh {
		out.Ssthresh = min(max(out.Ssthresh, 2*mss), Max)
	}
}

// RoundEnd returns the count of delivered bytes at which all that is in flight now has been delivered: the end of a
// round trip, without a look at sequence numbers.
func RoundEnd(in *cong.Sample) uint64 { return in.Delivered + uint64(in.InFlight) }

// Flow is the state that every window-based algorithm keeps.
type Flow struct {
	cutting bool  // CWR or Recovery: the engine reduces to after
	ca      uint8 // the engine's state at the last sample
	after   uint32
	held    uint32 // delivered in Disorder, not credited yet
	flight  uint32 // in flight when Disorder began; 0 outside
	counter uint64 // bytes acknowledged since the last step of congestion avoidance

	priorCwnd, priorSsthresh uint32 // before the last reduction; 0: none

	used      uint32 // most in flight since limitedAt
	limitedAt plugins.Time
	lastSend  plugins.Time
	rttvar    time.Duration
}

// Join starts or resumes a flow.
func (f *Flow) Join(in *cong.Sample, out *cong.Decision) {
	*f = Flow{ca: in.CA, limitedAt: in.Now, lastSend: in.Now, rttvar: in.SRTT / 2}
	if in.CA == cong.CACWR || in.CA == cong.CARecovery {
		f.cutting = true
		f.after = min(out.Ssthresh, Max)
		if out.Ssthresh == cong.InfiniteSsthresh {
			f.after = out.Cwnd
		}
	}
	if in.Kind == cong.KindResume && out.Ssthresh != cong.InfiniteSsthresh && !f.cutting {
		out.Cwnd = min(out.Cwnd, used(in, out.Cwnd))
	}
	out.Flags |= cong.WantsPRR
}

// used is the part of a live flow's window that it uses: the algorithm before may have paced and let the window lie above
// (BBR's is twice the path's product). To fill all of it at once would make a queue that was not there.
func used(in *cong.Sample, cwnd uint32) uint32 {
	rate := SnapshotRate(in)
	if rate == 0 || in.SRTT <= 0 || in.Has(cong.FlagAppLimited) {
		return cwnd
	}
	pipe := cong.MulDiv(rate, uint64(in.SRTT), uint64(time.Second))
	return uint32(min(max(pipe, uint64(in.InFlight)), Max))
}

// SnapshotRate is the last delivery rate in a sample of KindResume in bytes per second, 0 if there is none.
func SnapshotRate(in *cong.Sample) uint64 {
	if in.Interval <= 0 || in.Delivered <= in.PriorDelivered {
		return 0
	}
	return cong.MulDiv(in.Delivered-in.PriorDelivered, uint64(time.Second), uint64(in.Interval))
}

// Step tells what a sample of KindAck asks of the window, in this order.
type Step struct {
	Undo   bool // the last reduction was spurious
	Reduce bool // one reduction
	Exit   bool // the engine has finished a reduction
	Grow   bool // the window may grow, if it is used
}

// Observe takes in a sample of KindAck.
func (f *Flow) Observe(in *cong.Sample) (s Step) {
	prev := f.ca
	f.ca = in.CA
	switch {
	case in.CA == cong.CAOpen:
		f.flight = 0
	case in.CA == cong.CADisorder && prev == cong.CAOpen:
		f.flight = in.PriorInFlight
	}
	if in.Has(cong.FlagRTTValid) && in.SRTT > 0 {
		f.rttvar += ((in.RTT - in.SRTT).Abs() - f.rttvar) / 4 // RFC 6298, 2.3
	}
	if in.Has(cong.FlagRateValid) {
		f.lastSend = max(f.lastSend, in.SendTime)
	}
	s.Undo = in.Has(cong.FlagUndo)
	entered := in.Has(cong.FlagEnter) || reducing(in.CA) && !f.cutting
	// One reaction per window of data: a loss found while a CWR is under way is part of the same congestion (RFC 3168, 6.1.2).
	again := prev == cong.CACWR && in.CA == cong.CARecovery && !in.Has(cong.FlagExit)
	s.Reduce = entered && in.CA != cong.CALoss && !again
	s.Exit = (f.cutting || s.Reduce) && !reducing(in.CA) && in.CA != cong.CALoss
	s.Grow = !s.Undo && !s.Reduce && !s.Exit && !reducing(in.CA)
	return s
}

func reducing(ca uint8) bool { return ca == cong.CACWR || ca == cong.CARecovery }

// Timeout takes in a sample of KindTimeout and tells whether it calls for a new threshold: once per episode (RFC 5681, 3.1).
func (f *Flow) Timeout(in *cong.Sample, out *cong.Decision) bool {
	first := f.ca != cong.CALoss || in.Has(cong.FlagEnter)
	f.ca, f.cutting = cong.CALoss, false
	if first {
		f.save(out)
	}
	return first
}

// FlightSize is what RFC 5681, 3.1, equation (4) halves: what was outstanding when the first segment arrived out
// of order. What is in flight at the moment of the reduction is less, by what was SACKed since; what limited transmit sent for that
// does not count (RFC 3042, 2). More than the window it cannot be. After a timeout within recovery, where the samples leave out what
// was marked lost, it is the window that recovery had set.
func (f *Flow) FlightSize(in *cong.Sample, out *cong.Decision) uint32 {
	if in.Kind == cong.KindTimeout && f.cutting {
		return out.Cwnd
	}
	return min(max(in.PriorInFlight, in.InFlight, f.flight), out.Cwnd)
}

// Cut starts a reduction to a window of after bytes; the engine gets there by proportional rate reduction.
func (f *Flow) Cut(out *cong.Decision, ssthresh, after uint32) {
	f.save(out)
	f.cutting, f.after = true, after
	out.Ssthresh, out.Cwnd = ssthresh, after
}

func (f *Flow) save(out *cong.Decision) {
	f.priorCwnd, f.priorSsthresh = out.Cwnd, out.Ssthresh
	f.counter, f.held, f.flight = 0, 0, 0
}

// Finish ends a reduction: the window is what the reduction aimed at.
func (f *Flow) Finish(out *cong.Decision) {
	if f.cutting {
		f.cutting = false
		out.Cwnd = f.after
	}
}

// Undo restores window and threshold to what they were before the last reduction, if that is larger. It tells whether there
// was one to undo.
func (f *Flow) Undo(out *cong.Decision) bool {
	if f.priorCwnd == 0 {
		return false
	}
	out.Cwnd = max(out.Cwnd, f.priorCwnd)
	out.Ssthresh = max(out.Ssthresh, f.priorSsthresh)
	f.after = out.Cwnd
	f.priorCwnd = 0
	return true
}

// Limited tells whether the window held the flow back: it was used up or, in slow start, more than half used.
func Limited(in *cong.Sample, out *cong.Decision) bool {
	return in.Flags&cong.FlagCwndLimited != 0 ||
		out.Cwnd < out.Ssthresh && uint64(out.Cwnd) < 2*uint64(in.PriorInFlight)
}

// Credit returns the bytes for which the window may grow now. What is delivered out of order changes nothing at first
// (RFC 3042, 2), but counts once the order is restored, or once a full window came that way without a loss: that is a path
// that reorders.
func (f *Flow) Credit(in *cong.Sample, out *cong.Decision) uint32 {
	if f.held == 0 && in.CA != cong.CADisorder {
		return in.Acked
	}
	acked := uint32(min(uint64(f.held)+uint64(in.Acked), Max))
	if in.CA == cong.CADisorder && acked < out.Cwnd {
		f.held = acked
		return 0
	}
	f.held = 0
	return acked
}

// SlowStart grows the window up to ssthresh and returns what of acked is left. A Sample may cover many acknowledgements, so
// the rule is the byte-counting one of RFC 3465 without a limit per acknowledgement; the engine paces.
func SlowStart(out *cong.Decision, acked uint32) uint32 {
	n := min(acked, out.Ssthresh-out.Cwnd, Max-min(out.Cwnd, Max))
	out.Cwnd += n
	return acked - n
}

// Grow is the growth of RFC 5681, 3.1, for a sample that may grow the window: slow start up to ssthresh, then congestion avoidance, if the
// window held the flow back. idle says that a window that is not used decays.
func (f *Flow) Grow(in *cong.Sample, out *cong.Decision, idle bool, mss uint32) {
	limited := Limited(in, out)
	if idle {
		f.Validate(in, out, limited, mss)
	}
	acked := f.Credit(in, out)
	if !limited || acked == 0 {
		return
	}
	if out.Cwnd < out.Ssthresh {
		if acked = SlowStart(out, acked); acked == 0 {
			return
		}
	}
	f.Avoid(out, acked, mss)
}

// Avoid grows the window by one segment per window of acknowledged bytes (RFC 5681, 3.1; RFC 3465, 2.1).
func (f *Flow) Avoid(out *cong.Decision, acked, mss uint32) {
	f.counter += uint64(acked)
	w := uint64(out.Cwnd)
	if f.counter < w {
		return
	}
	n := uint64(1)
	if f.counter >= 2*w {
		n = f.counter / w
	}
	f.counter -= n * w
	out.Cwnd = uint32(min(w+n*uint64(mss), Max))
}

package window

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
)

// minVar is the floor under the variance term of the retransmission timeout.
const minVar = 200 * time.Millisecond

// rto estimates the engine's retransmission timeout; 1 s before the first RTT sample (RFC 6298, 2.1).
func (f *Flow) rto(in *cong.Sample) time.Duration {
	if in.SRTT <= 0 {
		return time.Second
	}
	return in.SRTT + max(4*f.rttvar, minVar)
}

// Restart takes in a sample of KindRestart. After an idle time of more than a retransmission timeout the window is halved
// for each timeout that passed, down to the initial window (RFC 2861, 3.2; RFC 5681, 4.1). It tells whether that was so.
func (f *Flow) Restart(in *cong.Sample, out *cong.Decision, mss uint32) bool {
	idle, rto := in.Now.Sub(f.lastSend), f.rto(in)
	f.used, f.limitedAt = 0, in.Now
	f.lastSend = max(f.lastSend, in.Now)
	if idle <= rto {
		return false
	}
	rememberThreshold(out)
	floor := min(Initial(mss), out.Cwnd)
	out.Cwnd = max(out.Cwnd>>min(uint64((idle-1)/rto), 31), floor)
	return true
}

// Validate lets a window decay that the application has not used for a retransmission timeout: half way down to what was
// used, but not below the initial window (RFC 2861, 3.2). It is for samples of KindAck that may grow the window.
func (f *Flow) Validate(in *cong.Sample, out *cong.Decision, limited bool, mss uint32) {
	if limited || !in.Has(cong.FlagAppLimited) || in.CA != cong.CAOpen {
		f.used, f.limitedAt = 0, in.Now
		return
	}
	f.used = max(f.used, in.PriorInFlight)
	if in.Now.Sub(f.limitedAt) < f.rto(in) {
		return
	}
	if used := max(f.used, Initial(mss)); used < out.Cwnd {
		rememberThreshold(out)
		out.Cwnd = (out.Cwnd + used) / 2
	}
	f.used, f.limitedAt = 0, in.Now
}

// rememberThreshold keeps three quarters of a window that is given up as the threshold, so that it is regained quickly.
func rememberThreshold(out *cong.Decision) {
	out.Ssthresh = max(out.Ssthresh, out.Cwnd/4*3)
}

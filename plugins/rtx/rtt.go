package rtx

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// estimator holds SRTT and RTO (RFC 6298, in the variant of Linux: the mean deviation is bounded from below by rto_min, decays once
// per round trip, and rises slowly when the RTT falls). All in ns.
type estimator struct {
	srtt8   int64 // 8·SRTT; 0: no sample
	mdev4   int64 // 4·mean deviation
	mdevMax int64 // largest mdev4 of the present round trip, at least rto_min
	rttvar  int64 // the variance term of the RTO
	seq     uint32
	backoff uint8 // the RTO is doubled so often
	initial uint8 // RTO without a sample, in multiples of rto_init
}

// sample takes a round-trip time. una and nxt are SND.UNA and SND.NXT: they delimit round trips.
func (e *estimator) sample(cfg *config, rtt int64, una, nxt uint32) {
	e.backoff = 0
	m := plausibleRTT(rtt)
	if e.srtt8 == 0 {
		e.srtt8 = m << 3
		e.mdev4 = m << 1
		e.rttvar = max(e.mdev4, int64(cfg.rtoMin))
		e.mdevMax = e.rttvar
		e.seq = nxt
		return
	}
	m -= e.srtt8 >> 3
	e.srtt8 = max(e.srtt8+m, 1)
	if m < 0 {
		m = -m - e.mdev4>>2
		if m > 0 { // a falling RTT must not raise the RTO much
			m >>= 3
		}
	} else {
		m -= e.mdev4 >> 2
	}
	e.mdev4 += m
	if e.mdev4 > e.mdevMax {
		e.mdevMax = e.mdev4
		e.rttvar = max(e.rttvar, e.mdevMax)
	}
	if seq.After(una, e.seq) {
		if e.mdevMax < e.rttvar {
			e.rttvar -= (e.rttvar - e.mdevMax) >> 2
		}
		e.seq = nxt
		e.mdevMax = int64(cfg.rtoMin)
	}
}

// plausibleRTT bounds a sample, so that sums of it stay within int64 whatever times are told: 1 ns to 13 days.
func plausibleRTT(rtt int64) int64 { return min(max(rtt, 1), 1<<50) }

func (e *estimator) srtt() int64 { return e.srtt8 >> 3 }

// rto is the present retransmission timeout, back-off included.
func (e *estimator) rto(cfg *config) time.Duration {
	rto := int64(cfg.rtoInit) * int64(e.initial)
	if e.srtt8 != 0 {
		rto = e.srtt() + e.rttvar
	}
	rto = min(rto, int64(cfg.rtoMax))
	if e.backoff >= 22 { // 1 ms << 22 is beyond the largest rto_max
		return cfg.rtoMax
	}
	return time.Duration(min(rto<<e.backoff, int64(cfg.rtoMax)))
}

// minFilter is Kathleen Nichols' windowed minimum (Linux lib/win_minmax.c): the best value of the window, and the best of its later
// parts to fall back to. Times are in ticks of 2^24 ns, so that they wrap after two years only.
type minFilter struct {
	v [3]int64
	t [3]uint32
}

const minFilterShift = 24

// get returns the minimum; 0 if there is no sample.
func (f *minFilter) get() int64 { return f.v[0] }

func (f *minFilter) put(i int, t uint32, v int64) { f.t[i], f.v[i] = t, v }

// update takes sample v, at least 1, at time now. window is in ticks.
func (f *minFilter) update(window uint32, now plugins.Time, v int64) {
	t := uint32(now >> minFilterShift)
	switch {
	case f.v[0] == 0 || v <= f.v[0] || t-f.t[2] > window:
		f.put(0, t, v)
		f.put(1, t, v)
		f.put(2, t, v)
		return
	case v <= f.v[1]:
		f.put(1, t, v)
		f.put(2, t, v)
	case v <= f.v[2]:
		f.put(2, t, v)
	}
	switch dt := t - f.t[0]; {
	case dt > window:
		f.shift(t, v)
		if t-f.t[0] > window {
			f.shift(t, v)
		}
	case f.t[1] == f.t[0] && dt > window/4:
		f.put(1, t, v)
		f.put(2, t, v)
	case f.t[2] == f.t[1] && dt > window/2:
		f.put(2, t, v)
	}
}

// shift drops the best value, whose time is over.
func (f *minFilter) shift(t uint32, v int64) {
	f.put(0, f.t[1], f.v[1])
	f.put(1, f.t[2], f.v[2])
	f.put(2, t, v)
}

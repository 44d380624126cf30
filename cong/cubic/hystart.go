package cubic

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
)

// Constants of RFC 9406, 4.3.
const (
	minRTTThresh     = 4 * time.Millisecond
	maxRTTThresh     = 16 * time.Millisecond
	minRTTDivisor    = 8
	rttSamples       = 8
	cssGrowthDivisor = 4
	cssRounds        = 5
)

// hystart is HyStart++: slow start that slows down to a quarter of its growth (conservative slow start, CSS) when the RTT
// rises, and ends if that was not a fluke (RFC 9406, 4.2). It is for the initial slow start only.
type hystart struct {
	css      bool
	rounds   uint8 // of CSS
	samples  uint8 // RTT samples in this round
	end      uint64
	curMin   time.Duration // 0: none yet, the RFC's infinity
	lastMin  time.Duration
	baseline time.Duration
	part     uint32 // bytes acknowledged in CSS that have not made a byte of growth yet
}

func (h *hystart) open(in *cong.Sample) { *h = hystart{end: window.RoundEnd(in)} }

// grow takes in acked bytes, of which limit count.
func (h *hystart) grow(in *cong.Sample, out *cong.Decision, acked, limit uint32) {
	n := min(acked, limit)
	if h.css {
		n, h.part = (n+h.part)/cssGrowthDivisor, (n+h.part)%cssGrowthDivisor
	}
	window.SlowStart(out, n)
	if in.Has(cong.FlagRTTValid) && in.RTT > 0 {
		h.sample(in.RTT)
	}
	if in.Delivered >= h.end {
		h.round(in, out)
	}
}

func (h *hystart) sample(rtt time.Duration) {
	if h.curMin == 0 || rtt < h.curMin {
		h.curMin = rtt
	}
	if h.samples < rttSamples {
		h.samples++
	}
	if h.samples < rttSamples {
		return
	}
	if h.css {
		if h.curMin < h.baseline { // the rise was a fluke
			h.css, h.baseline = false, 0
		}
		return
	}
	if h.lastMin == 0 {
		return
	}
	thresh := max(minRTTThresh, min(h.lastMin/minRTTDivisor, maxRTTThresh))
	if h.curMin >= h.lastMin+thresh {
		h.css, h.rounds, h.part, h.baseline = true, 0, 0, h.curMin
	}
}

// round starts a new round.
func (h *hystart) round(in *cong.Sample, out *cong.Decision) {
	h.end = window.RoundEnd(in)
	h.lastMin, h.curMin, h.samples = h.curMin, 0, 0
	if !h.css {
		return
	}
	if h.rounds++; h.rounds >= cssRounds { // the first, partial one counts
		out.Ssthresh = out.Cwnd
		h.css = false
	}
}

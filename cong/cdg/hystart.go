package cdg

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const (
	minDelay     = 125  // µs
	pacedSlack   = 1000 // µs
	trainGap     = 3000 * time.Microsecond
	startSamples = 8
)

// hystart finds the end of slow start before a loss does: by the length of a train of acknowledgements, and by the rise of
// the round's minimum RTT.
type hystart struct {
	delayMin uint32       // least RTT seen, µs
	lastAck  plugins.Time // 0: no train
	began    plugins.Time // the train
	samples  uint8
}

func (m *module) updateHystart(s *state, in *cong.Sample, out *cong.Decision, limited bool) {
	h := &s.slow
	if s.rtt.min != 0 && (h.delayMin == 0 || s.rtt.min < h.delayMin) {
		h.delayMin = s.rtt.min
	}
	if h.delayMin == 0 {
		return
	}
	if m.train && h.longTrain(in, limited) || m.delay && h.delayed(s.rtt.min) {
		out.Ssthresh = out.Cwnd
	}
}

// longTrain tells whether closely spaced acknowledgements have been arriving for longer than the path is long one way: then
// what was sent fills it. Pacing spreads a window over the round trip by itself, so a paced flow's train says so only when it
// is longer than that; this is how Linux adapts CUBIC's HyStart, which has the same rule.
func (h *hystart) longTrain(in *cong.Sample, limited bool) bool {
	if h.lastAck == 0 || !limited {
		h.lastAck, h.began = in.Now, in.Now
		return false
	}
	if in.Now >= h.lastAck.Add(trainGap) {
		return false
	}
	h.lastAck = in.Now
	length := max(h.delayMin/2, minDelay)
	if in.Has(cong.FlagPaced) {
		length = h.delayMin + pacedSlack
	}
	return in.Now > h.began.Add(time.Duration(length)*time.Microsecond)
}

// delayed tells whether the round's minimum RTT lies an eighth above the least. The first samples of a round only count.
func (h *hystart) delayed(roundMin uint32) bool {
	if h.samples < startSamples {
		h.samples++
		return false
	}
	return roundMin > max(h.delayMin+h.delayMin/8, minDelay)
}

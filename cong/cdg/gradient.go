package cdg

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
)

// gradient is a change of the RTT's minimum and maximum from one round to the next, or a sum of such, in µs.
type gradient struct{ min, max int64 }

const (
	maxDelack   = 5
	askRounds   = 8   // how long a back-off is asked for
	effectual   = -32 // µs: a sum as low says that a back-off had an effect
	tolerateGap = 64  // µs: smaller sums are taken as 0 in judging the queue
)

// takeRTT takes an RTT into the round. A lone segment acknowledged where acknowledgements were seen to cover more may have
// been delayed by the receiver: it can only lower the minimum.
func (s *state) takeRTT(rtt uint32, in *cong.Sample, mss uint32) {
	if !in.Has(cong.FlagSacked) {
		if in.Acked <= mss && s.delack > 0 {
			s.rtt.min = min(s.rtt.min, rtt)
			s.delack--
			return
		}
		if in.Acked > mss && s.delack < maxDelack {
			s.delack++
		}
	}
	if s.rtt.min == 0 || rtt < s.rtt.min {
		s.rtt.min = rtt
	}
	s.rtt.max = max(s.rtt.max, rtt)
}

// gradient takes in the round's gradients and returns the sum over the window that matters: the minimum's, unless that does
// not grow. Until the window is full the sum is extrapolated.
func (m *module) gradient(s *state, slot uint32) int64 {
	g := gradient{int64(s.rtt.min) - int64(s.prev.min), int64(s.rtt.max) - int64(s.prev.max)}
	ring := m.ring(slot)
	old := &ring[s.tail]
	s.sum.min += g.min - old.min
	s.sum.max += g.max - old.max
	*old = g
	s.tail = (s.tail + 1) & uint16(m.window-1)

	grad := s.sum.min
	if grad <= 0 {
		grad = s.sum.max
	}
	if !s.filled {
		if s.tail == 0 {
			s.filled = true
		} else {
			grad = grad * int64(m.window) / int64(s.tail)
		}
	}
	if s.sum.min <= effectual || s.sum.max <= effectual {
		s.backoffs = 0
	}
	if m.useTolerance {
		s.judgeQueue()
	}
	return grad
}

// judgeQueue infers the state of the bottleneck's queue: when the minimum still grows but the maximum does not, it is full.
func (s *state) judgeQueue() {
	gmin, gmax := divRound(s.sum.min, tolerateGap), divRound(s.sum.max, tolerateGap)
	switch {
	case gmin > 0 && gmax <= 0:
		s.queue = full
	case gmin > 0 && gmax > 0 || gmax < 0:
		s.queue = nonFull
	}
}

// divRound divides to the nearest, halves away from zero.
func divRound(a, b int64) int64 {
	if a < 0 {
		return (a - b/2) / b
	}
	return (a + b/2) / b
}

// backOff draws whether the gradient causes a reduction: P = 1 - exp(-grad·factor/1e6).
func (m *module) backOff(s *state, in *cong.Sample, out *cong.Decision, grad uint64, mss uint32) bool {
	if s.rand.Uint32() <= negExp(grad*m.factor) {
		return false
	}
	if m.ineff > 0 {
		s.backoffs++
		if s.backoffs > m.ineff {
			return false
		}
	}
	s.shadow = max(s.shadow, out.Cwnd)
	s.queue = backoff
	s.total++
	w := max(uint32(uint64(out.Cwnd)*m.beta>>10), 2*mss)
	s.win.Cut(out, w, w)
	s.asked = askRounds
	s.roundEnd = window.RoundEnd(in)
	return true
}

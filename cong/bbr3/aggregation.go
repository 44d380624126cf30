package bbr3

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const extraBinRounds = 5 // rounds per bin once the pipe is full, 1 before; the larger of two bins counts

// aggregation estimates how far acknowledgements run ahead of the bandwidth when the path delivers them in bursts (Wi-Fi,
// cable, offloads at the receiver), so that the window covers the silence between bursts.
type aggregation struct {
	since plugins.Time // extra_acked_interval_start
	acked uint64       // extra_acked_delivered
	bins  [2]uint32
	bin   uint8
	age   uint8 // rounds in the present bin
}

func (e *aggregation) max() uint32 { return max(e.bins[0], e.bins[1]) }

// updateAggregation is BBRUpdateACKAggregation.
func (m *module) updateAggregation(s *state, in *cong.Sample, out *cong.Decision) {
	e := &s.extra
	if s.roundStart {
		e.age++
		if e.age >= extraBinRounds || !s.full.reached {
			e.age = 0
			e.bin ^= 1
			e.bins[e.bin] = 0
		}
	}
	if in.Acked == 0 {
		return
	}
	expected := cong.MulDiv(s.bw, uint64(max(in.Now.Sub(e.since), 0)), uint64(time.Second))
	// An epoch ends where acknowledgements are no faster than the bandwidth.
	if e.acked <= expected {
		e.since, e.acked, expected = in.Now, 0, 0
	}
	e.acked += uint64(in.Acked)
	e.bins[e.bin] = max(e.bins[e.bin], uint32(min(e.acked-expected, uint64(out.Cwnd))))
}

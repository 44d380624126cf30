package bbr

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const (
	extraBinRounds = 5       // rounds per bin; the larger of two bins counts
	epochMaxSegs   = 1 << 20 // an epoch ends after as many segments
	extraMaxTime   = 100 * time.Millisecond
)

// aggregation estimates how far acknowledgements run ahead of the bandwidth when the path delivers them in bursts (Wi-Fi,
// cable, offloads at the receiver), so that the window covers the silence between bursts.
type aggregation struct {
	since plugins.Time // start of the epoch
	acked uint64       // bytes acknowledged in the epoch
	bins  [2]uint32
	bin   uint8
	age   uint8 // rounds in the present bin
}

func (m *module) updateAggregation(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if m.extraGain == 0 || in.Acked == 0 || !s.rateValid {
		return
	}
	e := &s.extra
	if s.roundStart {
		if e.age++; e.age >= extraBinRounds {
			e.age = 0
			e.bin ^= 1
			e.bins[e.bin] = 0
		}
	}
	expected := cong.MulDiv(s.bandwidth(), uint64(max(s.deliveredAt.Sub(e.since), 0)), uint64(time.Second))
	// An epoch ends where acknowledgements are no faster than the bandwidth.
	if e.acked <= expected || e.acked+uint64(in.Acked) >= epochMaxSegs*uint64(mss) {
		e.since, e.acked, expected = s.deliveredAt, 0, 0
	}
	e.acked += uint64(in.Acked)
	extra := uint32(min(e.acked-expected, uint64(out.Cwnd)))
	e.bins[e.bin] = max(e.bins[e.bin], extra)
}

// extraCwnd is what the window may hold beyond the BDP's multiple.
func (m *module) extraCwnd(s *state) uint64 {
	if m.extraGain == 0 || !s.pipeFull {
		return 0
	}
	extra := uint64(max(s.extra.bins[0], s.extra.bins[1])) * m.extraGain / unit
	return min(extra, cong.MulDiv(s.bandwidth(), uint64(extraMaxTime), uint64(time.Second)))
}

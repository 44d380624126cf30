// Package dctcp is Data Center TCP (RFC 8257): the window is cut by the share of bytes that were marked (ECN), so that a queue
// that marks early stays short while the link stays busy. Losses are answered as Reno does.
//
// DCTCP needs to know how many bytes were marked. Accurate ECN (RFC 9768) tells that; with classic ECN a peer of this stack
// repeats a mark until it is answered (RFC 3168), which makes the share, and so the cut, too large: it is then no better than
// Reno. It is for networks whose switches mark at a low threshold; a share of a queue with other TCPs is not fair.
package dctcp

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/param"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// shownUnit is an alpha of 1 where it is a parameter or shown, as Linux does; alphaUnit the one of the state.
const (
	shownUnit = 1024
	alphaUnit = shownUnit << 10
)

// Info describes the module.
func Info() plugins.Info {
	return plugins.Info{Kind: plugins.Cong, Name: "dctcp", Version: "1.0.0", Needs: []string{plugins.FeatureECN}, Params: []plugins.Param{
		{Name: "shift_g", Type: "uint", Unit: "bits", Default: "4", Doc: "gain of the mean share of marked bytes: 2^-shift_g"},
		{Name: "alpha_on_init", Type: "uint", Unit: "1/1024", Default: "1024", Doc: "share of marked bytes that is assumed at first"},
		{Name: "slow_start_after_idle", Type: "bool", Default: "true",
			Doc: "let a window decay that is idle or unused for a retransmission timeout (RFC 2861)"},
	}}
}

type module struct {
	shift uint
	alpha uint32
	idle  bool
}

type state struct {
	live      bool
	win       window.Flow
	alpha     uint32 // DCTCP.Alpha, of alphaUnit
	acked     uint64 // DCTCP.BytesAcked
	marked    uint64 // DCTCP.BytesMarked
	windowEnd uint64 // DCTCP.WindowEnd, as a count of delivered bytes
}

// New makes a DCTCP module. It draws no random numbers.
func New(p plugins.Params, _ uint64) (cong.Module, error) {
	r := param.Read(Info(), p)
	m := &module{
		shift: uint(r.Uint("shift_g", 1, 10)),
		alpha: uint32(r.Uint("alpha_on_init", 0, shownUnit)) * (alphaUnit / shownUnit),
		idle:  r.Bool("slow_start_after_idle"),
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return cong.Each(m.step), nil
}

func (m *module) step(s *state, in *cong.Sample, out *cong.Decision) {
	mss := window.MSS(in)
	switch {
	case !s.live:
		*s = state{live: true, alpha: m.alpha, windowEnd: window.RoundEnd(in)}
		s.win.Join(in, out)
	case in.Kind == cong.KindAck:
		m.count(s, in)
		m.ack(s, in, out, mss)
	case in.Kind == cong.KindTimeout:
		s.timeout(in, out, mss)
	case in.Kind == cong.KindRestart && m.idle:
		s.win.Restart(in, out, mss)
	}
	window.Clamp(out, mss)
	out.Aux = [3]uint64{uint64(s.alpha / (alphaUnit / shownUnit)), s.marked, s.acked}
}

// count takes the share of marked bytes into alpha once per window (RFC 8257, 3.3). Bytes count when they are delivered, if
// selectively, as their marks do.
func (m *module) count(s *state, in *cong.Sample) {
	s.acked += uint64(in.Acked)
	s.marked += uint64(min(in.Marked, in.Acked))
	if in.Delivered < s.windowEnd || s.acked == 0 {
		return
	}
	share := cong.MulDiv(s.marked, alphaUnit, s.acked)
	s.alpha = uint32(((uint64(s.alpha) << m.shift) - uint64(s.alpha) + share) >> m.shift)
	s.acked, s.marked = 0, 0
	s.windowEnd = window.RoundEnd(in)
}

// reduced is the window after a reduction: by half of alpha for marks (RFC 8257, 3.3), by half of what is in flight for a loss
// (3.4; RFC 5681).
func (s *state) reduced(in *cong.Sample, out *cong.Decision, mss uint32) uint32 {
	w := s.win.FlightSize(in, out) / 2
	if in.CA == cong.CACWR {
		w = uint32(uint64(out.Cwnd) * (2*alphaUnit - uint64(s.alpha)) / (2 * alphaUnit))
	}
	return max(w, 2*mss)
}

func (m *module) ack(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	ev := s.win.Observe(in)
	if ev.Undo {
		s.win.Undo(out)
	}
	if ev.Reduce {
		w := s.reduced(in, out, mss)
		s.win.Cut(out, w, w)
	}
	if ev.Exit {
		s.win.Finish(out)
	}
	if ev.Grow {
		s.win.Grow(in, out, m.idle, mss)
	}
}

func (s *state) timeout(in *cong.Sample, out *cong.Decision, mss uint32) {
	flight := s.win.FlightSize(in, out)
	if s.win.Timeout(in, out) {
		out.Ssthresh = max(flight/2, 2*mss)
	}
	out.Cwnd = mss // the loss window
}

// Describe formats the algorithm's state as `ss -tin` does: alpha in 1/1024, and the bytes marked and acknowledged in this window.
func Describe(aux [3]uint64, _ *cong.Decision) string {
	return fmt.Sprintf("dctcp:(alpha:%d,ab_ecn:%d,ab_tot:%d)", aux[0], aux[1], aux[2])
}

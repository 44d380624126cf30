// Package reno is Reno congestion control: slow start and congestion avoidance (RFC 9293, MUST-19) of RFC 5681 with appropriate byte
// counting (RFC 3465), one reduction per recovery episode (RFC 6582), by proportional rate reduction in the engine (RFC 9937).
package reno

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/param"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Info describes the module.
func Info() plugins.Info {
	return plugins.Info{Kind: plugins.Cong, Name: "reno", Version: "1.0.0", Params: []plugins.Param{
		{Name: "abe", Type: "bool", Default: "false",
			Doc: "reduce to 0.8 instead of 0.5 of the flight when the peer echoes an ECN mark (RFC 8511)"},
		{Name: "slow_start_after_idle", Type: "bool", Default: "true",
			Doc: "let a window decay that is idle or unused for a retransmission timeout (RFC 2861)"},
	}}
}

type module struct {
	abe, idle bool
}

type state struct {
	live bool
	win  window.Flow
}

// New makes a Reno module. It draws no random numbers.
func New(p plugins.Params, _ uint64) (cong.Module, error) {
	r := param.Read(Info(), p)
	m := &module{abe: r.Bool("abe"), idle: r.Bool("slow_start_after_idle")}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return cong.Each(m.step), nil
}

func (m *module) step(s *state, in *cong.Sample, out *cong.Decision) {
	mss := window.MSS(in)
	switch {
	case !s.live:
		s.live = true
		s.win.Join(in, out)
	case in.Kind == cong.KindAck:
		m.ack(s, in, out, mss)
	case in.Kind == cong.KindTimeout:
		m.timeout(s, in, out, mss)
	case in.Kind == cong.KindRestart && m.idle:
		s.win.Restart(in, out, mss)
	}
	window.Clamp(out, mss)
}

func (m *module) ack(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	ev := s.win.Observe(in)
	if ev.Undo {
		s.win.Undo(out)
	}
	if ev.Reduce {
		flight := s.win.FlightSize(in, out)
		w := flight / 2 // RFC 5681, 3.1, equation (4): half the flight, not half the window
		if m.abe && in.CA == cong.CACWR && in.Has(cong.FlagECE) {
			w = uint32(uint64(flight) * 4 / 5) // RFC 8511, 3
		}
		w = max(w, 2*mss)
		s.win.Cut(out, w, w)
	}
	if ev.Exit {
		s.win.Finish(out)
	}
	if ev.Grow {
		s.win.Grow(in, out, m.idle, mss)
	}
}

func (m *module) timeout(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	flight := s.win.FlightSize(in, out)
	if s.win.Timeout(in, out) {
		out.Ssthresh = max(flight/2, 2*mss)
	}
	out.Cwnd = mss // the loss window
}

// Describe formats what `ss -tin` prints: Reno has no state beyond window and threshold.
func Describe(_ [3]uint64, _ *cong.Decision) string { return "reno" }

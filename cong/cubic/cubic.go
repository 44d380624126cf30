// Package cubic is CUBIC congestion control (RFC 9438) with HyStart++ (RFC 9406) in the initial slow start: fast convergence,
// the Reno-friendly region, and undo of spurious reductions. All arithmetic is in integers.
//
// Where the RFC leaves a choice: the reduction is taken from the window, not from the flight, which is safe because the
// window does not grow unless it is used (RFC 9438, 4.6); time in which the application did not use the window does not
// count (RFC 9438, 5.8).
package cubic

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/param"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Info describes the module.
func Info() plugins.Info {
	return plugins.Info{Kind: plugins.Cong, Name: "cubic", Version: "1.0.0", Params: []plugins.Param{
		{Name: "beta", Type: "uint", Unit: "1/1000", Default: "700", Doc: "what a reduction leaves of the window"},
		{Name: "c", Type: "uint", Unit: "1/1000 segment/s³", Default: "400", Doc: "how fast the curve grows"},
		{Name: "fast_convergence", Type: "bool", Default: "true",
			Doc: "give up bandwidth to newer flows when the window was reduced before it was regained (RFC 9438, 4.7)"},
		{Name: "tcp_friendliness", Type: "bool", Default: "true",
			Doc: "be at least as fast as Reno (RFC 9438, 4.3)"},
		{Name: "hystart", Type: "bool", Default: "true",
			Doc: "leave the initial slow start when the RTT rises (RFC 9406)"},
		{Name: "hystart_l", Type: "uint", Unit: "segments", Default: "8",
			Doc: "most growth per sample in the initial slow start if the flow is not paced (RFC 9406, 4.3)"},
		{Name: "slow_start_after_idle", Type: "bool", Default: "true",
			Doc: "let a window decay that is idle or unused for a retransmission timeout (RFC 2861)"},
	}}
}

type module struct {
	beta                    uint64 // 1/1000
	curve                   uint64 // C in 2^-20 segment/s³
	alphaNum, alphaDen      uint64 // Reno-friendly growth per round trip
	fast, friendly, hystart bool
	hystartL                uint32
	idle                    bool
}

// New makes a CUBIC module. It draws no random numbers.
func New(p plugins.Params, _ uint64) (cong.Module, error) {
	r := param.Read(Info(), p)
	m := &module{
		beta:     r.Uint("beta", 100, 950),
		curve:    r.Uint("c", 1, 10_000) << 20 / 1000,
		fast:     r.Bool("fast_convergence"),
		friendly: r.Bool("tcp_friendliness"),
		hystart:  r.Bool("hystart"),
		hystartL: uint32(r.Uint("hystart_l", 1, 1000)),
		idle:     r.Bool("slow_start_after_idle"),
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	// RFC 9438, 4.3: alpha = 3(1-beta)/(1+beta)
	m.alphaNum, m.alphaDen = 3*(1000-m.beta), 1000+m.beta
	return cong.Each(m.step), nil
}

type state struct {
	live  bool
	win   window.Flow
	slow  hystart
	curve curve
	saved curve // before the last reduction
}

func (m *module) step(s *state, in *cong.Sample, out *cong.Decision) {
	mss := window.MSS(in)
	switch {
	case !s.live:
		m.join(s, in, out, mss)
	case in.Kind == cong.KindAck:
		m.ack(s, in, out, mss)
	case in.Kind == cong.KindTimeout:
		m.timeout(s, in, out, mss)
	case in.Kind == cong.KindRestart:
		s.curve.pause(in.Now)
		if m.idle {
			s.win.Restart(in, out, mss)
		}
	}
	window.Clamp(out, mss)
	s.publish(out, mss)
}

// join starts or resumes a flow. The threshold of a live flow tells the window at its last reduction, if another algorithm
// did not set it for another reason; that is where the curve's plateau is put.
func (m *module) join(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	*s = state{live: true}
	s.win.Join(in, out)
	s.slow.open(in)
	s.curve.last = in.Now
	if out.Ssthresh != cong.InfiniteSsthresh && in.CA != cong.CALoss {
		s.curve.wMax = uint32(min(uint64(out.Ssthresh)*1000/m.beta, window.Max))
		s.curve.cwndPrior = s.curve.wMax
	}
}

func (m *module) ack(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	ev := s.win.Observe(in)
	if ev.Undo {
		m.undo(s, out)
	}
	if ev.Reduce {
		m.reduce(s, in, out, mss)
	}
	if ev.Exit {
		s.win.Finish(out)
	}
	if !ev.Grow {
		s.curve.last = in.Now
		return
	}
	limited := window.Limited(in, out)
	if m.idle {
		s.win.Validate(in, out, limited, mss)
	}
	acked := s.win.Credit(in, out)
	if !limited {
		s.curve.pause(in.Now)
	}
	s.curve.last = in.Now
	if !limited {
		acked = 0
	}
	m.grow(s, in, out, acked, mss)
}

func (m *module) grow(s *state, in *cong.Sample, out *cong.Decision, acked, mss uint32) {
	if out.Cwnd < out.Ssthresh {
		if out.Ssthresh == cong.InfiniteSsthresh && m.hystart {
			s.slow.grow(in, out, acked, m.limit(in, mss)) // it wants every RTT sample
			return
		}
		acked = window.SlowStart(out, acked)
	}
	if acked > 0 {
		m.avoid(s, in, out, acked, mss)
	}
}

// limit is L of RFC 9406, 4.3: the most bytes that one acknowledgement counts for.
func (m *module) limit(in *cong.Sample, mss uint32) uint32 {
	if in.Has(cong.FlagPaced) {
		return window.Max
	}
	return m.hystartL * mss
}

// reduce is RFC 9438, 4.6 and 4.7.
func (m *module) reduce(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	s.saved = s.curve
	m.remember(s, out)
	w := uint32(uint64(out.Cwnd) * m.beta / 1000)
	after := max(w, 2*mss)
	if in.CA == cong.CACWR && in.Has(cong.FlagECE) {
		after = max(w, mss) // an echo of marks may go on below two segments
	}
	s.win.Cut(out, max(w, 2*mss), after)
}

// remember notes the window as the one that the path could not carry.
func (m *module) remember(s *state, out *cong.Decision) {
	c := &s.curve
	c.cwndPrior = out.Cwnd
	if m.fast && out.Cwnd < c.wMax {
		c.wMax = uint32(uint64(out.Cwnd) * (1000 + m.beta) / 2000)
	} else {
		c.wMax = out.Cwnd
	}
	c.running = false
	s.slow.css = false
}

// timeout is RFC 9438, 4.8: as Reno, with beta. The congestion avoidance that follows starts a curve of its own.
func (m *module) timeout(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	saved := s.curve
	if s.win.Timeout(in, out) {
		s.saved = saved
		out.Ssthresh = max(uint32(uint64(out.Cwnd)*m.beta/1000), 2*mss)
		s.curve.cwndPrior = out.Cwnd
	}
	s.curve.wMax = 0
	s.curve.running = false
	s.slow.css = false
	out.Cwnd = mss
}

// undo is RFC 9438, 4.9.
func (m *module) undo(s *state, out *cong.Decision) {
	if out.Cwnd < s.curve.cwndPrior && s.win.Undo(out) {
		s.curve = s.saved
	}
}

// publish puts the state that Describe shows into the decision.
func (s *state) publish(out *cong.Decision, mss uint32) {
	out.Aux[0] = uint64(s.curve.wMax) | uint64(mss)<<32
	out.Aux[1] = s.curve.k
	out.Aux[2] = 0
	if s.curve.running {
		out.Aux[2] = uint64(s.curve.last.Sub(s.curve.epoch)) | 1
	}
	if s.slow.css {
		out.Aux[2] |= cssBit
	}
}

const cssBit = 1 << 63

// Describe formats the algorithm's state as `ss -tin` does: w_max in segments, k and the epoch's age in seconds.
func Describe(aux [3]uint64, _ *cong.Decision) string {
	wMax := aux[0] & (1<<32 - 1) / max(aux[0]>>32, 1)
	k := aux[1] * 1000 / ticksPerSecond
	text := fmt.Sprintf("cubic:(w_max:%d,k:%d.%03d", wMax, k/1000, k%1000)
	if epoch := aux[2] &^ cssBit; epoch != 0 {
		text += fmt.Sprintf(",epoch:%d.%03d", epoch/1e9, epoch/1e6%1000)
	}
	if aux[2]&cssBit != 0 {
		text += ",css"
	}
	return text + ")"
}

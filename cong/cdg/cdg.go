// Package cdg is CAIA Delay-Gradient congestion control (D. Hayes, G. Armitage, "Revisiting TCP congestion control using
// delay gradients", Networking 2011), as Linux has it: gradients of the RTT's minimum and maximum over a moving window,
// probabilistic back-off, a shadow window, detection of ineffectual back-offs, loss tolerance as an option, and a HyStart of
// its own on the sample's clock.
//
// A back-off for delay is asked of the engine by EnterCWR. It is asked again with each answer until a sample shows that the
// engine reduces, for some round trips, since an answer may be late, lost or overtaken.
package cdg

import (
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/param"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Info describes the module.
func Info() plugins.Info {
	return plugins.Info{Kind: plugins.Cong, Name: "cdg", Version: "1.0.0", Params: []plugins.Param{
		{Name: "window", Type: "uint", Unit: "round trips", Default: "8",
			Doc: "gradients in the moving average; a power of two up to 256"},
		{Name: "backoff_beta", Type: "uint", Unit: "1/1024", Default: "724", Doc: "what a delay back-off leaves of the window"},
		{Name: "backoff_factor", Type: "uint", Unit: "1/1e6 per µs", Default: "42",
			Doc: "how readily a gradient causes a back-off: 1000/(G·window) with G = 3 ms"},
		{Name: "hystart_detect", Type: "uint", Unit: "mask", Default: "3",
			Doc: "how to find the end of slow start: 1 train of acknowledgements, 2 delay, 3 both, 0 neither"},
		{Name: "use_ineff", Type: "uint", Unit: "back-offs", Default: "5",
			Doc: "after as many back-offs without effect ignore delay until it falls; 0: never"},
		{Name: "use_shadow", Type: "bool", Default: "true",
			Doc: "regain after a loss the window that a loss-based flow would have"},
		{Name: "use_tolerance", Type: "bool", Default: "false",
			Doc: "do not reduce for a loss while the queue seems not full"},
		{Name: "slow_start_after_idle", Type: "bool", Default: "true",
			Doc: "let a window decay that is idle or unused for a retransmission timeout (RFC 2861)"},
	}}
}

type module struct {
	seed                          uint64
	window                        int
	beta                          uint64 // 1/1024
	factor                        uint64
	train, delay                  bool
	ineff                         uint32
	useShadow, useTolerance, idle bool

	// rings holds window gradients for each slot, one after the other.
	rings []gradient
}

// New makes a CDG module. seed feeds the draws for back-offs.
func New(p plugins.Params, seed uint64) (cong.Module, error) {
	m, err := configure(p, seed)
	if err != nil {
		return nil, err
	}
	return cong.Each(m.step), nil
}

func configure(p plugins.Params, seed uint64) (*module, error) {
	r := param.Read(Info(), p)
	m := &module{
		seed:         seed,
		window:       int(r.Uint("window", 1, 256)),
		beta:         r.Uint("backoff_beta", 1, 1024),
		factor:       r.Uint("backoff_factor", 1, 1_000_000),
		ineff:        uint32(r.Uint("use_ineff", 0, 1_000_000)),
		useShadow:    r.Bool("use_shadow"),
		useTolerance: r.Bool("use_tolerance"),
		idle:         r.Bool("slow_start_after_idle"),
	}
	detect := r.Uint("hystart_detect", 0, 3)
	m.train, m.delay = detect&1 != 0, detect&2 != 0
	r.Check(m.window&(m.window-1) == 0, "window", "is not a power of two")
	return m, r.Err()
}

// ring returns the gradients of a slot. It allocates only when a slot is used for the first time.
func (m *module) ring(slot uint32) []gradient {
	end := (int(slot) + 1) * m.window
	if end > len(m.rings) {
		m.rings = append(m.rings, make([]gradient, max(end-len(m.rings), len(m.rings)))...)
	}
	return m.rings[end-m.window : end]
}

type queueState uint8

const (
	unknown queueState = iota
	nonFull
	full
	backoff // in a reduction for delay
)

var queueNames = [...]string{"UNKNOWN", "NONFULL", "FULL", "BACKOFF"}

type state struct {
	live  bool
	win   window.Flow
	rand  rng.Rand
	queue queueState
	asked uint8 // EnterCWR is asked for and not seen to have happened: round trips left to ask in

	rtt, prev span   // of this round and of the one before, µs
	roundEnd  uint64 // delivered bytes
	delack    uint8  // how much evidence there is of delayed acknowledgements, up to 5
	sum       gradient
	tail      uint16
	filled    bool
	foreign   bool // this round's RTTs are of what another algorithm sent

	shadow   uint32 // bytes
	backoffs uint32 // in a row without effect
	total    uint32 // back-offs ever
	slow     hystart
}

// span is the least and the largest RTT of a round in µs; 0: none.
type span struct{ min, max uint32 }

func (m *module) step(s *state, in *cong.Sample, out *cong.Decision) {
	mss := window.MSS(in)
	switch {
	case !s.live:
		s.win.Join(in, out)
		s.live = true
		s.rand = rng.New(m.seed, in.Flow)
		m.fresh(s, in, out)
		s.foreign = in.Kind != cong.KindOpen
	case in.Kind == cong.KindAck:
		m.ack(s, in, out, mss)
	case in.Kind == cong.KindTimeout:
		m.timeout(s, in, out, mss)
	case in.Kind == cong.KindRestart:
		if m.idle && s.win.Restart(in, out, mss) {
			m.fresh(s, in, out)
		}
	}
	if s.asked > 0 {
		out.Flags |= cong.EnterCWR
	}
	window.Clamp(out, mss)
	s.publish(out)
}

// fresh forgets all that was learnt of the path.
func (m *module) fresh(s *state, in *cong.Sample, out *cong.Decision) {
	*s = state{live: true, win: s.win, rand: s.rand, total: s.total}
	s.roundEnd = window.RoundEnd(in)
	s.shadow = out.Cwnd
	clear(m.ring(in.Flow.Slot))
}

func (m *module) ack(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	if in.Has(cong.FlagRTTValid) && in.RTT > 0 {
		s.takeRTT(micros(in.RTT), in, mss)
	}
	ev := s.win.Observe(in)
	if ev.Undo {
		s.win.Undo(out)
	}
	if s.asked > 0 {
		if s.settle(in) {
			ev.Reduce = false // it is the reduction that was asked for
		} else if s.asked > 0 {
			return
		}
	}
	if ev.Reduce {
		m.loss(s, out, mss)
	}
	if ev.Exit {
		s.win.Finish(out)
		s.completeCWR(in)
	}
	if ev.Grow {
		m.avoid(s, in, out, mss)
	}
}

// settle tells whether the engine has begun the reduction that was asked of it, and stops asking when it has, or when round
// trips have passed in vain.
func (s *state) settle(in *cong.Sample) bool {
	begun := in.CA == cong.CACWR || in.CA == cong.CARecovery || in.Has(cong.FlagEnter)
	switch {
	case begun || in.CA == cong.CALoss:
		s.asked = 0
	case in.Delivered > s.roundEnd:
		s.asked--
		s.roundEnd = window.RoundEnd(in)
	}
	return begun
}

// completeCWR skips the gradients of the reduction.
func (s *state) completeCWR(in *cong.Sample) {
	s.queue = unknown
	s.roundEnd = window.RoundEnd(in)
	s.prev, s.rtt = s.rtt, span{}
}

// avoid is called for acknowledgements outside of reductions.
func (m *module) avoid(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	limited := window.Limited(in, out)
	if m.idle {
		s.win.Validate(in, out, limited, mss)
	}
	acked := s.win.Credit(in, out)
	if out.Cwnd < out.Ssthresh && (m.train || m.delay) {
		m.updateHystart(s, in, out, limited)
	}
	if in.Delivered > s.roundEnd && s.rtt != (span{}) {
		grad := m.endRound(s, in)
		if grad > 0 && in.CA < cong.CACWR && m.backOff(s, in, out, uint64(grad), mss) {
			return
		}
	}
	if !limited {
		s.shadow = min(s.shadow, out.Cwnd)
		return
	}
	before := out.Cwnd
	if acked > 0 && out.Cwnd < out.Ssthresh {
		acked = window.SlowStart(out, acked)
	}
	if acked > 0 {
		s.win.Avoid(out, acked, mss)
	}
	s.shadow = min(s.shadow+(out.Cwnd-before), window.Max)
}

// endRound starts a new round trip and returns the gradient of the one that ended, 0 if there was none before.
func (m *module) endRound(s *state, in *cong.Sample) int64 {
	var grad int64
	if s.prev != (span{}) {
		grad = m.gradient(s, in.Flow.Slot)
	}
	s.roundEnd = window.RoundEnd(in)
	s.prev, s.rtt = s.rtt, span{}
	if s.foreign {
		s.prev, s.foreign = span{}, false
	}
	s.slow.lastAck, s.slow.samples = 0, 0
	return grad
}

// loss reduces the window for a loss or an ECN mark.
func (m *module) loss(s *state, out *cong.Decision, mss uint32) {
	w := m.lossWindow(s, out, mss)
	s.win.Cut(out, w, w)
}

func (m *module) lossWindow(s *state, out *cong.Decision, mss uint32) uint32 {
	if s.queue == nonFull && m.useTolerance {
		return max(out.Cwnd, 2*mss) // not for congestion
	}
	s.shadow = min(s.shadow/2, out.Cwnd)
	w := max(out.Cwnd/2, 2*mss)
	if m.useShadow {
		w = max(w, s.shadow)
	}
	return w
}

func (m *module) timeout(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	s.asked = 0
	if s.win.Timeout(in, out) {
		out.Ssthresh = m.lossWindow(s, out, mss)
	}
	out.Cwnd = mss
}

func micros(d time.Duration) uint32 {
	return uint32(min(max(d/time.Microsecond, 1), 1<<31-1))
}

// publish puts the state that Describe shows into the decision.
func (s *state) publish(out *cong.Decision) {
	out.Aux[0] = uint64(uint32(saturate(s.sum.min))) | uint64(uint32(saturate(s.sum.max)))<<32
	out.Aux[1] = uint64(s.shadow) | uint64(s.total)<<32
	out.Aux[2] = uint64(s.queue) | uint64(s.backoffs)<<32
}

func saturate(v int64) int32 { return int32(min(max(v, -1<<31), 1<<31-1)) }

// Describe formats the algorithm's state as `ss -tin` does: the sums of the gradients' windows in µs, what the queue seems to
// be, back-offs for delay ever and in a row without effect, and the shadow window in bytes.
func Describe(aux [3]uint64, _ *cong.Decision) string {
	queue := "?"
	if i := aux[2] & 0xff; i < uint64(len(queueNames)) {
		queue = queueNames[i]
	}
	return fmt.Sprintf("cdg:(gmin:%d,gmax:%d,queue:%s,backoffs:%d,ineff:%d,shadow:%d)",
		int32(aux[0]), int32(aux[0]>>32), queue, aux[1]>>32, aux[2]>>32, uint32(aux[1]))
}

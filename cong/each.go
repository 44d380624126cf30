package cong

import "github.com/fastpath-tcp/fastpath/plugins"

// Each turns a per-flow function into a module. step sees the flow's state (zero at KindOpen and KindResume, or whenever the
// slot holds another flow), the sample, and the decision to fill in; Flow and AsOf are set for it. Cwnd, Ssthresh and Flags
// start as the last decision of the flow left them (EnterCWR and MarkAppLimited cleared), so a step that changes nothing may return at once.
func Each[S any](step func(state *S, in *Sample, out *Decision)) Module {
	return &each[S]{step: step}
}

type slot[S any] struct {
	last  Decision
	state S
	used  bool
}

type each[S any] struct {
	step    func(*S, *Sample, *Decision)
	slots   []slot[S]
	pending []Decision // answers that did not fit into out
	now     plugins.Time
}

func (e *each[S]) Poll(now plugins.Time, in []Sample, out []Decision) int {
	e.now = now
	n := copy(out, e.pending)
	e.pending = e.pending[:copy(e.pending, e.pending[n:])]
	for i := range in {
		d := e.one(&in[i])
		if d == nil {
			continue
		}
		if n < len(out) {
			out[n] = *d
			n++
		} else {
			e.pending = append(e.pending, *d)
		}
	}
	return n
}

func (e *each[S]) one(in *Sample) *Decision {
	i := int(in.Flow.Slot)
	if i >= len(e.slots) {
		if in.Kind == KindClose || i >= maxSlots {
			return nil
		}
		e.slots = append(e.slots, make([]slot[S], max(i+1-len(e.slots), len(e.slots), 16))...)
	}
	s := &e.slots[i]
	if in.Kind == KindClose {
		if s.used && s.last.Flow == in.Flow {
			*s = slot[S]{}
		}
		return nil
	}
	if !s.used || s.last.Flow != in.Flow || in.Kind == KindOpen || in.Kind == KindResume {
		*s = slot[S]{used: true}
		s.last = Decision{Flow: in.Flow, Cwnd: in.Cwnd, Ssthresh: in.Ssthresh}
	}
	s.last.AsOf = in.ID
	s.last.Flags &^= EnterCWR | MarkAppLimited // these two are said anew each time
	e.step(&s.state, in, &s.last)
	return &s.last
}

// maxSlots bounds what a corrupted record can make a module allocate.
const maxSlots = 1 << 22

func (e *each[S]) Deadline() plugins.Time {
	if len(e.pending) > 0 {
		return e.now
	}
	return plugins.Never
}

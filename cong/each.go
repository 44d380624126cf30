package cong

import "github.com/fastpath-tcp/fastpath/plugins"

// Each turns a per-flow function into a module. step sees the flow's state (zero at KindOpen and KindResume, or whenever the
// slot holds another flow), the sample, and the decision to fill in; Flow and AsOf are set for it. The rest
// starts as the last decision of the flow left it (EnterCWR and MarkAppLimited cleared), and for a new flow with the engine's Cwnd and
// Ssthresh, so a step that changes nothing may return at once. KindClose clears the state and does not reach step.
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
	pages   []*[pageSize]slot[S] // by slot; made when first used, so that growth copies and wastes nothing
	pending []Decision           // answers that did not fit into out
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
	s := e.slot(in.Flow.Slot, in.Kind != KindClose)
	if s == nil {
		return nil
	}
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

const pageSize = 64

// slot returns the state of slot i, or nil if there is none and it is not to be made.
func (e *each[S]) slot(i uint32, create bool) *slot[S] {
	p := int(i / pageSize)
	if p >= len(e.pages) {
		if !create || i >= maxSlots {
			return nil
		}
		e.pages = append(e.pages, make([]*[pageSize]slot[S], p+1-len(e.pages))...)
	}
	if e.pages[p] == nil {
		if !create {
			return nil
		}
		e.pages[p] = new([pageSize]slot[S])
	}
	return &e.pages[p][i%pageSize]
}

// maxSlots bounds what a corrupted record can make a module allocate.
const maxSlots = 1 << 22

func (e *each[S]) Deadline() plugins.Time {
	if len(e.pending) > 0 {
		return e.now
	}
	return plugins.Never
}

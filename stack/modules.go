package stack

import (
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Attach adds a module: one plugins.Module of the kind's records per worker, which may be a plugins.Remote besides. It returns the
// index by which flows hold it. It serves no flow until Use, SetFallback or ConnectWith name it.
func (s *Stack) Attach(k plugins.Kind, name string, perWorker []any) (index int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attach(k, name, perWorker)
}

func (s *Stack) attach(k plugins.Kind, name string, perWorker []any) (index int, err error) {
	if len(perWorker) != len(s.workers) {
		return 0, fmt.Errorf("stack: module %s has %d instances for %d workers", name, len(perWorker), len(s.workers))
	}
	attached := 0
	all := s.each(func(w *Worker) {
		if err != nil {
			return
		}
		var i int
		if i, err = w.engine.Attach(k, name, perWorker[w.index]); err == nil {
			if attached > 0 && i != index {
				err = fmt.Errorf("stack: module %s has index %d on one worker and %d on another", name, index, i)
			}
			index = i
			attached++
		}
	})
	if err == nil && !all {
		err = ErrClosed
	}
	return index, err
}

// Use makes module index serve the flows of sel, present and new: each worker changes over at a loop boundary.
func (s *Stack) Use(k plugins.Kind, index int, sel plugins.Selection) (r plugins.SwapReport, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.each(func(w *Worker) {
		start := w.clock.Now()
		n, e := w.engine.Use(k, index, sel)
		if e != nil {
			err = e
		}
		r.Flows += n
		r.Gap = max(r.Gap, w.clock.Now().Sub(start))
	}) {
		return r, ErrClosed
	}
	return r, err
}

// Count is how many flows Use would move; index is -1 for a module that is not attached.
func (s *Stack) Count(k plugins.Kind, index int, sel plugins.Selection) (n int) {
	s.each(func(w *Worker) { n += w.engine.Count(k, index, sel) })
	return n
}

// Replace puts a module, one instance per worker, in the place of module index, and returns how many flows it got back: those that were
// meant for that. Without instances the place is left empty, and the flows with the fallback. Once it has returned no worker touches
// the old module.
func (s *Stack) Replace(k plugins.Kind, index int, perWorker []any) (flows int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if perWorker != nil && len(perWorker) != len(s.workers) {
		return 0, fmt.Errorf("stack: %d instances of a module for %d workers", len(perWorker), len(s.workers))
	}
	s.each(func(w *Worker) {
		var m any
		if perWorker != nil {
			m = perWorker[w.index]
		}
		n, e := w.engine.Replace(k, index, m)
		if e != nil {
			err = e
		}
		flows += n
	})
	return flows, err
}

// Undo takes back the last Use, if that was for module index.
func (s *Stack) Undo(k plugins.Kind, index int) (flows int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each(func(w *Worker) {
		n, e := w.engine.Undo(k, index)
		if e != nil {
			err = e
		}
		flows += n
	})
	return flows, err
}

// Measure is how the flows of sel do.
func (s *Stack) Measure(sel plugins.Selection) (all []plugins.FlowMeasure) {
	s.each(func(w *Worker) {
		n := len(all)
		all = w.engine.Measure(sel, all)
		for i := range all[n:] {
			all[n+i].Worker = w.index
		}
	})
	return all
}

// StartShadow has congestion control or pacing module index, which serves no flow, see all events; its answers are only looked at.
func (s *Stack) StartShadow(k plugins.Kind, index int) (err error) {
	s.each(func(w *Worker) {
		if e := w.engine.StartShadow(k, index); e != nil {
			err = e
		}
	})
	return err
}

// EndShadow ends it, and returns what the module would have decided last for each flow, and how many decisions it has made.
func (s *Stack) EndShadow() (flows []plugins.ShadowFlow, decisions uint64) {
	s.each(func(w *Worker) {
		var n uint64
		flows, n = w.engine.EndShadow(flows)
		decisions += n
	})
	return flows, decisions
}

// SwapGap is the longest time, over all workers, that flows which the last Use moved to module index waited for its first answer;
// meanwhile they keep their last window and rate. waiting means that some still do.
func (s *Stack) SwapGap(k plugins.Kind, index int) (gap time.Duration, waiting bool) {
	s.each(func(w *Worker) {
		g, wait := w.engine.SwapGap(k, index)
		gap, waiting = max(gap, g), waiting || wait
	})
	return gap, waiting
}

// Detach removes module index. Flows that it still serves go to the fallback first; afterwards no worker touches it. The module that
// serves new flows and the fallback cannot be detached.
func (s *Stack) Detach(k plugins.Kind, index int) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each(func(w *Worker) {
		if e := w.engine.Detach(k, index); e != nil {
			err = e
		}
	})
	return err
}

// SetFallback makes module index take over flows of modules that are late or dead.
func (s *Stack) SetFallback(k plugins.Kind, index int) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each(func(w *Worker) {
		if e := w.engine.SetFallback(k, index); e != nil {
			err = e
		}
	})
	return err
}

// Flows is the number of flows that module index serves.
func (s *Stack) Flows(k plugins.Kind, index int) (n int) {
	s.each(func(w *Worker) { n += w.engine.Flows(k, index) })
	return n
}

// Resumes is the number of flows that module index was handed while they were alive: by Use, Give, or because another one failed.
func (s *Stack) Resumes(k plugins.Kind, index int) (n uint64) {
	s.each(func(w *Worker) { n += w.engine.Resumes(k, index) })
	return n
}

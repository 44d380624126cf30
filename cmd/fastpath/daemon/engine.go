package daemon

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/stack"
)

// engine makes one host.Engine of the stacks of all ports: their workers count through, and a module has one index though each stack
// may hold it at another.
type engine struct {
	stacks  []*stack.Stack
	workers int

	mu      sync.Mutex
	modules [plugins.NumKinds][][]int // by index: the index in each stack; nil if free
	inUse   [plugins.NumKinds]int
}

var (
	_ host.Engine      = (*engine)(nil)
	_ host.FlowCounter = (*engine)(nil)
	_ host.Trier       = (*engine)(nil)
	_ host.Shadower    = (*engine)(nil)
)

// newEngine starts with what each stack begins with: one module of each kind, at index 0.
func newEngine(stacks []*stack.Stack) *engine {
	e := &engine{stacks: stacks}
	for _, s := range stacks {
		e.workers += s.Workers()
	}
	for k := range e.modules {
		e.modules[k] = [][]int{make([]int, len(stacks))}
	}
	return e
}

// Workers implements host.Engine.
func (e *engine) Workers() int { return e.workers }

// Attach implements host.Engine.
func (e *engine) Attach(k plugins.Kind, name string, perWorker []any) (int, error) {
	if len(perWorker) != e.workers {
		return 0, fmt.Errorf("module %s has %d instances for %d workers", name, len(perWorker), e.workers)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := make([]int, 0, len(e.stacks))
	for i, s := range e.stacks {
		j, err := s.Attach(k, name, perWorker[:s.Workers()])
		if err != nil {
			for p := range i {
				err = errors.Join(err, e.stacks[p].Detach(k, at[p]))
			}
			return 0, err
		}
		perWorker = perWorker[s.Workers():]
		at = append(at, j)
	}
	for i, m := range e.modules[k] {
		if m == nil {
			e.modules[k][i] = at
			return i, nil
		}
	}
	e.modules[k] = append(e.modules[k], at)
	return len(e.modules[k]) - 1, nil
}

// Use implements host.Engine.
func (e *engine) Use(k plugins.Kind, index int, sel plugins.Selection) (r plugins.SwapReport, err error) {
	err = e.each(k, index, func(s *stack.Stack, i int) error {
		one, err := s.Use(k, i, sel)
		r.Flows += one.Flows
		r.Gap = max(r.Gap, one.Gap)
		return err
	})
	if err == nil {
		e.mu.Lock()
		e.inUse[k] = index
		e.mu.Unlock()
	}
	return r, err
}

// Count implements host.Engine.
func (e *engine) Count(k plugins.Kind, index int, sel plugins.Selection) (n int) {
	if index < 0 {
		for _, s := range e.stacks {
			n += s.Count(k, -1, sel)
		}
		return n
	}
	_ = e.each(k, index, func(s *stack.Stack, i int) error { // an index that is gone moves nothing
		n += s.Count(k, i, sel)
		return nil
	})
	return n
}

// Replace implements host.Engine.
func (e *engine) Replace(k plugins.Kind, index int, perWorker []any) (flows int, err error) {
	if perWorker != nil && len(perWorker) != e.workers {
		return 0, fmt.Errorf("%d instances of a module for %d workers", len(perWorker), e.workers)
	}
	err = e.each(k, index, func(s *stack.Stack, i int) error {
		var mine []any
		if perWorker != nil {
			mine, perWorker = perWorker[:s.Workers()], perWorker[s.Workers():]
		}
		n, err := s.Replace(k, i, mine)
		flows += n
		return err
	})
	return flows, err
}

// Undo implements host.Trier.
func (e *engine) Undo(k plugins.Kind, index int) (flows int, err error) {
	err = e.each(k, index, func(s *stack.Stack, i int) error {
		n, err := s.Undo(k, i)
		flows += n
		return err
	})
	return flows, err
}

// Measure implements host.Trier.
func (e *engine) Measure(sel plugins.Selection) (all []plugins.FlowMeasure) {
	first := 0
	for _, s := range e.stacks {
		for _, m := range s.Measure(sel) {
			m.Worker += first
			all = append(all, m)
		}
		first += s.Workers()
	}
	return all
}

// StartShadow implements host.Shadower.
func (e *engine) StartShadow(k plugins.Kind, index int) error {
	return e.each(k, index, func(s *stack.Stack, i int) error { return s.StartShadow(k, i) })
}

// EndShadow implements host.Shadower.
func (e *engine) EndShadow() (flows []plugins.ShadowFlow, decisions uint64) {
	for _, s := range e.stacks {
		f, n := s.EndShadow()
		flows, decisions = append(flows, f...), decisions+n
	}
	return flows, decisions
}

// Detach implements host.Engine.
func (e *engine) Detach(k plugins.Kind, index int) error {
	err := e.each(k, index, func(s *stack.Stack, i int) error { return s.Detach(k, i) })
	if err == nil {
		e.mu.Lock()
		e.modules[k][index] = nil
		e.mu.Unlock()
	}
	return err
}

// SetFallback implements host.Engine.
func (e *engine) SetFallback(k plugins.Kind, index int) error {
	return e.each(k, index, func(s *stack.Stack, i int) error { return s.SetFallback(k, i) })
}

// Flows implements host.FlowCounter.
func (e *engine) Flows(k plugins.Kind, index int) (n int) {
	_ = e.each(k, index, func(s *stack.Stack, i int) error { // an index that is gone has no flows
		n += s.Flows(k, i)
		return nil
	})
	return n
}

// Resumes implements host.FlowCounter.
func (e *engine) Resumes(k plugins.Kind, index int) (n uint64) {
	_ = e.each(k, index, func(s *stack.Stack, i int) error { // an index that is gone was handed nothing
		n += s.Resumes(k, i)
		return nil
	})
	return n
}

// swapGap waits until the module at index has answered for flows that it was given, and returns the longest time that this took on any
// worker. A flow without any traffic may need no answer: the wait ends after the time limit.
func (e *engine) swapGap(k plugins.Kind, index int, limit time.Duration) (gap time.Duration) {
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		gap = 0
		waiting := false
		_ = e.each(k, index, func(s *stack.Stack, i int) error { // a module that has been replaced has no gap
			g, w := s.SwapGap(k, i)
			gap, waiting = max(gap, g), waiting || w
			return nil
		})
		if !waiting || time.Now().After(end) {
			return gap
		}
	}
}

// current is the index of the module that Use last chose.
func (e *engine) current(k plugins.Kind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inUse[k]
}

// each calls f with every stack and the module's index there.
func (e *engine) each(k plugins.Kind, index int, f func(*stack.Stack, int) error) error {
	e.mu.Lock()
	var at []int
	if index >= 0 && index < len(e.modules[k]) {
		at = e.modules[k][index]
	}
	e.mu.Unlock()
	if at == nil {
		return fmt.Errorf("no %v module with index %d", k, index)
	}
	var errs []error
	for i, s := range e.stacks {
		errs = append(errs, f(s, at[i]))
	}
	return errors.Join(errs...)
}

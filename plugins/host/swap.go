package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// Swap makes the module of that name serve the flows of sel, present and new. A standing module takes over at once; any other is
// started and checked first, and so is a fresh instance if name is what is in use already and is to have all flows. If anything
// fails, what is in use stays in use, and the error names the cause.
func (m *Manager) Swap(ctx context.Context, kind plugins.Kind, name string, sel plugins.Selection) (SwapReport, error) {
	return m.locked(kind, name, func() (SwapReport, error) { return m.swap(ctx, kind, name, sel, false) })
}

// locked runs a swap while there is no other, and tells of its failure.
func (m *Manager) locked(kind plugins.Kind, name string, swap func() (SwapReport, error)) (SwapReport, error) {
	m.swapping.Lock()
	defer m.swapping.Unlock()
	rep, err := swap()
	if err != nil {
		m.forgetFailed(kind, name)
		m.events.add(Event{Kind: kind, Name: name, What: Refused, Detail: err.Error()})
		return rep, fmt.Errorf("module %v/%s: %w", kind, name, err)
	}
	return rep, nil
}

// swap does what Swap says. On trial, the modules that nobody needs afterwards stay, so that it can be taken back.
func (m *Manager) swap(ctx context.Context, kind plugins.Kind, name string, sel plugins.Selection, trial bool) (SwapReport, error) {
	if err := sel.Check(); err != nil {
		return SwapReport{}, err
	}
	mod, err := m.choose(kind, name)
	if err != nil {
		return SwapReport{}, err
	}
	m.mu.Lock()
	in, again := mod.inst, m.active[kind] == mod && sel.All() && !sel.NewOnly
	m.mu.Unlock()
	if again && trial {
		return SwapReport{}, errors.New("it serves all new flows already: there is nothing to try")
	}
	fresh := in == nil || again
	if fresh {
		old := in
		if in, err = m.start(ctx, mod, nil); err != nil {
			return SwapReport{}, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if mod.inst != old { // it was restarted, or died, meanwhile: whoever did that looks after it
			m.discard(in)
			return SwapReport{}, errRestarted
		}
		if err = m.attachLocked(in); err != nil {
			m.discard(in)
			return SwapReport{}, err
		}
		rep, err := m.useLocked(in, sel, trial)
		if err != nil {
			m.retire(in)
			mod.inst = old
			return rep, err
		}
		if old != nil {
			m.retire(old)
		}
		rep.Flows += in.returned
		return rep, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if mod.inst != in || in.state() != plugins.Ready {
		return SwapReport{}, fmt.Errorf("it is %v", in.state())
	}
	return m.useLocked(in, sel, trial)
}

// rule makes a module serve a part of the flows.
type rule struct {
	sel plugins.Selection
	mod *module
}

// chose keeps in mind what the engine was told: see Engine.Use.
func (m *Manager) chose(mod *module, sel plugins.Selection) {
	kind := mod.spec.Kind
	if sel.All() {
		m.active[kind], m.rules[kind] = mod, nil
		return
	}
	sel.NewOnly = false
	rules := []rule{{sel, mod}}
	for _, r := range m.rules[kind] {
		if r.sel != sel {
			rules = append(rules, r)
		}
	}
	m.rules[kind] = rules
}

// chosen reports whether mod serves new flows.
func (m *Manager) chosen(mod *module) bool {
	return m.active[mod.spec.Kind] == mod || slices.ContainsFunc(m.rules[mod.spec.Kind], func(r rule) bool { return r.mod == mod })
}

// Count is how many flows Swap would give to another module, or another instance of it. It starts nothing, and so does not find out
// whether the module is fit.
func (m *Manager) Count(kind plugins.Kind, name string, sel plugins.Selection) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := sel.Check()
	var mod *module
	if err == nil {
		mod, _, err = m.lookup(kind, name)
	}
	if err == nil && mod.failed {
		err = errors.New(mod.trouble)
	}
	if err != nil {
		return 0, fmt.Errorf("module %v/%s: %w", kind, name, err)
	}
	index := -1
	switch {
	case mod.held:
		index = mod.place
	case mod.inst != nil && (m.active[kind] != mod || !sel.All()):
		index = mod.inst.index
	}
	return m.cfg.Engine.Count(kind, index, sel), nil
}

// choose returns the configured or running module of that name, or one that can be found without configuration.
func (m *Manager) choose(kind plugins.Kind, name string) (*module, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mod, known, err := m.lookup(kind, name)
	if !known && err == nil {
		m.modules = append(m.modules, mod)
	}
	return mod, err
}

// lookup is choose without any consequence: a module that is not known is made, and not kept.
func (m *Manager) lookup(kind plugins.Kind, name string) (_ *module, known bool, _ error) {
	if m.closed {
		return nil, false, errors.New("the module manager is closed")
	}
	for _, mod := range m.modules {
		if mod.spec.Kind == kind && mod.spec.Name == name {
			return mod, true, nil
		}
	}
	s := Spec{Kind: kind, Name: name, Placement: Process, AllowUnpinned: m.cfg.AllowUnpinned}
	if kind < plugins.NumKinds && nameOK(name) {
		_, err := os.Stat(filepath.Join(m.cfg.PluginDir, FileName(&s)))
		file := m.cfg.PluginDir != "" && err == nil
		if _, ok := builtin.Find(kind, name); ok && !file {
			s.Placement = m.use[kind].Placement // as the operator runs this kind
		}
	}
	if err := s.check(); err != nil {
		return nil, false, err
	}
	return &module{spec: s}, false, nil
}

// forgetFailed removes a module that only a failed swap wanted.
func (m *Manager) forgetFailed(kind plugins.Kind, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mod := range m.modules {
		if mod.spec.Kind == kind && mod.spec.Name == name && !mod.standing && mod.inst == nil && !m.chosen(mod) {
			m.remove(mod)
			return
		}
	}
}

// useLocked gives the flows to in and, unless it is a trial, takes leave of what nobody needs any more.
func (m *Manager) useLocked(in *instance, sel plugins.Selection, trial bool) (SwapReport, error) {
	s := &in.mod.spec
	var oldFallback fallback
	if sel.All() {
		var err error
		if oldFallback, err = m.setFallback(s); err != nil {
			return SwapReport{}, err
		}
	}
	rep, err := m.cfg.Engine.Use(s.Kind, in.index, sel)
	if err != nil {
		return rep, err
	}
	m.chose(in.mod, sel)
	in.mod.deaths = nil // an operator's wish that came true: it gets all its chances again
	m.note(in.mod, in, Event{What: Swapped, Flows: rep.Flows, Took: rep.Gap, For: sel})
	if trial {
		return rep, nil // the old fallback, too, is detached by settle
	}
	m.settle(s.Kind, oldFallback, sel)
	return rep, nil
}

// settle ends what a swap of sel has made superfluous.
func (m *Manager) settle(kind plugins.Kind, oldFallback fallback, sel plugins.Selection) {
	if oldFallback.set && oldFallback.index != m.fallback[kind].index {
		if err := m.cfg.Engine.Detach(kind, oldFallback.index); err != nil {
			m.cfg.Log.Warn("old fallback stays attached", "kind", kind.String(), "module", oldFallback.name, "error", err)
		}
	}
	for _, mod := range append([]*module(nil), m.modules...) {
		if mod.spec.Kind != kind || mod.standing || m.chosen(mod) {
			continue
		}
		if mod.inst != nil && (sel.NewOnly || !sel.All()) {
			m.wg.Go(func() { m.drain(mod) })
			continue
		}
		m.remove(mod)
	}
}

// drain removes a module that gets no new flows when its last flow is closed.
func (m *Manager) drain(mod *module) {
	fc, ok := m.cfg.Engine.(FlowCounter)
	for ok && sleep(time.Second, m.stop) {
		m.mu.Lock()
		in := mod.inst
		if mod.gone || m.chosen(mod) {
			m.mu.Unlock()
			return
		}
		if in == nil || fc.Flows(mod.spec.Kind, in.index) == 0 {
			m.remove(mod)
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

// remove forgets a module that is neither configured nor in use.
func (m *Manager) remove(mod *module) {
	mod.gone = true
	for i := range m.modules {
		if m.modules[i] == mod {
			m.modules = append(m.modules[:i], m.modules[i+1:]...)
			break
		}
	}
	if in := mod.inst; in != nil {
		mod.inst = nil
		m.retire(in)
	}
	mod.bin.close()
	mod.bin = nil
	if mod.held {
		mod.held = false
		if err := m.cfg.Engine.Detach(mod.spec.Kind, mod.place); err != nil {
			m.cfg.Log.Error("the place of a module that has died cannot be given up", "module", mod.spec.String(), "error", err)
		}
	}
}

// retire detaches an instance and stops it, unless it shares its process with others that go on. Its memory goes when no worker touches it any more: if the engine cannot promise
// that, it stays mapped.
func (m *Manager) retire(in *instance) {
	if in.mod.inst == in {
		in.mod.inst = nil
	}
	close(in.stop)
	in.bin.close()
	err := m.cfg.Engine.Detach(in.mod.spec.Kind, in.index)
	if err != nil && m.chosen(in.mod) { // new flows are meant for its place: that stays, empty
		if _, err = m.cfg.Engine.Replace(in.mod.spec.Kind, in.index, nil); err == nil {
			in.mod.place, in.mod.held = in.index, true
		}
	}
	m.note(in.mod, in, Event{What: Stopped})
	if err != nil {
		m.cfg.Log.Error("module cannot be detached", "module", in.mod.spec.String(), "error", err)
	}
	if in.proc == nil {
		return
	}
	m.wg.Go(func() {
		<-in.watched
		m.leave(in, departure{pinned: err != nil})
	})
}

// discard stops an instance that was never attached.
func (m *Manager) discard(in *instance) {
	if in.proc != nil {
		in.bin.close()
		m.wg.Go(func() { m.leave(in, departure{}) })
	}
}

// Close gives all flows to the fallbacks, and stops all module processes. The engine's workers must still run. Afterwards no
// process, socket or shared memory of the manager is left.
func (m *Manager) Close() error {
	m.swapping.Lock()
	defer m.swapping.Unlock()
	return m.closeAll()
}

func (m *Manager) closeAll() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	close(m.stop)
	var errs []error
	for k, mod := range m.active {
		if mod != nil && mod.inst != nil && mod.inst.proc != nil {
			if _, err := m.cfg.Engine.Use(plugins.Kind(k), m.fallback[k].index, plugins.Selection{}); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, mod := range m.modules {
		if in := mod.inst; in != nil && in.proc != nil {
			m.retire(in)
		}
		mod.bin.close()
		mod.bin = nil
	}
	m.mu.Unlock()
	m.wg.Wait()
	m.cgroups.close()
	if m.dir != "" {
		errs = append(errs, os.RemoveAll(m.dir))
		m.lock.Close()
	}
	return errors.Join(errs...)
}

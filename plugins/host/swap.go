package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// Swap makes the module of that name serve all flows of the kind, or new flows only. A standing module takes over at once;
// any other is started and checked first, and so is a fresh instance if name is what is in use already. If anything fails,
// what is in use stays in use, and the error names the cause.
func (m *Manager) Swap(ctx context.Context, kind plugins.Kind, name string, newOnly bool) (SwapReport, error) {
	m.swapping.Lock()
	defer m.swapping.Unlock()
	rep, err := m.swap(ctx, kind, name, newOnly)
	if err != nil {
		m.forgetFailed(kind, name)
		m.events.add(Event{Kind: kind, Name: name, What: Refused, Detail: err.Error()})
		return rep, fmt.Errorf("module %v/%s: %w", kind, name, err)
	}
	return rep, nil
}

func (m *Manager) swap(ctx context.Context, kind plugins.Kind, name string, newOnly bool) (SwapReport, error) {
	mod, err := m.choose(kind, name)
	if err != nil {
		return SwapReport{}, err
	}
	m.mu.Lock()
	in, again := mod.inst, m.active[kind] == mod
	m.mu.Unlock()
	fresh := in == nil || again
	if fresh {
		old := in
		if in, err = m.start(ctx, mod); err != nil {
			return SwapReport{}, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if mod.inst != old { // it was restarted, or died, meanwhile: whoever did that looks after it
			m.discard(in)
			return SwapReport{}, errors.New("it was restarted just now; try again")
		}
		if err = m.attachLocked(in); err != nil {
			m.discard(in)
			return SwapReport{}, err
		}
		rep, err := m.useLocked(in, newOnly)
		if err != nil {
			m.retire(in)
			mod.inst = old
			return rep, err
		}
		if old != nil {
			m.retire(old)
		}
		return rep, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if mod.inst != in || in.state() != plugins.Ready {
		return SwapReport{}, fmt.Errorf("it is %v", in.state())
	}
	return m.useLocked(in, newOnly)
}

// choose returns the configured or running module of that name, or one that can be found without configuration.
func (m *Manager) choose(kind plugins.Kind, name string) (*module, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.New("the module manager is closed")
	}
	for _, mod := range m.modules {
		if mod.spec.Kind == kind && mod.spec.Name == name {
			mod.deaths = nil // an operator's wish: it gets all its chances again
			return mod, nil
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
		return nil, err
	}
	mod := &module{spec: s}
	m.modules = append(m.modules, mod)
	return mod, nil
}

// forgetFailed removes a module that only a failed swap wanted.
func (m *Manager) forgetFailed(kind plugins.Kind, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mod := range m.modules {
		if mod.spec.Kind == kind && mod.spec.Name == name && !mod.standing && mod.inst == nil && m.active[kind] != mod {
			m.remove(mod)
			return
		}
	}
}

// useLocked gives the flows to in, and takes leave of what nobody needs any more.
func (m *Manager) useLocked(in *instance, newOnly bool) (SwapReport, error) {
	s := &in.mod.spec
	oldFallback, err := m.setFallback(s)
	if err != nil {
		return SwapReport{}, err
	}
	rep, err := m.cfg.Engine.Use(s.Kind, in.index, newOnly)
	if err != nil {
		return rep, err
	}
	m.active[s.Kind] = in.mod
	m.note(in.mod, in, Event{What: Swapped, Flows: rep.Flows, Took: rep.Gap})
	if oldFallback.set && oldFallback.index != m.fallback[s.Kind].index {
		if err := m.cfg.Engine.Detach(s.Kind, oldFallback.index); err != nil {
			m.cfg.Log.Warn("old fallback stays attached", "kind", s.Kind.String(), "module", oldFallback.name, "error", err)
		}
	}
	for _, mod := range append([]*module(nil), m.modules...) {
		if mod.spec.Kind != s.Kind || mod == in.mod || mod.standing {
			continue
		}
		if newOnly && mod.inst != nil {
			m.wg.Go(func() { m.drain(mod) })
			continue
		}
		m.remove(mod)
	}
	return rep, nil
}

// drain removes a module that gets no new flows when its last flow is closed.
func (m *Manager) drain(mod *module) {
	fc, ok := m.cfg.Engine.(FlowCounter)
	for ok && sleep(time.Second, m.stop) {
		m.mu.Lock()
		in := mod.inst
		if mod.gone || m.active[mod.spec.Kind] == mod {
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
}

// retire detaches an instance and stops it. Its memory goes when no worker touches it any more: if the engine cannot promise
// that, it stays mapped.
func (m *Manager) retire(in *instance) {
	if in.mod.inst == in {
		in.mod.inst = nil
	}
	close(in.stop)
	err := m.cfg.Engine.Detach(in.mod.spec.Kind, in.index)
	m.note(in.mod, in, Event{What: Stopped})
	if err != nil {
		m.cfg.Log.Error("module cannot be detached", "module", in.mod.spec.String(), "error", err)
	}
	if in.proc == nil {
		return
	}
	m.wg.Go(func() {
		<-in.watched
		in.proc.stop()
		if err == nil {
			in.proc.free()
		}
	})
}

// discard stops an instance that was never attached.
func (m *Manager) discard(in *instance) {
	if in.proc != nil {
		m.wg.Go(func() {
			in.proc.stop()
			in.proc.free()
		})
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
			if _, err := m.cfg.Engine.Use(plugins.Kind(k), m.fallback[k].index, false); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, mod := range m.modules {
		if in := mod.inst; in != nil && in.proc != nil {
			m.retire(in)
		}
	}
	m.mu.Unlock()
	m.wg.Wait()
	if m.dir != "" {
		errs = append(errs, os.RemoveAll(m.dir))
		m.lock.Close()
	}
	return errors.Join(errs...)
}

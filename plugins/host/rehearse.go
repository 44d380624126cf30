package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Caution is how an upgrade is tried. The zero value is an upgrade at once.
type Caution struct {
	// DryRun starts and checks the new code, shows it events if Shadow says so, and ends it again.
	DryRun bool
	// Shadow is how long the new code first gets the events of all flows, and only tells what it would have decided: see Manager.Shadow.
	Shadow time.Duration
	// Trial goes back to the old code if the module's flows do worse than it allows: see Manager.SwapOnTrial.
	Trial Trial
}

// UpgradeReport is what an upgrade did.
type UpgradeReport struct {
	SwapReport
	Shadow *ShadowReport // nil without one
	Trial  *TrialReport  // nil without one
}

// UpgradeWith is Upgrade with caution.
func (m *Manager) UpgradeWith(ctx context.Context, kind plugins.Kind, name, path, sha256 string, c Caution) (r UpgradeReport, err error) {
	if err := c.Trial.Check(); err != nil {
		return r, err
	}
	r.SwapReport, err = m.locked(kind, name, func() (SwapReport, error) {
		if path == "" || sha256 == "" {
			return SwapReport{}, errors.New("an upgrade needs a file and its checksum")
		}
		up := renewal{what: Upgraded, change: func(s *Spec) {
			s.Placement, s.Path, s.Args, s.SHA256, s.AllowUnpinned = Process, path, nil, sha256, false
		}}
		if c.DryRun || c.Shadow > 0 {
			flows, err := m.rehearse(ctx, kind, name, up.change, c.Shadow, &r)
			if err != nil || c.DryRun {
				return SwapReport{Flows: flows}, err
			}
		}
		if c.Trial.Time > 0 {
			return m.renewOnTrial(ctx, kind, name, up, c.Trial, &r)
		}
		return m.renew(ctx, kind, name, up)
	})
	return r, err
}

// rehearse starts a module that is known with another spec, beside the one that runs, shows it events for d, and ends it again. It returns how
// many flows the one that runs has.
func (m *Manager) rehearse(ctx context.Context, kind plugins.Kind, name string, change func(*Spec), d time.Duration, r *UpgradeReport) (flows int, err error) {
	engine, ok := m.cfg.Engine.(Shadower)
	if d > 0 {
		if err := canShadow(ok, kind); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	mod, err := m.known(kind, name)
	var s Spec
	if err == nil {
		if s = mod.spec; mod.inst != nil {
			flows = max(m.flows(kind, mod.inst.index), 0)
		}
	}
	m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if change(&s); s.check() != nil {
		return 0, s.check()
	}
	guest := &module{spec: s}
	in, err := m.start(ctx, guest, nil)
	if err != nil {
		return 0, err
	}
	if d <= 0 {
		m.discard(in)
		return flows, nil
	}
	if err := m.attach(in); err != nil {
		return 0, err
	}
	seen, err := m.observe(ctx, engine, guest, in, d)
	r.Shadow = &seen
	m.mu.Lock()
	defer m.mu.Unlock()
	if guest.inst == in {
		m.retire(in)
	}
	guest.bin.close() // of one that has died
	return flows, err
}

// renewOnTrial is renew, watches the module's flows, and goes back to the code that ran before if they do worse than t allows, or it fails.
func (m *Manager) renewOnTrial(ctx context.Context, kind plugins.Kind, name string, up renewal, t Trial, r *UpgradeReport) (rep SwapReport, err error) {
	engine, ok := m.cfg.Engine.(Trier)
	if !ok {
		return rep, errors.New("this engine has no trials")
	}
	m.mu.Lock()
	mod, err := m.known(kind, name)
	var sel plugins.Selection
	if err == nil {
		sel, err = m.share(mod)
	}
	m.mu.Unlock()
	if err != nil {
		return rep, err
	}
	window := t.window()
	before, err := m.measure(ctx, engine, sel, window)
	if err != nil {
		return rep, err
	}
	m.mu.Lock()
	was := mod.spec
	old := mod.bin // nil if it is linked in
	if mod.inst != nil {
		old = mod.inst.bin
	}
	old, err = old.dup()
	m.mu.Unlock()
	if err != nil {
		return rep, err
	}
	if rep, err = m.renew(ctx, kind, name, up); err != nil {
		old.close()
		return rep, err
	}
	m.mu.Lock()
	in := mod.inst
	m.mu.Unlock()
	tr := m.try(ctx, engine, mod, in, sel, t, before, window)
	r.Trial = &tr
	if tr.RolledBack == "" {
		old.close()
		return rep, nil
	}
	defer old.close()
	back := renewal{what: RolledBack, change: func(s *Spec) { s.become(&was) }, detail: tr.RolledBack}
	for range wayBack { // the new code may have died, and be restarted at the same time
		if back.bin, err = old.dup(); err == nil {
			_, err = m.renew(context.WithoutCancel(ctx), kind, name, back)
		}
		if !errors.Is(err, errRestarted) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("the trial has failed (%s), and so has the way back: %w", tr.RolledBack, err)
	}
	return rep, err
}

// wayBack is how often the way back from a failed trial is tried while the new code is being restarted.
const wayBack = 10

// share is which flows are meant for mod, among others perhaps.
func (m *Manager) share(mod *module) (plugins.Selection, error) {
	if m.active[mod.spec.Kind] == mod {
		return plugins.Selection{}, nil
	}
	for _, r := range m.rules[mod.spec.Kind] {
		if r.mod == mod {
			return r.sel, nil
		}
	}
	return plugins.Selection{}, errors.New("it serves no flows: there is nothing to try")
}

// known returns a module that runs or is configured.
func (m *Manager) known(kind plugins.Kind, name string) (*module, error) {
	mod, known, err := m.lookup(kind, name)
	if err == nil && !known {
		err = errors.New("it does not run and is not configured")
	}
	return mod, err
}

package host

import (
	"context"
	"errors"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// ShadowReport is what a congestion control or pacing module would have done.
type ShadowReport struct {
	Decisions uint64               // how many it has made
	Flows     []plugins.ShadowFlow // those that were there at the end
}

// Shadow feeds the events of all flows for d to a congestion control or pacing module that serves none, besides those that do, and tells
// what it would have decided last. With keep a module that was started for this stays, for a Swap that follows. A module that died or was late is an error.
func (m *Manager) Shadow(ctx context.Context, kind plugins.Kind, name string, d time.Duration, keep bool) (r ShadowReport, err error) {
	engine, ok := m.cfg.Engine.(Shadower)
	if err := canShadow(ok, kind); err != nil {
		return r, err
	}
	if d <= 0 {
		return r, errors.New("the time to watch is missing")
	}
	_, err = m.locked(kind, name, func() (SwapReport, error) {
		mod, err := m.choose(kind, name)
		if err != nil {
			return SwapReport{}, err
		}
		in, err := m.standBy(ctx, mod)
		if err != nil {
			return SwapReport{}, err
		}
		r, err = m.observe(ctx, engine, mod, in, d)
		m.mu.Lock()
		defer m.mu.Unlock()
		if (err != nil || !keep) && !mod.standing && !mod.gone && !m.chosen(mod) {
			m.remove(mod)
		}
		return SwapReport{}, err
	})
	return r, err
}

// canShadow says why modules of a kind cannot be shown events.
func canShadow(able bool, kind plugins.Kind) error {
	switch {
	case !able:
		return errors.New("this engine cannot mirror samples")
	case kind == plugins.Rtx:
		return errors.New("an rtx module cannot be watched: what it is told follows from what the one that serves has sent again, so that the two cannot be " +
			"compared; a trial of a few flows can (--percent, --trial)")
	}
	return nil
}

// observe shows the events of all flows to an instance that serves none, for d.
func (m *Manager) observe(ctx context.Context, engine Shadower, mod *module, in *instance, d time.Duration) (r ShadowReport, err error) {
	if err = engine.StartShadow(mod.spec.Kind, in.index); err == nil {
		wait := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { close(wait) })
		if !sleep(d, wait) {
			err = context.Cause(ctx)
		}
		stop()
		r.Flows, r.Decisions = engine.EndShadow()
	} else {
		r.Flows, r.Decisions = engine.EndShadow() // of the workers that had begun
	}
	if why := m.fit(mod, in); err == nil && why != "" {
		err = errors.New(why)
	}
	return r, err
}

// standBy returns the running instance of mod, which is started and attached if there is none.
func (m *Manager) standBy(ctx context.Context, mod *module) (*instance, error) {
	m.mu.Lock()
	in, chosen := mod.inst, m.chosen(mod)
	m.mu.Unlock()
	switch {
	case chosen:
		return nil, errors.New("it serves flows already")
	case in != nil:
		return in, nil
	}
	in, err := m.start(ctx, mod, nil)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if mod.inst != nil {
		m.discard(in)
		return nil, errRestarted
	}
	if err := m.attachLocked(in); err != nil {
		m.discard(in)
		return nil, err
	}
	return in, nil
}

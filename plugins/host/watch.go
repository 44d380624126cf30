package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// state is the worst state that any worker sees.
func (in *instance) state() plugins.RemoteState {
	worst := plugins.Ready
	for _, r := range in.remotes {
		worst = max(worst, r.State())
	}
	return worst
}

func (in *instance) die(why string) {
	for _, r := range in.remotes {
		r.die(why)
	}
}

// fault says why it is dead, as the first worker that knows puts it.
func (in *instance) fault() string {
	for _, r := range in.remotes {
		if f := r.Fault(); f != "" {
			return f
		}
	}
	return "unknown"
}

// watch follows a module process until it dies or is stopped.
func (m *Manager) watch(in *instance) {
	var lateSince time.Time
	exited := in.proc.child.Load().exited
	for {
		select {
		case <-in.stop:
			close(in.watched)
			return
		case <-exited:
			in.proc.die("the process has ended: "+in.proc.child.Load().ended(), nil)
		case <-in.notify:
		}
		switch in.state() {
		case plugins.Dead:
			close(in.watched)
			m.bury(in)
			return
		case plugins.Late:
			if lateSince.IsZero() {
				lateSince = wallNow()
				m.note(in.mod, in, Event{What: WentLate, Detail: fmt.Sprintf("an event is unconsumed for more than %v", m.use[in.mod.spec.Kind].Guard.Late)})
			}
		case plugins.Ready:
			if !lateSince.IsZero() {
				m.note(in.mod, in, Event{What: CameBack, Took: since(lateSince)})
				lateSince = time.Time{}
			}
		}
	}
}

// bury takes a dead module out of the engine, ends its process, and has it restarted with all that died with that. Its workers have moved its flows to the fallback by
// themselves, at their first look at its state.
func (m *Manager) bury(in *instance) {
	known := wallNow()
	mod, kind := in.mod, in.mod.spec.Kind
	why := in.fault()
	in.die(why) // in all workers, not only the one that saw it
	in.proc.die(fmt.Sprintf("%v, in the same process, is dead: %s", &mod.spec, why), in)
	m.mu.Lock()
	if mod.inst != in { // retired at this very moment
		m.mu.Unlock()
		return
	}
	mod.inst, mod.trouble = nil, why
	mod.bin.close()
	mod.bin = in.bin
	m.note(mod, in, Event{What: Crashed, Detail: mod.trouble})
	revive := !m.closed && !mod.gone && (mod.standing || m.chosen(mod))
	var err error // without one, all flows are with the fallback afterwards
	if revive {
		if _, err = m.cfg.Engine.Replace(kind, in.index, nil); err == nil {
			mod.place, mod.held = in.index, true
		}
	} else {
		err = m.cfg.Engine.Detach(kind, in.index)
	}
	mod.fellBack = since(known)
	m.note(mod, in, Event{What: FellBack, Took: mod.fellBack, Detail: m.fallback[kind].name})
	m.mu.Unlock()
	in.proc.kill()
	if err != nil {
		m.cfg.Log.Error("dead module cannot be detached", "module", mod.spec.String(), "error", err)
	}
	m.leave(in, departure{again: revive, at: known, pinned: err != nil})
}

// revive restarts modules that died together, in one process, with growing pauses, until they run or have died too often.
func (m *Manager) revive(mods []*module, dead time.Time) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-m.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		var pause time.Duration
		mods = slices.DeleteFunc(mods, func(mod *module) bool {
			d, ok := m.pause(mod)
			pause = max(pause, d)
			return !ok
		})
		if len(mods) == 0 || !sleep(pause, m.stop) {
			return
		}
		orders, bin, err := m.missing(mods)
		var ins []*instance
		if err == nil && len(orders) > 0 {
			ins, err = m.startProcess(ctx, orders, bin)
		}
		mods = nil
		for i := range orders {
			e := err
			if e == nil {
				e = m.comeBack(ins[i], dead)
			}
			if e != nil && m.troubled(orders[i].mod, e) {
				mods = append(mods, orders[i].mod)
			}
		}
		if len(mods) == 0 {
			return
		}
	}
}

// missing returns those of mods that do not run and are still wanted, and the code that ran when they died: what was verified runs again,
// even if the file is another one by now.
func (m *Manager) missing(mods []*module) (orders []order, bin *binary, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mod := range mods {
		if !m.closed && !mod.gone && mod.inst == nil {
			orders = append(orders, order{mod, mod.spec, mod.changes})
		}
	}
	if len(orders) > 0 {
		bin, err = orders[0].mod.bin.dup()
	}
	return orders, bin, err
}

// troubled notes why a module could not be started again; false if there is no more reason to try.
func (m *Manager) troubled(mod *module, err error) bool {
	m.mu.Lock()
	mod.trouble = err.Error()
	closed := m.closed
	m.mu.Unlock()
	if !closed {
		m.note(mod, nil, Event{What: Refused, Detail: err.Error()})
	}
	return !closed
}

// comeBack attaches a restarted module, which gets its flows back. On an error it is stopped.
func (m *Manager) comeBack(in *instance, dead time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mod := in.mod
	if mod.inst != nil || mod.changes != in.changes { // a swap or an upgrade was faster
		m.discard(in)
		return nil
	}
	if err := m.attachLocked(in); err != nil {
		m.discard(in)
		return err
	}
	mod.restarts++
	mod.recover = since(dead)
	m.note(mod, in, Event{What: Recovered, Flows: in.returned, Took: mod.recover})
	return nil
}

// pause notes a death and returns how long to wait before the next restart; false if it has died too often.
func (m *Manager) pause(mod *module) (time.Duration, bool) {
	r := &m.use[mod.spec.Kind].Restart
	now := wallNow()
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(mod.deaths) > 0 && now.Sub(mod.deaths[0]) > r.Window {
		mod.deaths = mod.deaths[1:]
	}
	mod.deaths = append(mod.deaths, now)
	n := len(mod.deaths)
	if n > r.Limit {
		mod.failed = true
		m.note(mod, nil, Event{What: GaveUp, Detail: fmt.Sprintf("%d deaths within %v; the last: %s", n, r.Window, mod.trouble)})
		return 0, false
	}
	d := min(r.Min<<min(n-1, 30), r.Max)
	mod.restartAt = now.Add(d)
	return d, true
}

package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Upgrade has the module go on with the code of another file, whose checksum must be sha256 (hexadecimal): a process of it is started,
// checked, and put in the module's place in each worker between two turns. It gets the flows that are meant for the module, with Resume,
// and keeps its selections. If anything fails the old process goes on, and the error says why. Restarts use the new code; the
// configuration is not changed.
func (m *Manager) Upgrade(ctx context.Context, kind plugins.Kind, name, path, sha256 string) (SwapReport, error) {
	r, err := m.UpgradeWith(ctx, kind, name, path, sha256, Caution{})
	return r.SwapReport, err
}

// Set changes parameters of a module that runs: a fresh instance of the same code, with all other parameters as they are, takes its
// place as in Upgrade. If the module refuses them, nothing has changed. An empty value restores the default.
func (m *Manager) Set(ctx context.Context, kind plugins.Kind, name string, p plugins.Params) (SwapReport, error) {
	return m.locked(kind, name, func() (SwapReport, error) {
		if len(p) == 0 {
			return SwapReport{}, errors.New("no parameter is given")
		}
		return m.renew(ctx, kind, name, renewal{what: Changed, change: func(s *Spec) {
			all := plugins.Params{}
			maps.Copy(all, s.Params)
			for k, v := range p {
				if all[k] = v; v == "" {
					delete(all, k)
				}
			}
			s.Params = all
		}})
	})
}

// errRestarted says that a module got another process while a new one was started for it.
var errRestarted = errors.New("it was restarted just now; try again")

// renewal is a change of a module: of its code, or of its parameters.
type renewal struct {
	what   string // the event that tells of it
	change func(*Spec)
	bin    *binary // the code; nil: what the spec's file holds now, or, with Changed, what runs
	detail string  // of the event; empty: what has changed
}

// renew puts a fresh instance of a known module, with a changed spec, in its place.
func (m *Manager) renew(ctx context.Context, kind plugins.Kind, name string, r renewal) (rep SwapReport, err error) {
	bin := r.bin
	m.mu.Lock()
	mod, err := m.known(kind, name)
	if err != nil {
		m.mu.Unlock()
		bin.close()
		return rep, err
	}
	old, was, changes := mod.inst, mod.spec, mod.changes+1
	if r.what == Changed { // the same code, even if its file is another one by now
		if bin = mod.bin; old != nil {
			bin = old.bin
		}
		bin, err = bin.dup()
	}
	m.mu.Unlock()
	if err != nil {
		return rep, err
	}
	s := was
	r.change(&s)
	if err := s.check(); err != nil {
		bin.close()
		return rep, err
	}
	in, err := m.startAs(ctx, mod, s, changes, bin)
	if err != nil {
		return rep, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if mod.inst != old || mod.gone || m.closed {
		m.discard(in)
		return rep, errRestarted
	}
	mod.spec.become(&s)
	mod.changes = changes
	if err := m.replaceLocked(in, old); err != nil {
		mod.spec.become(&was)
		m.discard(in)
		return rep, err
	}
	mod.deaths = nil
	ev := Event{What: r.what, Flows: in.returned, Detail: r.detail}
	if ev.What == RolledBack {
		ev.To = m.active[kind].spec.Name
	} else {
		ev.Detail = changeOf(old, in, &was, &s)
	}
	m.note(mod, in, ev)
	return SwapReport{Flows: in.returned}, nil
}

// become takes over what a change may change. Kind and name, which are read without a lock, are not even written.
func (s *Spec) become(o *Spec) {
	s.Placement, s.Path, s.Args, s.SHA256, s.AllowUnpinned, s.Params = o.Placement, o.Path, o.Args, o.SHA256, o.AllowUnpinned, o.Params
}

// replaceLocked puts in in the place of old, which ends; nil if nothing runs there.
func (m *Manager) replaceLocked(in, old *instance) error {
	mod := in.mod
	if old == nil {
		if err := m.attachLocked(in); err != nil {
			return err
		}
	} else {
		var err error
		in.index = old.index
		if in.returned, err = m.cfg.Engine.Replace(mod.spec.Kind, in.index, in.modules); err != nil {
			return err
		}
		m.attached(in)
		m.dismiss(old)
	}
	if m.active[mod.spec.Kind] != mod {
		return nil
	}
	fb, err := m.setFallback(&mod.spec) // has the parameters of the module of its name
	if err == nil && fb.set && fb.index != m.fallback[mod.spec.Kind].index {
		err = m.cfg.Engine.Detach(mod.spec.Kind, fb.index)
	}
	if err != nil { // the module itself has changed
		m.cfg.Log.Warn("the fallback stays as it was", "module", mod.spec.String(), "error", err)
	}
	return nil
}

// dismiss ends an instance that no worker touches any more.
func (m *Manager) dismiss(in *instance) {
	close(in.stop)
	in.bin.close()
	m.note(in.mod, in, Event{What: Stopped})
	if in.proc == nil {
		return
	}
	m.wg.Go(func() {
		<-in.watched
		m.leave(in, departure{})
	})
}

// changeOf says what has changed.
func changeOf(old, in *instance, was, is *Spec) string {
	var parts []string
	if was.Path != is.Path || was.SHA256 != is.SHA256 {
		parts = append(parts, "file "+is.Path+", sha256:"+in.bin.sha)
	}
	if old != nil && old.info.Version != in.info.Version {
		parts = append(parts, "version "+old.info.Version+" → "+in.info.Version)
	}
	for _, k := range slices.Sorted(maps.Keys(merge(was.Params, is.Params))) {
		if from, to := was.Params[k], is.Params[k]; from != to {
			parts = append(parts, fmt.Sprintf("%s %s → %s", k, orDefault(from), orDefault(to)))
		}
	}
	return strings.Join(parts, ", ")
}

func merge(a, b plugins.Params) plugins.Params {
	all := maps.Clone(b)
	if all == nil {
		all = plugins.Params{}
	}
	maps.Copy(all, a)
	return all
}

func orDefault(s string) string {
	if s == "" {
		return "default"
	}
	return s
}

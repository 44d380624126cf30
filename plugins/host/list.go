package host

import (
	"fmt"
	"maps"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Status is one line of `ctl modules`.
type Status struct {
	Kind      plugins.Kind
	Name      string
	Version   string
	Placement Placement
	Role      string              // "active": serves new flows; "chosen": serves those of For; "standing": ready; "draining": serves old flows; "fallback"
	For       []plugins.Selection // with Role "active" or "chosen": what it was chosen for besides all others
	State     string              // "ready", "late", "dead", "restarting", "failed"
	Trouble   string              // why it is not running
	PID       int                 // 0 if linked in or not running
	Path      string              // of the process's binary
	File      bool                // that is not this very program
	Index     int                 // of the running instance in the engine
	SHA256    string              // of the file that was executed, in hexadecimal
	Flows     int                 // -1 if the engine does not count them
	Resumes   uint64              // flows that the running instance was handed while they were alive
	Restarts  int
	RestartIn time.Duration   // with State "restarting": until the next attempt; 0: it is under way
	Params    []plugins.Param // that the running instance documents
	Needs     []string        // features of the host that it needs
	Given     plugins.Params  // what it was given; the others have their defaults
	Since     time.Time       // of the running instance
	// Durations of the last death: until all flows were with the fallback, and until a new process served in its place. Both
	// count from the moment at which the death was known.
	FellBack, Recovered time.Duration
	Stats               Stats // of the running instance, over all workers
}

// List returns all modules: for each kind those that it can use, and its fallback.
func (m *Manager) List() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Status
	for k := range plugins.NumKinds {
		for _, mod := range m.modules {
			if mod.spec.Kind == k {
				list = append(list, m.status(mod))
			}
		}
		if fb := &m.fallback[k]; fb.set {
			list = append(list, Status{Kind: k, Name: fb.name, Version: fb.info.Version, Role: "fallback", State: "ready",
				Flows: m.flows(k, fb.index), Resumes: m.resumes(k, fb.index), Since: fb.since, Params: fb.info.Params, Needs: fb.info.Needs, Given: maps.Clone(fb.params)})
		}
	}
	return list
}

func (m *Manager) flows(k plugins.Kind, index int) int {
	if fc, ok := m.cfg.Engine.(FlowCounter); ok {
		return fc.Flows(k, index)
	}
	return -1
}

func (m *Manager) resumes(k plugins.Kind, index int) uint64 {
	if fc, ok := m.cfg.Engine.(FlowCounter); ok {
		return fc.Resumes(k, index)
	}
	return 0
}

func (m *Manager) status(mod *module) Status {
	s := Status{
		Kind: mod.spec.Kind, Name: mod.spec.Name, Placement: mod.spec.Placement, Role: "standing", State: "restarting",
		Trouble: mod.trouble, Restarts: mod.restarts, FellBack: mod.fellBack, Recovered: mod.recover,
		Given: maps.Clone(mod.spec.Params),
	}
	for _, r := range m.rules[s.Kind] {
		if r.mod == mod {
			s.For = append(s.For, r.sel)
		}
	}
	switch {
	case m.active[s.Kind] == mod:
		s.Role = "active"
	case len(s.For) > 0:
		s.Role = "chosen"
	case !mod.standing:
		s.Role = "draining"
	}
	if mod.failed {
		s.State = "failed"
	}
	in := mod.inst
	if in == nil {
		if !mod.failed && !mod.restartAt.IsZero() {
			s.RestartIn = max(-since(mod.restartAt), 0)
		}
		return s
	}
	s.Version, s.Since, s.State = in.info.Version, in.since, in.state().String()
	s.Index = in.index
	s.Flows, s.Resumes, s.Params = m.flows(s.Kind, in.index), m.resumes(s.Kind, in.index), in.info.Params
	s.Needs = in.info.Needs
	if in.proc != nil {
		s.PID, s.Path, s.SHA256, s.File = in.proc.child.Load().PID(), in.proc.path, in.proc.sha, !in.bin.own
		for _, r := range in.remotes {
			stats := r.Stats()
			s.Stats.Add(&stats)
		}
	}
	return s
}

func (s *Status) String() string {
	return fmt.Sprintf("%v/%s %s %v %s %s", s.Kind, s.Name, s.Version, s.Placement, s.Role, s.State)
}

// Package host starts, checks, watches, swaps and restarts modules: those that are linked in, and those that run as
// hashicorp/go-plugin processes of their own, whose data goes through shared-memory rings (package ring).
//
// The Manager lives beside the workers and talks to them through Engine. To a worker a module in a process is a plain
// plugins.Module, a *Remote, which is also a plugins.Remote.
package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Manager owns all modules of one engine.
type Manager struct {
	cfg       Config
	use       [plugins.NumKinds]Use
	events    eventList
	dir       string   // sockets of module processes
	lock      *os.File // held as long as dir is ours
	cgroups   *cgroups // nil: none can be made, or none is wanted
	noCgroups bool     // of tests
	stop      chan struct{}
	wg        sync.WaitGroup // goroutines that watch or restart

	swapping sync.Mutex // one Start, Swap or Close at a time

	mu       sync.Mutex // guards what follows and all of module; held across calls to the engine
	modules  []*module
	active   [plugins.NumKinds]*module // serves new flows that no rule is for
	rules    [plugins.NumKinds][]rule  // youngest first, as the engine has them
	fallback [plugins.NumKinds]fallback
	closed   bool
}

// module is a module that the manager knows.
type module struct {
	spec      Spec
	standing  bool      // configured: stays ready when it is not in use
	gone      bool      // it is no longer in Manager.modules
	changes   int       // of spec's code and parameters, by Upgrade and Set
	bin       *binary   // what ran when it died, for its revival
	inst      *instance // nil while it is not running
	place     int       // index in the engine that waits for its return, if held
	held      bool
	deaths    []time.Time
	restarts  int
	trouble   string        // why it is not running
	failed    bool          // given up
	restartAt time.Time     // the next attempt to start it again
	fellBack  time.Duration // of its last death
	recover   time.Duration
}

// instance is a running module: attached to the engine, in all workers.
type instance struct {
	mod      *module
	index    int
	returned int // flows that it got by taking the place of one that died
	changes  int // module.changes when it was started
	info     plugins.Info
	bin      *binary  // nil if linked in
	proc     *process // nil if linked in
	remotes  []remote
	modules  []any // what the engine gets
	notify   chan struct{}
	stop     chan struct{} // closed when it is detached on purpose
	watched  chan struct{} // closed when nobody watches it any more
	since    time.Time
}

// fallback is the built-in module that stands in for the active one.
type fallback struct {
	name   string
	params plugins.Params
	index  int
	info   plugins.Info
	since  time.Time
	set    bool
}

// New checks the configuration and returns a manager that has started nothing. The error holds all mistakes.
func New(cfg Config) (*Manager, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, stop: make(chan struct{})}
	m.events = eventList{log: cfg.Log, max: cfg.MaxEvents}
	for k := range m.use {
		kind := plugins.Kind(k)
		m.use[k] = Use{Spec: Spec{Kind: kind, Name: defaultNames[kind]}}
	}
	var errs []error
	seen := map[string]bool{}
	for _, u := range cfg.Use {
		if err := u.check(); err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[u.Kind.String()] {
			errs = append(errs, fmt.Errorf("two modules in use for %v", u.Kind))
		}
		seen[u.Kind.String()] = true
		fb := Spec{Kind: u.Kind, Name: u.fallbackFor(u.Name)}
		if err := fb.check(); err != nil {
			errs = append(errs, fmt.Errorf("fallback of %v: %w", &u.Spec, err))
		}
		m.use[u.Kind] = u
	}
	for k := range m.use {
		u := &m.use[k]
		if len(u.CPUs) > 0 && u.Guard.Late <= 0 {
			u.Guard.Late = 10 * time.Millisecond
		}
		u.Restart, u.Guard = u.Restart.withDefaults(), u.Guard.withDefaults()
		m.modules = append(m.modules, &module{spec: u.Spec, standing: true})
		seen[u.Spec.String()] = true
	}
	for _, s := range cfg.Standing {
		if err := s.check(); err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[s.String()] {
			errs = append(errs, fmt.Errorf("module %v is configured twice", &s))
		}
		seen[s.String()] = true
		m.modules = append(m.modules, &module{spec: s, standing: true})
	}
	if len(errs) == 0 {
		if err := m.checkTogether(); err != nil {
			errs = append(errs, fmt.Errorf("modules that share a process: %w", err))
		}
	}
	if iso := &cfg.Isolation; iso.Memory != 0 && iso.Memory < MinMemory {
		errs = append(errs, fmt.Errorf("memory limit of %d bytes for modules: at least %d are needed", iso.Memory, MinMemory))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return m, nil
}

// Start starts and checks all configured modules, and gives the flows to those in use. The engine's workers must run. On an
// error everything that was started is stopped again; the error names each module and the cause.
func (m *Manager) Start(ctx context.Context) error {
	m.swapping.Lock()
	defer m.swapping.Unlock()
	var err error
	if m.dir, m.lock, err = makeRunDir(m.cfg.RunDir); err != nil {
		return fmt.Errorf("directory for module sockets: %w", err)
	}
	if m.cfg.Isolation.UID != 0 {
		if err = os.Chmod(m.dir, 0o711); err != nil { // its modules' directories are theirs
			return errors.Join(err, m.closeAll())
		}
	}
	if iso := &m.cfg.Isolation; iso.Launcher != nil && iso.Memory > 0 && !m.noCgroups {
		if m.cgroups, err = newCgroups(); err != nil {
			m.cgroups = nil
			m.cfg.Log.Info("modules have no control groups: only what they map is limited", "why", err)
		}
	}
	if err = m.startAll(ctx); err != nil {
		return errors.Join(err, m.closeAll())
	}
	return nil
}

func (m *Manager) startAll(ctx context.Context) error {
	for k := range m.use {
		m.mu.Lock()
		_, err := m.setFallback(&m.modules[k].spec)
		m.mu.Unlock()
		if err != nil {
			return err
		}
	}
	// Processes take a while to start, mostly waiting: all at once.
	groups := m.groups()
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, group := range groups {
		wg.Go(func() {
			for j, err := range m.startGroup(ctx, group) {
				if err != nil {
					errs[i] = errors.Join(errs[i], fmt.Errorf("module %v: %w", &group[j].spec, err))
					m.note(group[j], nil, Event{What: Refused, Detail: err.Error()})
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, mod := range m.modules[:plugins.NumKinds] {
		// New flows from now on; there are none yet, unless the engine came with modules of its own.
		if _, err := m.cfg.Engine.Use(plugins.Kind(k), mod.inst.index, plugins.Selection{}); err != nil {
			return fmt.Errorf("module %v: %w", &mod.spec, err)
		}
		m.active[k] = mod
	}
	return nil
}

// start makes an instance of mod that has passed all checks and is not attached. Its code is bin; nil: what mod's file holds now.
func (m *Manager) start(ctx context.Context, mod *module, bin *binary) (*instance, error) {
	m.mu.Lock()
	s, changes := mod.spec, mod.changes
	m.mu.Unlock()
	return m.startAs(ctx, mod, s, changes, bin)
}

// startAs is start with another spec.
func (m *Manager) startAs(ctx context.Context, mod *module, s Spec, changes int, bin *binary) (*instance, error) {
	if s.Placement == Process {
		ins, err := m.startProcess(ctx, []order{{mod, s, changes}}, bin)
		if err != nil {
			return nil, err
		}
		return ins[0], nil
	}
	in := &instance{mod: mod, changes: changes, since: wallNow(), stop: make(chan struct{}), watched: make(chan struct{})}
	var err error
	in.modules, in.info, err = m.linkedIn(&s)
	close(in.watched)
	return in, err
}

// awaitLoops waits until the module's loops have started on the shared memory.
func (in *instance) awaitLoops(d time.Duration) error {
	ok := poll(d, in.proc.child.Load().exited, func() bool {
		for _, r := range in.remotes {
			if !r.running() {
				return false
			}
		}
		return true
	})
	if !ok {
		return errors.New("does not start its loop")
	}
	return nil
}

// attach gives a started instance to the engine and has it watched. On an error the instance is stopped.
func (m *Manager) attach(in *instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.attachLocked(in)
	if err != nil {
		m.discard(in)
	}
	return err
}

func (m *Manager) attachLocked(in *instance) (err error) {
	s := &in.mod.spec
	if m.closed || in.mod.gone {
		return errors.New("not wanted any more")
	}
	if in.mod.held {
		in.index = in.mod.place
		in.returned, err = m.cfg.Engine.Replace(s.Kind, in.index, in.modules)
	} else {
		in.index, err = m.cfg.Engine.Attach(s.Kind, s.Name, in.modules)
	}
	if err != nil {
		return err
	}
	m.attached(in)
	return nil
}

// attached notes that in runs.
func (m *Manager) attached(in *instance) {
	mod := in.mod
	mod.held = false
	mod.inst, mod.trouble, mod.failed = in, "", false
	mod.bin.close()
	mod.bin = nil
	if in.proc != nil {
		m.wg.Go(func() { m.watch(in) })
	}
	m.note(mod, in, Event{What: Started, Took: since(in.since)})
}

// setFallback attaches the module that stands in for s, unless it does so already, and returns the one before.
func (m *Manager) setFallback(s *Spec) (old fallback, err error) {
	old = m.fallback[s.Kind]
	fb := Spec{Kind: s.Kind, Name: m.use[s.Kind].fallbackFor(s.Name)}
	if fb.Name == s.Name {
		fb.Params = s.Params // the same algorithm, so the same tuning
	}
	if old.set && old.name == fb.Name && maps.Equal(old.params, fb.Params) {
		return old, nil
	}
	mods, info, err := m.linkedIn(&fb)
	if err != nil {
		return old, fmt.Errorf("fallback %v: %w", &fb, err)
	}
	index, err := m.cfg.Engine.Attach(fb.Kind, fb.Name, mods)
	if err == nil {
		err = m.cfg.Engine.SetFallback(fb.Kind, index)
	}
	if err != nil {
		return old, fmt.Errorf("fallback %v: %w", &fb, err)
	}
	m.fallback[s.Kind] = fallback{name: fb.Name, params: fb.Params, index: index, info: info, since: wallNow(), set: true}
	return old, nil
}

// note adds an event of a module.
func (m *Manager) note(mod *module, in *instance, e Event) {
	e.Kind, e.Name = mod.spec.Kind, mod.spec.Name
	if in != nil && in.proc != nil {
		e.PID = in.proc.child.Load().PID()
	}
	m.events.add(e)
}

// Events returns the last events, oldest first.
func (m *Manager) Events() []Event { return m.events.all() }

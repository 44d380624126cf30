package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// shared is what the modules of one process have in common: its end.
type shared struct {
	mu     sync.Mutex
	users  []*instance // that have not left
	died   []*module   // those that left because they died, and are to be started again
	at     time.Time   // when the first death was known
	pinned bool        // a worker may still touch the memory
}

// die makes all modules of the process dead, but for one.
func (p *process) die(why string, but *instance) {
	p.mu.Lock()
	users := slices.Clone(p.users)
	p.mu.Unlock()
	for _, in := range users {
		if in != but {
			in.die(why)
		}
	}
}

// departure is how a module leaves its process.
type departure struct {
	again  bool      // it has died, and is to be started again
	at     time.Time // when that was known
	pinned bool      // a worker may still touch the memory
}

// leave takes a module out of its process. The last one ends it, and has those started again that died with it, together. It is called by
// a goroutine of m.wg.
func (m *Manager) leave(in *instance, d departure) {
	p := in.proc
	p.mu.Lock()
	p.users = slices.DeleteFunc(p.users, func(o *instance) bool { return o == in })
	if d.again {
		p.died = append(p.died, in.mod)
		if p.at.IsZero() || d.at.Before(p.at) {
			p.at = d.at
		}
	}
	p.pinned = p.pinned || d.pinned
	last := len(p.users) == 0
	p.mu.Unlock()
	if !last {
		return
	}
	if len(p.died) > 0 {
		m.wg.Go(func() { m.revive(p.died, p.at) })
	}
	p.stop()
	if !p.pinned {
		p.free()
	}
}

// order is a module that is to run in a process, and as what.
type order struct {
	mod     *module
	spec    Spec
	changes int
}

// startProcess starts a process that runs all modules of orders, and returns their instances, which are not attached. The code is bin;
// nil: what their files hold now.
func (m *Manager) startProcess(ctx context.Context, orders []order, bin *binary) (ins []*instance, err error) {
	began := wallNow()
	var specs []Spec
	for i := range orders {
		specs = append(specs, orders[i].spec)
	}
	if bin == nil {
		if bin, err = m.openFor(specs); err != nil {
			return nil, err
		}
	}
	defer bin.close() // each instance has its own
	p, err := m.launch(ctx, specs, bin)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.stop()
			p.free()
			for _, in := range ins {
				in.bin.close()
			}
		}
	}()
	for i := range orders {
		o := &orders[i]
		in := &instance{mod: o.mod, changes: o.changes, since: began, stop: make(chan struct{}), watched: make(chan struct{}),
			proc: p, info: p.infos[o.spec.Kind], notify: make(chan struct{}, 1)}
		ins = append(ins, in)
		if in.bin, err = bin.dup(); err != nil {
			return ins, err
		}
		if in.remotes, err = m.remotes(o.spec.Kind, m.use[o.spec.Kind].Guard, p, in.notify); err != nil {
			return ins, err
		}
		for _, r := range in.remotes {
			in.modules = append(in.modules, r)
		}
	}
	p.users = slices.Clone(ins)
	for _, in := range ins {
		if err = in.awaitLoops(m.cfg.StartTimeout); err != nil {
			return ins, err
		}
	}
	return ins, nil
}

// openFor opens the binary that all of specs are in.
func (m *Manager) openFor(specs []Spec) (*binary, error) {
	b, err := m.open(&specs[0])
	if err != nil {
		return nil, err
	}
	for i := range specs[1:] {
		s := &specs[i+1]
		o, err := m.open(s)
		if err != nil {
			b.close()
			return nil, err
		}
		o.close()
		if o.sha != b.sha {
			b.close()
			return nil, fmt.Errorf("%v is in %s (sha256:%s) and %v in %s (sha256:%s): modules of one process are in one program",
				&specs[0], b.path, b.sha, s, o.path, o.sha)
		}
		if b.own {
			b.args = append(b.args, s.Kind.String(), s.Name)
		}
	}
	return b, nil
}

// groups returns the configured modules: those that share a process, then the others, each for itself.
func (m *Manager) groups() [][]*module {
	var all [][]*module
	var group []*module
	for _, k := range m.cfg.Together {
		group = append(group, m.modules[k])
	}
	if len(group) > 0 {
		all = append(all, group)
	}
	for _, mod := range m.modules {
		if !slices.Contains(group, mod) {
			all = append(all, []*module{mod})
		}
	}
	return all
}

// startGroup starts and attaches modules of one process, or one that is linked in. Each module that is not attached afterwards has an error.
func (m *Manager) startGroup(ctx context.Context, group []*module) (errs []error) {
	errs = make([]error, len(group))
	var ins []*instance
	var err error
	if len(group) == 1 {
		ins = make([]*instance, 1)
		ins[0], err = m.start(ctx, group[0], nil)
	} else {
		var orders []order
		for _, mod := range group {
			orders = append(orders, order{mod, mod.spec, mod.changes})
		}
		ins, err = m.startProcess(ctx, orders, nil)
	}
	for i := range group {
		if errs[i] = err; err == nil {
			errs[i] = m.attach(ins[i])
		}
	}
	return errs
}

// checkTogether says what is wrong with the kinds that are to share a process.
func (m *Manager) checkTogether() error {
	kinds := m.cfg.Together
	if len(kinds) == 1 {
		return fmt.Errorf("%v alone cannot share a process", kinds[0])
	}
	for i, k := range kinds {
		if k >= plugins.NumKinds {
			return fmt.Errorf("unknown module %v", k)
		}
		u, first := &m.use[k], &m.use[kinds[0]]
		switch {
		case slices.Contains(kinds[:i], k):
			return fmt.Errorf("%v is there twice", k)
		case u.Placement != Process:
			return fmt.Errorf("%v is linked in", &u.Spec)
		case !slices.Equal(u.CPUs, first.CPUs):
			return fmt.Errorf("%v has other processors than %v", &u.Spec, &first.Spec)
		case u.Path != "" && !slices.Equal(u.Args, first.Args):
			return errors.New("their programs have different arguments")
		}
	}
	return nil
}

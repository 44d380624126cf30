package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Lone is one instance of a module in a process of its own, without a Manager: nobody watches or restarts it. It runs in lockstep, so that
// it says the same each time, in simulations and conformance tests.
type Lone struct {
	Info   plugins.Info
	Module any    // an rtx.Module, pace.Module or cong.Module; also a plugins.Remote
	Seed   uint64 // that the module was given

	m    *Manager
	proc *process
	r    remote
}

// oneWorker is all that a Lone needs of an engine.
type oneWorker struct{ Engine }

func (oneWorker) Workers() int { return 1 }

// OpenLone starts the module whose binary is at path, whatever its name is, with the given parameters and seed. The error says what is
// wrong with the binary, the module or the parameters. The caller must Close it.
func OpenLone(ctx context.Context, kind plugins.Kind, path string, params plugins.Params, seed uint64) (_ *Lone, err error) {
	m := &Manager{cfg: Config{Engine: oneWorker{}, Lockstep: true, Seed: seed}, stop: make(chan struct{})}
	if err := m.cfg.setDefaults(); err != nil {
		return nil, err
	}
	l := &Lone{m: m, Seed: m.cfg.seed(kind, 0)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("module %s: %w", path, err), l.Close())
		}
	}()
	if m.dir, m.lock, err = makeRunDir(m.cfg.RunDir); err != nil {
		return nil, err
	}
	s := Spec{Kind: kind, Placement: Process, Path: path, AllowUnpinned: true, Params: params}
	b, err := m.open(&s)
	if err != nil {
		return nil, err
	}
	defer b.file.Close()
	if l.proc, err = m.launch(ctx, []Spec{s}, b); err != nil {
		return nil, err
	}
	l.Info = l.proc.infos[kind]
	rs, err := m.remotes(kind, Guard{}.withDefaults(), l.proc, make(chan struct{}, 1))
	if err != nil {
		return nil, err
	}
	l.r, l.Module = rs[0], rs[0]
	go func(c *child, r remote) {
		<-c.exited
		r.die("its process has ended")
	}(l.proc.child.Load(), l.r)
	return l, nil
}

// PID is the number of the process.
func (l *Lone) PID() int { return l.proc.child.Load().PID() }

// Fault says why the module is dead; "" if it is not.
func (l *Lone) Fault() string { return l.r.Fault() }

// Close ends the process. No worker may use the module any more.
func (l *Lone) Close() error {
	if l.proc != nil {
		l.proc.stop()
		l.proc.free()
		l.proc = nil
	}
	if l.m.lock == nil {
		return nil
	}
	err := errors.Join(l.m.lock.Close(), os.RemoveAll(l.m.dir))
	l.m.lock = nil
	return err
}

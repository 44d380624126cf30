package host

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// remote is what the manager needs of a *Remote[E, C].
type remote interface {
	plugins.Remote
	Fault() string
	Stats() Stats
	die(why string)
	running() bool
}

// running says whether the module's loop has started.
func (r *Remote[E, C]) running() bool { return r.lockstep || r.module.Ran.Load() != 0 }

// remotes makes the worker's side of a process, one Remote per worker.
func (m *Manager) remotes(kind plugins.Kind, g Guard, p *process, notify chan<- struct{}) ([]remote, error) {
	switch kind {
	case plugins.Rtx:
		return remotesOf(&rtxSchema, m, g, p, notify)
	case plugins.Pace:
		return remotesOf(&paceSchema, m, g, p, notify)
	case plugins.Cong:
		return remotesOf(&congSchema, m, g, p, notify)
	}
	return nil, fmt.Errorf("no records for module %v", kind)
}

func remotesOf[E, C any](sch *schema[E, C], m *Manager, g Guard, p *process, notify chan<- struct{}) ([]remote, error) {
	loops := (&link.AttachRequest{Geometry: p.geo, CPUs: m.use[sch.kind].CPUs}).Loops()
	var rs []remote
	for w := range p.geo.Workers {
		seg, err := link.Carve[E, C](sch.kind, p.geo, p.region.Host, p.region.Module, w)
		if err != nil {
			return nil, err
		}
		bell, err := p.bell(w % loops)
		if err != nil {
			return nil, err
		}
		r, err := newRemote(sch, seg, bell, g, m.cfg.Lockstep, notify)
		if err != nil {
			return nil, err
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// bell wakes the process's loop of that number, for whichever of its modules: see link.AttachRequest.Loops.
func (p *process) bell(loop int) (*ring.Bell, error) {
	switch first := p.geo.Kinds[0]; first {
	case plugins.Rtx:
		return bellOf[rtx.Event, rtx.Command](first, p, loop)
	case plugins.Pace:
		return bellOf[pace.Event, pace.Line](first, p, loop)
	default:
		return bellOf[cong.Sample, cong.Decision](first, p, loop)
	}
}

func bellOf[E, C any](kind plugins.Kind, p *process, loop int) (*ring.Bell, error) {
	seg, err := link.Carve[E, C](kind, p.geo, p.region.Host, p.region.Module, loop)
	if err != nil {
		return nil, err
	}
	return &seg.Host.Bell, nil
}

// linkedIn makes one instance of a built-in module per worker.
func (m *Manager) linkedIn(s *Spec) (perWorker []any, info plugins.Info, err error) {
	e, ok := builtin.Find(s.Kind, s.Name)
	if !ok {
		return nil, info, fmt.Errorf("not built in (built in are: %v)", builtin.Names(s.Kind))
	}
	for w := range m.cfg.Engine.Workers() {
		mod, err := e.New(s.Params, m.cfg.seed(s.Kind, w))
		if err != nil {
			return nil, info, fmt.Errorf("refuses its parameters: %w", err)
		}
		perWorker = append(perWorker, mod)
	}
	return perWorker, e.Info, nil
}

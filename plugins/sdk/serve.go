package sdk

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
)

// server answers the host's control calls.
type server struct {
	modules  []Module
	mu       sync.Mutex
	attached bool
}

func (s *server) Describe() (link.Descriptions, error) {
	var all link.Descriptions
	for j := range s.modules {
		i := &s.modules[j].Info
		layout, err := link.Layout(i.Kind)
		if err != nil {
			return all, err
		}
		all.Modules = append(all.Modules, link.Description{Kind: i.Kind.String(), Name: i.Name, Version: i.Version, Params: i.Params, Needs: i.Needs, Layout: layout})
	}
	return all, nil
}

// find returns the module of that kind and name, or nil.
func (s *server) find(kind plugins.Kind, name string) *Module {
	for i := range s.modules {
		if m := &s.modules[i]; m.Info.Kind == kind && m.Info.Name == name {
			return m
		}
	}
	return nil
}

// Attach makes the instances and starts the loops. A parameter that a factory refuses is InvalidArgument.
func (s *server) Attach(r *link.AttachRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached {
		return status.Error(codes.AlreadyExists, "this process is attached already")
	}
	work, err := s.workers(r)
	if err != nil {
		return err
	}
	s.attached = true
	loops := r.Loops()
	// A processor for each loop, and one for the control calls and the garbage collector.
	runtime.GOMAXPROCS(loops + 1)
	for i := range loops {
		var mine []link.Lane
		for w := i; w < len(work); w += loops {
			mine = append(mine, work[w].lanes...)
		}
		cpu := -1
		if i < len(r.CPUs) {
			cpu = r.CPUs[i]
		}
		go loop(mine, work[i].bell, cpu, r.Spin)
	}
	return nil
}

// worker is what this process runs for one worker of the host: an instance of each module.
type worker struct {
	lanes []link.Lane
	bell  *ring.Bell // of the first
}

// workers makes all instances, on the shared memory. Nothing is mapped before all parameters are accepted.
func (s *server) workers(r *link.AttachRequest) ([]worker, error) {
	g, err := r.Shape()
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "geometry: %v", err)
	}
	work := make([]worker, g.Workers)
	var place []func(host, module []byte) error
	for i, kind := range g.Kinds {
		c := &r.Modules[i]
		m := s.find(kind, c.Name)
		if m == nil {
			return nil, status.Errorf(codes.NotFound, "there is no %v module %s in this process", kind, c.Name)
		}
		var put func(host, module []byte) error
		switch kind {
		case plugins.Rtx:
			put, err = instances(kind, m.Rtx, g, c, r.Lockstep, work)
		case plugins.Pace:
			put, err = instances(kind, m.Pace, g, c, r.Lockstep, work)
		case plugins.Cong:
			put, err = instances(kind, m.Cong, g, c, r.Lockstep, work)
		}
		if err != nil {
			return nil, err
		}
		place = append(place, put)
	}
	host, module, err := link.MapInherited(g)
	if err != nil {
		return nil, err
	}
	for _, put := range place {
		if err := put(host, module); err != nil {
			return nil, err
		}
	}
	return work, nil
}

// instances makes one instance of a module per worker, and returns what puts them between their rings.
func instances[E, C any](kind plugins.Kind, factory plugins.New[E, C], g link.Geometry, c *link.Chosen, lockstep bool, work []worker) (
	put func(host, module []byte) error, err error) {
	if len(c.Seeds) != g.Workers {
		return nil, status.Errorf(codes.InvalidArgument, "%d seeds for %d workers", len(c.Seeds), g.Workers)
	}
	modules := make([]plugins.Module[E, C], g.Workers)
	for w := range modules {
		if modules[w], err = factory(c.Params, c.Seeds[w]); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "parameters: %v", err)
		}
	}
	return func(host, module []byte) error {
		for w, m := range modules {
			seg, err := link.Carve[E, C](kind, g, host, module, w)
			if err != nil {
				return err
			}
			lane, err := link.NewLane(m, seg, lockstep)
			if err != nil {
				return fmt.Errorf("worker %d: %w", w, err)
			}
			if work[w].lanes = append(work[w].lanes, lane); work[w].bell == nil {
				work[w].bell = &seg.Host.Bell
			}
		}
		return nil
	}, nil
}

// loop runs lanes for the rest of the process's life.
func loop(lanes []link.Lane, bell *ring.Bell, cpu int, spin time.Duration) {
	runtime.LockOSThread()
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			// Without a processor of its own a spinning loop would harm others.
			slog.Warn("module cannot have its processor: it parks when idle instead", "cpu", cpu, "error", err)
			spin = 0
		}
	}
	var never atomic.Bool
	link.Loop(lanes, bell, spin, &never)
}

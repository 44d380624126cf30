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
	module   Module
	mu       sync.Mutex
	attached bool
}

func (s *server) Describe() (link.Description, error) {
	i := &s.module.Info
	layout, err := link.Layout(i.Kind)
	if err != nil {
		return link.Description{}, err
	}
	return link.Description{Kind: i.Kind.String(), Name: i.Name, Version: i.Version, Params: i.Params, Layout: layout}, nil
}

// Attach makes the instances and starts the loops. A parameter that a factory refuses is InvalidArgument.
func (s *server) Attach(r *link.AttachRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached {
		return status.Error(codes.AlreadyExists, "this process is attached already")
	}
	var err error
	var lanes []link.Lane
	var bells []*ring.Bell
	switch s.module.Info.Kind {
	case plugins.Rtx:
		lanes, bells, err = instances(plugins.Rtx, s.module.Rtx, r)
	case plugins.Pace:
		lanes, bells, err = instances(plugins.Pace, s.module.Pace, r)
	case plugins.Cong:
		lanes, bells, err = instances(plugins.Cong, s.module.Cong, r)
	}
	if err != nil {
		return err
	}
	s.attached = true
	loops := r.Loops()
	// A processor for each loop, and one for the control calls and the garbage collector.
	runtime.GOMAXPROCS(loops + 1)
	for i := range loops {
		var mine []link.Lane
		for w := i; w < len(lanes); w += loops {
			mine = append(mine, lanes[w])
		}
		cpu := -1
		if i < len(r.CPUs) {
			cpu = r.CPUs[i]
		}
		go loop(mine, bells[i], cpu, r.Spin)
	}
	return nil
}

func instances[E, C any](kind plugins.Kind, factory plugins.New[E, C], r *link.AttachRequest) ([]link.Lane, []*ring.Bell, error) {
	g := r.Geometry
	if len(r.Seeds) != g.Workers {
		return nil, nil, status.Errorf(codes.InvalidArgument, "%d seeds for %d workers", len(r.Seeds), g.Workers)
	}
	modules := make([]plugins.Module[E, C], g.Workers)
	for w := range modules {
		m, err := factory(r.Params, r.Seeds[w])
		if err != nil {
			return nil, nil, status.Errorf(codes.InvalidArgument, "parameters: %v", err)
		}
		modules[w] = m
	}
	host, module, err := link.MapInherited(kind, g)
	if err != nil {
		return nil, nil, err
	}
	lanes := make([]link.Lane, g.Workers)
	bells := make([]*ring.Bell, g.Workers)
	for w, m := range modules {
		seg, err := link.Carve[E, C](kind, g, host, module, w)
		if err != nil {
			return nil, nil, err
		}
		if lanes[w], err = link.NewLane(m, seg, r.Lockstep); err != nil {
			return nil, nil, fmt.Errorf("worker %d: %w", w, err)
		}
		bells[w] = &seg.Host.Bell
	}
	return lanes, bells, nil
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

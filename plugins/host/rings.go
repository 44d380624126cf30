package host

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// OpenRings runs a module in a goroutine of its own, behind rings in this process's memory and in lockstep: what a conformance test
// compares with the module itself. It returns an rtx.Module, pace.Module or cong.Module; close ends the goroutine.
func OpenRings(m *sdk.Module, p plugins.Params, seed uint64) (module any, close func(), err error) {
	switch m.Info.Kind {
	case plugins.Rtx:
		return openRings(&rtxSchema, m.Rtx, p, seed)
	case plugins.Pace:
		return openRings(&paceSchema, m.Pace, p, seed)
	case plugins.Cong:
		return openRings(&congSchema, m.Cong, p, seed)
	}
	return nil, nil, fmt.Errorf("no records for module %v", m.Info.Kind)
}

func openRings[E, C any](sch *schema[E, C], factory plugins.New[E, C], p plugins.Params, seed uint64) (any, func(), error) {
	m, err := factory(p, seed)
	if err != nil {
		return nil, nil, err
	}
	const slots = 4096
	seg := link.NewSegment[E, C](slots, slots)
	lane, err := link.NewLane(m, seg, true)
	if err != nil {
		return nil, nil, err
	}
	r, err := newRemote(sch, seg, &seg.Host.Bell, Guard{}, true, make(chan struct{}, 1))
	if err != nil {
		return nil, nil, err
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { link.Loop([]link.Lane{lane}, &seg.Host.Bell, 0, &stop) })
	return r, func() {
		stop.Store(true)
		seg.Host.Bell.Ring()
		wg.Wait()
	}, nil
}

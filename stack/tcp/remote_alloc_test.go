package tcp

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// elsewhere is a module as if in another process, which loses the events of one flow in every turn.
type elsewhere struct {
	plugins.Module[congSample, congDecision]
	flow    plugins.Flow
	dropped int
}

func (e *elsewhere) State() plugins.RemoteState { return plugins.Ready }
func (e *elsewhere) Room() int                  { return 1 << 10 }
func (e *elsewhere) Dropped(dst []plugins.Flow) []plugins.Flow {
	e.dropped++
	return append(dst, e.flow)
}

// A turn with a module in another process allocates nothing, even if flows must be resumed.
func TestRemoteAllocs(t *testing.T) {
	r := newReceiver(t)
	en, ok := builtin.Find(plugins.Cong, "cubic")
	if !ok {
		t.Fatal("no cubic")
	}
	m, err := en.New(plugins.Params{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	away := &elsewhere{Module: m.(plugins.Module[congSample, congDecision]), flow: r.c.flow()}
	i, err := r.e.Attach(plugins.Cong, "cubic", away)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.Use(plugins.Cong, i, plugins.Selection{}); err != nil {
		t.Fatal(err)
	}
	turn := func() { r.turn(32); r.read() }
	for range 100 {
		turn()
	}
	before := away.dropped
	if n := testing.AllocsPerRun(500, turn); n != 0 {
		t.Errorf("%v allocations per turn", n)
	}
	if away.dropped == before {
		t.Error("the module was not asked for the flows that it lost")
	}
}

package plugtest

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// RtxLockstep checks that two makers make modules that say the same, turn by turn: one linked in, say, the other behind rings in lockstep.
// The course of the emulated paths depends on what is said.
func RtxLockstep(t *testing.T, one, other rtx.New) {
	t.Helper()
	polls, commands := 0, 0
	make := func(p plugins.Params, seed uint64) (rtx.Module, error) {
		return newBoth(t, one, other, p, seed, &polls, &commands)
	}
	for _, s := range scenarios {
		if s.packets <= 2000 { // each turn waits for another goroutine, or process
			newPath(t, make, s).run()
		}
	}
	same(t, make, rtxEvents(rand.New(rand.NewPCG(5, 6)), 30_000), func(e *rtx.Event) (plugins.Time, bool) {
		return e.Time, e.Kind == rtx.EvOpen || e.Kind == rtx.EvResume
	})
	if commands < 10_000 {
		t.Errorf("only %d commands were compared", commands)
	}
	t.Logf("%d commands of %d turns are the same", commands, polls)
}

// PaceLockstep is RtxLockstep for pacing modules.
func PaceLockstep(t *testing.T, one, other pace.New) {
	t.Helper()
	polls, commands := 0, 0
	make := func(p plugins.Params, seed uint64) (pace.Module, error) {
		return newBoth(t, one, other, p, seed, &polls, &commands)
	}
	same(t, make, paceEvents(rand.New(rand.NewPCG(5, 6)), 30_000), func(e *pace.Event) (plugins.Time, bool) {
		return e.Time, e.Kind == pace.EvOpen || e.Kind == pace.EvResume
	})
	if commands < 4000 {
		t.Errorf("only %d commands were compared", commands)
	}
	t.Logf("%d commands of %d turns are the same", commands, polls)
}

// same feeds events in batches of any size, with room for few answers or many. A slot is used again only when all answers have been
// read: the host drops those for a flow that is gone, which a module that is linked in leaves to the engine.
func same[E, C any](t *testing.T, make func(plugins.Params, uint64) (plugins.Module[E, C], error), evs []E, look func(*E) (at plugins.Time, opens bool)) {
	t.Helper()
	m, err := make(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	var out [32]C
	for len(evs) > 0 {
		n := min(1+rng.IntN(40), len(evs))
		now, _ := look(&evs[0])
		for i := 1; i < n; i++ {
			at, opens := look(&evs[i])
			if opens {
				n = i
				break
			}
			now = at
		}
		in := evs[:n]
		evs = evs[n:]
		for room := 1 + rng.IntN(len(out)); ; in = nil {
			if n := m.Poll(now, in, out[:room]); n < room && m.Deadline() > now {
				break
			}
		}
	}
}

// both is two modules that must say the same.
type both[E, C any] struct {
	t               *testing.T
	one, other      plugins.Module[E, C]
	now             plugins.Time
	out             []C
	polls, commands *int
}

func newBoth[E, C any](t *testing.T, one, other plugins.New[E, C], p plugins.Params, seed uint64, polls, commands *int) (plugins.Module[E, C], error) {
	a, err := one(p, seed)
	if err != nil {
		return nil, err
	}
	b, err := other(p, seed)
	return &both[E, C]{t: t, one: a, other: b, polls: polls, commands: commands}, err
}

// Poll implements plugins.Module.
func (m *both[E, C]) Poll(now plugins.Time, in []E, out []C) int {
	m.t.Helper()
	if len(m.out) < len(out) {
		m.out = make([]C, len(out))
	}
	m.now = now
	n := m.one.Poll(now, in, out)
	k := m.other.Poll(now, in, m.out[:len(out)])
	if diff := cmp.Diff(out[:n], m.out[:k]); diff != "" {
		m.t.Fatalf("turn %d at %d with %d events: one (-), the other (+):\n%s", *m.polls, now, len(in), diff)
	}
	*m.polls++
	*m.commands += n
	return n
}

// Deadline implements plugins.Module. A point in time that has come is now.
func (m *both[E, C]) Deadline() plugins.Time {
	a, b := max(m.one.Deadline(), m.now), max(m.other.Deadline(), m.now)
	if a != b {
		m.t.Fatalf("turn %d at %d: deadline %d of one, %d of the other", *m.polls, m.now, a, b)
	}
	return a
}

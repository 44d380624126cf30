package plugtest

import (
	"os"
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// Main is the TestMain of a package that calls Run: its test binary is the modules' binary, too, when fastpath's host starts it as one.
//
//	func TestMain(m *testing.M) { plugtest.Main(m, module) }
//	func TestModule(t *testing.T) { plugtest.Run(t, module) }
func Main(m *testing.M, modules ...sdk.Module) {
	if sdk.Started() {
		sdk.Serve(modules...)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Run puts a module to the whole conformance suite of its kind: called directly; behind rings; and in a process of its own, which is this
// test binary (see Main). Behind rings and in the process it must say the same as called directly, turn by turn.
func Run(t *testing.T, module sdk.Module) {
	if err := module.Check(); err != nil {
		t.Fatal(err)
	}
	t.Run("direct", func(t *testing.T) { conformance(t, &module) })
	placements(t, &module)
}

// placements compares the module with itself behind rings, and in a process of its own.
func placements(t *testing.T, module *sdk.Module) {
	t.Run("rings", func(t *testing.T) {
		lockstep(t, module, func(p plugins.Params, seed uint64) (any, uint64, error) {
			m, end, err := host.OpenRings(module, p, seed)
			if err == nil {
				t.Cleanup(end)
			}
			return m, seed, err
		})
	})
	t.Run("process", func(t *testing.T) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		lockstep(t, module, func(p plugins.Params, seed uint64) (any, uint64, error) {
			l, err := host.OpenLone(t.Context(), module.Info.Kind, exe, p, seed)
			if err != nil {
				return nil, 0, err
			}
			t.Cleanup(func() {
				if f := l.Fault(); f != "" {
					t.Error(f)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			if l.Info.Name != module.Info.Name || l.Info.Version != module.Info.Version {
				t.Errorf("the process is %s %s, not %s %s: is its Main called?", l.Info.Name, l.Info.Version, module.Info.Name, module.Info.Version)
			}
			return l.Module, l.Seed, nil
		})
	})
}

func conformance(t *testing.T, m *sdk.Module) {
	switch m.Info.Kind {
	case plugins.Rtx:
		Rtx(t, m.Rtx)
	case plugins.Pace:
		Pace(t, m.Pace)
	case plugins.Cong:
		congtest.Run(t, func(seed uint64) (cong.Module, error) { return m.Cong(nil, seed) })
	}
}

// lockstep compares the module with another placement of it, which tells the seed that it gives to the module.
func lockstep(t *testing.T, m *sdk.Module, place func(plugins.Params, uint64) (any, uint64, error)) {
	t.Helper()
	switch m.Info.Kind {
	case plugins.Rtx:
		direct, placed := pair(m.Rtx, place)
		RtxLockstep(t, direct, placed)
	case plugins.Pace:
		direct, placed := pair(m.Pace, place)
		PaceLockstep(t, direct, placed)
	case plugins.Cong:
		direct, placed := pair(m.Cong, place)
		CongLockstep(t, direct, placed)
	}
}

// pair makes factories of the module itself and of its other placement, which see the same seed: the first one waits for the second's.
func pair[E, C any, N ~func(plugins.Params, uint64) (plugins.Module[E, C], error)](factory N, place func(plugins.Params, uint64) (any, uint64, error)) (direct, placed N) {
	var next plugins.Module[E, C]
	direct = func(p plugins.Params, seed uint64) (plugins.Module[E, C], error) {
		m, given, err := place(p, seed)
		if err != nil {
			return nil, err
		}
		next = m.(plugins.Module[E, C])
		return factory(p, given)
	}
	placed = func(plugins.Params, uint64) (plugins.Module[E, C], error) { return next, nil }
	return direct, placed
}

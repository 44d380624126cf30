package plugtest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// builtinModule is an entry of the list as a module of its own.
func builtinModule(kind plugins.Kind, name string) sdk.Module {
	e, ok := builtin.Find(kind, name)
	if !ok {
		panic(name)
	}
	return sdk.Module{Info: e.Info, Rtx: e.Rtx, Pace: e.Pace, Cong: e.Cong}
}

// The test binary is the binary of a module that the environment names: as Main's, but for more than one.
func TestMain(m *testing.M) {
	kind, name, ok := strings.Cut(os.Getenv("GODEBUG"), "/") // which a module's process inherits
	if k, err := plugins.ParseKind(strings.TrimPrefix(kind, "fastpathtest=")); ok && err == nil && sdk.Started() {
		Main(m, builtinModule(k, name))
	}
	os.Exit(m.Run())
}

// One module of each kind, and congestion control that draws at random, go through all of Run.
func TestRun(t *testing.T) {
	for _, m := range []sdk.Module{builtinModule(plugins.Rtx, "btree"), builtinModule(plugins.Pace, "edt"), builtinModule(plugins.Cong, "reno"), builtinModule(plugins.Cong, "bbr")} {
		t.Run(m.Info.Kind.String()+" "+m.Info.Name, func(t *testing.T) {
			t.Setenv("GODEBUG", "fastpathtest="+m.Info.Kind.String()+"/"+m.Info.Name)
			if m.Info.Kind == plugins.Pace {
				Run(t, m)
			} else { // its package runs the suite
				placements(t, &m)
			}
		})
	}
}

// Every other module of the list says the same linked in and behind rings.
func TestRings(t *testing.T) {
	for _, e := range builtin.All() {
		if slices.Contains([]string{"btree", "edt", "reno", "bbr"}, e.Info.Name) { // see TestRun
			continue
		}
		t.Run(e.Info.Kind.String()+" "+e.Info.Name, func(t *testing.T) {
			m := sdk.Module{Info: e.Info, Rtx: e.Rtx, Pace: e.Pace, Cong: e.Cong}
			lockstep(t, &m, func(p plugins.Params, seed uint64) (any, uint64, error) {
				r, end, err := host.OpenRings(&m, p, seed)
				if err == nil {
					t.Cleanup(end)
				}
				return r, seed, err
			})
		})
	}
}

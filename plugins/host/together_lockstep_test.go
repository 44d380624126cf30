package host_test

import (
	"os"
	"sync"
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/plugtest"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// crew hands out modules that share processes: the n-th module of each kind is in the n-th process.
type crew struct {
	t     *testing.T
	names [plugins.NumKinds]string
	mu    sync.Mutex
	procs []*host.IdleEngine
	taken [plugins.NumKinds]int
}

func (c *crew) next(k plugins.Kind, seed uint64) (module any, given uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.taken[k]
	c.taken[k]++
	cfg := host.Config{Engine: &host.IdleEngine{}, Lockstep: true, Seed: seed, RunDir: c.t.TempDir()}
	for len(c.procs) <= n {
		e := &host.IdleEngine{}
		cfg.Engine = e
		for k := range plugins.NumKinds {
			cfg.Use = append(cfg.Use, host.Use{Spec: host.Spec{Kind: k, Name: c.names[k], Placement: host.Process}})
			cfg.Together = append(cfg.Together, k)
		}
		dir, err := os.MkdirTemp("", "fp") // short: it holds sockets
		if err != nil {
			return nil, 0, err
		}
		cfg.RunDir = dir
		m, err := host.New(cfg)
		if err == nil {
			err = m.Start(c.t.Context())
		}
		if err != nil {
			return nil, 0, err
		}
		c.t.Cleanup(func() {
			for _, s := range m.List() {
				if s.Role == "active" && s.State != "ready" {
					c.t.Errorf("%v/%s is %s: %s", s.Kind, s.Name, s.State, s.Trouble)
				}
			}
			if err := m.Close(); err != nil {
				c.t.Error(err)
			}
			os.RemoveAll(dir)
		})
		c.procs = append(c.procs, e)
	}
	return c.procs[n].Remote(k), host.SeedOf(&cfg, k, 0), nil
}

// makers are factories of a built-in module, and of the same one in a shared process, with the same seed.
func makers[E, C any, N ~func(plugins.Params, uint64) (plugins.Module[E, C], error)](c *crew, k plugins.Kind, linked N) (direct, placed N) {
	var next any
	direct = func(p plugins.Params, seed uint64) (plugins.Module[E, C], error) {
		m, given, err := c.next(k, seed)
		if err != nil {
			return nil, err
		}
		next = m
		return linked(p, given)
	}
	placed = func(plugins.Params, uint64) (plugins.Module[E, C], error) { return next.(plugins.Module[E, C]), nil }
	return direct, placed
}

// Modules that share a process, each driven by a history of its own, all at the same time, say turn by turn what they say linked in.
func TestTogetherLockstep(t *testing.T) {
	c := &crew{t: t, names: [plugins.NumKinds]string{"btree", "edt", "bbr"}}
	var entry [plugins.NumKinds]builtin.Entry
	for k := range plugins.NumKinds {
		entry[k], _ = builtin.Find(k, c.names[k])
	}
	t.Run("kinds", func(t *testing.T) {
		t.Run("rtx", func(t *testing.T) {
			t.Parallel()
			direct, placed := makers[rtx.Event, rtx.Command](c, plugins.Rtx, entry[plugins.Rtx].Rtx)
			plugtest.RtxLockstep(t, direct, placed)
		})
		t.Run("pace", func(t *testing.T) {
			t.Parallel()
			direct, placed := makers[pace.Event, pace.Line](c, plugins.Pace, entry[plugins.Pace].Pace)
			plugtest.PaceLockstep(t, direct, placed)
		})
		t.Run("cong", func(t *testing.T) {
			t.Parallel()
			direct, placed := makers[cong.Sample, cong.Decision](c, plugins.Cong, entry[plugins.Cong].Cong)
			plugtest.CongLockstep(t, direct, placed)
		})
	})
}

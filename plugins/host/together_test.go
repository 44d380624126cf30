package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
)

var allKinds = []plugins.Kind{plugins.Rtx, plugins.Pace, plugins.Cong}

// togetherConfig has all kinds in one process: this binary's own modules, or its test module of the mode.
func togetherConfig(t testing.TB, e Engine, mode string) Config {
	cfg := testConfig(t, e, Spec{})
	use := cfg.Use[0]
	cfg.Use, cfg.Together = nil, allKinds
	for k, name := range map[plugins.Kind]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"} {
		u := use
		if u.Spec = (Spec{Kind: k, Name: name, Placement: Process}); mode != "" {
			u.Spec = testSpec(t, mode)
			if u.Kind = k; k != plugins.Cong {
				u.Name = name
			}
		}
		cfg.Use = append(cfg.Use, u)
	}
	return cfg
}

// pids are the processes of the kinds' active modules, 0 where there is none.
func (m *Manager) pids() (p [plugins.NumKinds]int) {
	for _, s := range m.List() {
		if s.Role == "active" && s.State == "ready" {
			p[s.Kind] = s.PID
		}
	}
	return p
}

func (m *Manager) kindEvent(k plugins.Kind, what string) *Event {
	for _, e := range m.Events() {
		if e.Kind == k && e.What == what {
			return &e
		}
	}
	return nil
}

// together reports whether all kinds are served by one process, which is not that of pid.
func (m *Manager) together(not int) bool {
	p := m.pids()
	return p[0] != 0 && p[0] != not && p[1] == p[0] && p[2] == p[0]
}

func TestTogetherServes(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	m := startManager(t, togetherConfig(t, e, ""))
	if !m.together(0) || len(children(t)) != 1 {
		t.Fatalf("processes %v, children %v", m.pids(), children(t))
	}
	waitFor(t, "answers", func() bool { return e.serving() == "cubic remote=true" && e.answers() > 1000 })
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", m.pids()[0]))
	if err != nil || strings.TrimSpace(string(comm)) != "fp-modules" {
		t.Errorf("process is called %q, %v", comm, err)
	}
}

// A process that ends takes all its modules with it; they come back together, in a new one.
func TestTogetherCrash(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	m := startManager(t, togetherConfig(t, e, ""))
	pid := m.pids()[0]
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a new process", func() bool { return m.together(pid) })
	waitFor(t, "answers", func() bool { return e.serving() == "cubic remote=true" && e.answers() > 100 })
	for _, k := range allKinds {
		crashed := m.kindEvent(k, Crashed)
		if crashed == nil || crashed.PID != pid || !strings.Contains(crashed.Detail, "the process has ended: signal: killed") || m.kindEvent(k, FellBack) == nil ||
			m.kindEvent(k, Recovered) == nil {
			t.Errorf("%v: %+v\n%s", k, crashed, dump(m))
		}
	}
	waitFor(t, "one child", func() bool { return len(children(t)) == 1 })
}

// A module that breaks the protocol is not to be trusted with the memory of the others in its process.
func TestTogetherOneBreaksTheProtocol(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := togetherConfig(t, e, "together-liar")
	for i := range cfg.Use {
		cfg.Use[i].Restart.Limit = 1
	}
	m := startManager(t, cfg)
	waitFor(t, "giving up", func() bool {
		return m.kindEvent(plugins.Rtx, GaveUp) != nil && m.kindEvent(plugins.Pace, GaveUp) != nil && m.kindEvent(plugins.Cong, GaveUp) != nil
	})
	waitFor(t, "the fallback", func() bool { return e.serving() == "cubic remote=false" })
	for k, want := range map[plugins.Kind]string{plugins.Cong: "command for slot 1048576", plugins.Rtx: "cong/third, in the same process, is dead: command for slot 1048576",
		plugins.Pace: "cong/third, in the same process, is dead: command for slot 1048576"} {
		if ev := m.kindEvent(k, Crashed); !strings.HasPrefix(ev.Detail, want) {
			t.Errorf("%v died of: %s", k, ev.Detail)
		}
	}
	waitFor(t, "no children", func() bool { return len(children(t)) == 0 })
	// An operator may try each again, alone.
	if _, err := m.Swap(t.Context(), plugins.Rtx, "btree", plugins.Selection{}); err != nil {
		t.Fatal(err)
	}
	if p := m.pids(); p[plugins.Rtx] == 0 || p[plugins.Pace] != 0 || p[plugins.Cong] != 0 {
		t.Errorf("processes %v", p)
	}
}

// Flows go from a module in a shared process to another one and back, and a fresh instance of it has a process of its own; all that leaves the
// others of its process in peace.
func TestTogetherSwap(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	m := startManager(t, togetherConfig(t, e, ""))
	shared := m.pids()[0]
	swap := func(name string) {
		t.Helper()
		if rep, err := m.Swap(t.Context(), plugins.Cong, name, plugins.Selection{}); err != nil || rep.Flows != 10 {
			t.Fatalf("%+v, %v\n%s", rep, err, dump(m))
		}
		waitFor(t, "answers", func() bool { return e.serving() == name+" remote=true" && e.answers() > 100 })
		if p := m.pids(); p[plugins.Rtx] != shared || p[plugins.Pace] != shared {
			t.Fatalf("processes %v\n%s", p, dump(m))
		}
	}
	swap("reno") // as its kind is placed: in a process
	if s := m.find("cubic", "standing"); s.PID != shared || s.State != "ready" {
		t.Errorf("the old module does not stand by: %+v", s)
	}
	swap("cubic")
	if m.pids()[plugins.Cong] != shared {
		t.Errorf("processes %v", m.pids())
	}
	swap("cubic") // a fresh instance
	own := m.pids()[plugins.Cong]
	if own == shared {
		t.Errorf("processes %v", m.pids())
	}
	waitFor(t, "the end of reno's process", func() bool { return len(children(t)) == 2 })
	if _, err := m.Set(t.Context(), plugins.Rtx, "btree", plugins.Params{}); err == nil {
		t.Error("no parameter is a change")
	}
	// What has left is not touched by the end of the others, which come back without it.
	_ = unix.Kill(shared, unix.SIGKILL)
	waitFor(t, "the others' return", func() bool {
		p := m.pids()
		return p[plugins.Rtx] != 0 && p[plugins.Rtx] != shared && p[plugins.Pace] == p[plugins.Rtx]
	})
	if p := m.pids(); p[plugins.Cong] != own {
		t.Errorf("processes %v, congestion control's was %d\n%s", p, own, dump(m))
	}
	// The last one to leave ends the process.
	shared = m.pids()[plugins.Rtx]
	for _, k := range []plugins.Kind{plugins.Rtx, plugins.Pace} {
		if _, err := m.Swap(t.Context(), k, [...]string{"btree", "edt"}[k], plugins.Selection{}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "its end", func() bool { return unix.Kill(shared, 0) != nil && len(children(t)) == 3 })
}

// What a process says about itself, and what it then does, is not taken on trust.
func TestTogetherRefusals(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := copyFile(testSpec(t, "").Path, other); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		mode   string
		change func(*Config)
		want   string
	}{
		"not all":          {"good", nil, "is the module cong/third"},
		"one twice":        {"together-twice", nil, "has more than one rtx module btree"},
		"too many":         {"together-many", nil, "says that it is 1000 modules (at most 64)"},
		"another layout":   {"together-layout", nil, "was built for other pace records"},
		"one of them dead": {"together-lazy", nil, "does not start its loop"},
		"two programs": {"together", func(c *Config) {
			for i := range c.Use {
				if c.Use[i].Kind == plugins.Pace {
					c.Use[i].Path = other
				}
			}
		}, "modules of one process are in one program"},
		"a bad parameter of one": {"together", func(c *Config) {
			for i := range c.Use {
				if c.Use[i].Kind == plugins.Cong {
					c.Use[i].Params = plugins.Params{"beta": "1"}
				}
			}
		}, `refuses its parameters: unknown parameter "beta"`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := togetherConfig(t, newFakeEngine(t, 1, 1), tc.mode)
			if tc.mode == "together-lazy" { // which is waited for in vain; others may be slow
				cfg.StartTimeout = 3 * time.Second
			}
			if tc.change != nil {
				tc.change(&cfg)
			}
			m, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Start(context.Background()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			waitFor(t, "no children", func() bool { return len(children(t)) == 0 })
		})
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(b, 0), 0o755) // a program, with another checksum
}

func TestTogetherConfig(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"cong alone cannot share a process": func(c *Config) { c.Together = []plugins.Kind{plugins.Cong} },
		"rtx is there twice":                func(c *Config) { c.Together = []plugins.Kind{plugins.Rtx, plugins.Cong, plugins.Rtx} },
		"unknown module":                    func(c *Config) { c.Together = []plugins.Kind{plugins.Rtx, 7} },
		"pace/none is linked in": func(c *Config) {
			for i := range c.Use {
				if c.Use[i].Kind == plugins.Pace {
					c.Use[i].Spec = Spec{Kind: plugins.Pace, Name: "none"}
				}
			}
		},
		"cong/cubic has other processors than rtx/btree": func(c *Config) {
			for i := range c.Use {
				if c.Use[i].Kind == plugins.Cong {
					c.Use[i].CPUs = []int{0}
				}
			}
		},
	} {
		cfg := togetherConfig(t, &idleEngine{}, "")
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

package host

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// testSpec is this binary as a module of the mode.
func testSpec(t testing.TB, mode string) Spec {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Kind: plugins.Cong, Name: "third", Placement: Process, Path: exe, Args: []string{"test-module", mode}, AllowUnpinned: true}
}

func testConfig(t testing.TB, e Engine, use Spec, standing ...Spec) Config {
	dir, err := os.MkdirTemp("", "fp") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{
		Engine: e, RunDir: dir, Seed: 1, Ring: 256, StartTimeout: 20 * time.Second, Standing: standing,
		Use: []Use{{Spec: use, Restart: Restart{Min: time.Millisecond, Max: 20 * time.Millisecond},
			Guard: Guard{Late: 50 * time.Millisecond, Dead: 2 * time.Second, Return: 100 * time.Millisecond}}},
	}
}

func startManager(t testing.TB, cfg Config) *Manager {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !poll(20*time.Second, nil, ok) {
		t.Fatalf("timed out waiting for %s", what)
	}
}

func (m *Manager) find(name, role string) *Status {
	for _, s := range m.List() {
		if s.Kind == plugins.Cong && s.Name == name && (role == "" || s.Role == role) {
			return &s
		}
	}
	return &Status{}
}

func (m *Manager) has(what string) bool { return m.event(what) != nil }

func (m *Manager) event(what string) *Event {
	for _, e := range m.Events() {
		if e.What == what {
			return &e
		}
	}
	return nil
}

func dump(m *Manager) string {
	var b strings.Builder
	for _, e := range m.Events() {
		fmt.Fprintf(&b, "%s %v/%s pid %d %s flows %d took %v: %s\n", e.Time.Format("15:04:05.000000"), e.Kind, e.Name, e.PID, e.What, e.Flows, e.Took, e.Detail)
	}
	return b.String()
}

func TestProcessServes(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	var logged lockedBuffer
	cfg := testConfig(t, e, testSpec(t, "logs"))
	cfg.Use[0].Params = plugins.Params{"cwnd": "5000"}
	cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
	m := startManager(t, cfg)
	waitFor(t, "answers", func() bool { return e.serving() == "third remote=true" && e.answers() > 1000 })
	s := m.find("third", "active")
	if s.State != "ready" || s.PID == 0 || s.Flows != 10 || s.Version != "0.1.0" || len(s.SHA256) != 64 || s.Stats.Events == 0 || s.Since.IsZero() {
		t.Errorf("status %+v", s)
	}
	if fb := m.find("cubic", "fallback"); fb.State != "ready" || fb.Flows != 0 {
		t.Errorf("fallback %+v", fb)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.PID))
	if err != nil || strings.TrimSpace(string(comm)) != "fp-cong-third" {
		t.Errorf("process is called %q, %v", comm, err)
	}
	waitFor(t, "the module's log", func() bool {
		return strings.Contains(logged.String(), `level=INFO msg="hello from the module"`) && strings.Contains(logged.String(), "answer=42")
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestKill(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	cfg := testConfig(t, e, testSpec(t, "good"))
	cfg.Use[0].Guard.Dead = time.Minute // it is not by its silence that its end is noticed
	m := startManager(t, cfg)
	waitFor(t, "answers", func() bool { return e.answers() > 100 })
	pid := m.find("third", "active").PID
	killed := time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "recovery", func() bool { return m.has(Recovered) && e.serving() == "third remote=true" })
	before := e.answers()
	waitFor(t, "answers of the new process", func() bool { return e.answers() > before+100 })
	for _, w := range e.workers {
		w.mu.Lock()
		if d := w.moved.Sub(killed); d <= 0 || d > 10*time.Second {
			t.Errorf("a worker took %v to fall back", d)
		} else {
			t.Logf("kill to fallback of a worker: %v", d)
		}
		w.mu.Unlock()
	}
	s := m.find("third", "active")
	if s.PID == pid || s.Restarts != 1 || s.FellBack <= 0 || s.Recovered <= s.FellBack || !strings.Contains(m.event(Crashed).Detail, "signal: killed") {
		t.Errorf("status %+v\n%s", s, dump(m))
	}
	t.Logf("fallback after %v, recovered after %v", s.FellBack, s.Recovered)
}

func TestStopAndContinue(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "good"))
	cfg.Use[0].Guard.Dead = time.Minute
	m := startManager(t, cfg)
	waitFor(t, "answers", func() bool { return e.answers() > 100 })
	pid := m.find("third", "active").PID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the fallback", func() bool { return m.has(WentLate) && e.serving() == "cubic remote=false" })
	if s := m.find("third", "active"); s.State != "late" || s.PID != pid {
		t.Errorf("status %+v", s)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the return", func() bool { return m.has(CameBack) && e.serving() == "third remote=true" })
	before := e.answers()
	waitFor(t, "answers again", func() bool { return e.answers() > before+100 })
	if m.has(Crashed) || m.find("third", "active").PID != pid {
		t.Error("a late module was taken for dead\n" + dump(m))
	}
}

// Whatever a module does with its memory, it ends as dead, and the engine goes on with the fallback.
func TestHostileModules(t *testing.T) {
	for mode, want := range map[string]string{"noise": "", "records": "slot", "stuck": "silent"} {
		t.Run(mode, func(t *testing.T) {
			e := newFakeEngine(t, 1, 5)
			cfg := testConfig(t, e, testSpec(t, mode))
			cfg.Use[0].Restart.Limit = 1
			cfg.Use[0].Guard.Dead = 300 * time.Millisecond
			m := startManager(t, cfg)
			waitFor(t, "giving up", func() bool { return m.has(GaveUp) })
			waitFor(t, "the fallback", func() bool { return e.serving() == "cubic remote=false" })
			before := e.answers()
			waitFor(t, "answers of the fallback", func() bool { return e.answers() > before+100 })
			if why := m.event(Crashed).Detail; !strings.Contains(why, want) || strings.Contains(why, "process has ended") {
				t.Errorf("died of: %s", why)
			} else {
				t.Log("died of: ", why)
			}
			if s := m.find("third", "active"); s.State != "failed" || s.PID != 0 || s.Trouble == "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// More events than a small ring takes: flows are dropped and resumed, and go on.
func TestFullRingOfProcess(t *testing.T) {
	e := newFakeEngine(t, 1, 40)
	e.workers[0].burst = 8 // 320 events per turn into 256 slots
	e.workers[0].out = make([]cong.Decision, 512)
	m := startManager(t, testConfig(t, e, testSpec(t, "good")))
	waitFor(t, "resumes", func() bool {
		e.workers[0].mu.Lock()
		defer e.workers[0].mu.Unlock()
		return e.workers[0].resumes > 100
	})
	before := e.answers()
	waitFor(t, "answers", func() bool { return e.answers() > before+1000 })
	if s := m.find("third", "active"); s.State != "ready" || s.Stats.Dropped == 0 {
		t.Errorf("status %+v\n%s", s, dump(m))
	}
}

func TestRefusals(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, Spec{Kind: plugins.Cong, Name: "reno"})
	cfg.PluginDir = t.TempDir()
	patient := startManager(t, cfg)
	cfg.Engine, cfg.StartTimeout = newFakeEngine(t, 1, 5), time.Second // for the one who never answers; others may be slow to
	impatient := startManager(t, cfg)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		mode   string
		change func(*Spec)
		want   string
	}{
		"missing file":      {"good", func(s *Spec) { s.Path = "/nonexistent/module" }, "no such file"},
		"not executable":    {"good", func(s *Spec) { s.Path = "/etc/passwd" }, "not an executable"},
		"cannot run":        {"good", func(s *Spec) { s.Path = script }, "cannot be started"},
		"wrong sha256":      {"good", func(s *Spec) { s.SHA256 = strings.Repeat("ab", 32) }, "has the checksum sha256:"},
		"no sha256":         {"good", func(s *Spec) { s.AllowUnpinned = false }, "allow_unpinned"},
		"protocol version":  {"protocol", nil, "speaks module protocol version 7, this fastpath speaks 2"},
		"layout":            {"layout", nil, "was built for other cong records"},
		"needs":             {"needs", nil, `version 0.1.0 needs ["telepathy"] of its host, this fastpath offers ["pacing"`},
		"other name":        {"name", nil, "is the module cong/fourth"},
		"exits":             {"exit", nil, "ends in the handshake: exit status 3: library libfoo is missing"},
		"no handshake":      {"silent", nil, "does not answer"},
		"no module":         {"chatty", nil, "does not shake hands"},
		"unknown parameter": {"good", func(s *Spec) { s.Params = plugins.Params{"beta": "1"} }, `refuses its parameters: unknown parameter "beta"`},
		"bad value":         {"good", func(s *Spec) { s.Params = plugins.Params{"cwnd": "x"} }, "refuses its parameters"},
		"nowhere":           {"good", func(s *Spec) { s.Path = "" }, "there is no " + filepath.Join(cfg.PluginDir, "fastpath-cong-third")},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := patient, testSpec(t, tc.mode)
			if tc.mode == "silent" {
				m = impatient
			}
			if tc.change != nil {
				tc.change(&s)
			}
			m.mu.Lock()
			m.modules = append(m.modules, &module{spec: s})
			m.mu.Unlock()
			_, err := m.Swap(t.Context(), plugins.Cong, "third", plugins.Selection{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			} else {
				t.Log(err)
			}
			if s := m.find("reno", "active"); s.State != "ready" || m.find("third", "").Name != "" {
				t.Error("the old module does not stay alone")
			}
		})
	}
	t.Run("the engine refuses", func(t *testing.T) {
		m := patient
		m.mu.Lock()
		m.modules = append(m.modules, &module{spec: testSpec(t, "good")})
		m.mu.Unlock()
		e.refuse.Store(true)
		_, err := m.Swap(t.Context(), plugins.Cong, "third", plugins.Selection{})
		e.refuse.Store(false)
		if err == nil || !strings.Contains(err.Error(), "engine refuses") || e.serving() != "reno remote=false" {
			t.Errorf("error %v, served by %s", err, e.serving())
		}
	})
	if n := len(children(t)); n != 0 {
		waitFor(t, "children to go", func() bool { return len(children(t)) == 0 })
	}
}

func TestSwap(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	cdg := Spec{Kind: plugins.Cong, Name: "cdg", Placement: Process} // this binary, "plugin cong cdg"
	cfg := testConfig(t, e, testSpec(t, "good"), cdg)
	m := startManager(t, cfg)
	third := m.find("third", "active").PID
	if s := m.find("cdg", "standing"); s.State != "ready" || s.PID == 0 || s.Flows != 0 {
		t.Fatalf("standing module: %+v", s)
	}
	swap := func(name string, newOnly bool, flows int) {
		t.Helper()
		start := time.Now()
		rep, err := m.Swap(t.Context(), plugins.Cong, name, plugins.Selection{NewOnly: newOnly})
		if err != nil || rep.Flows != flows {
			t.Fatalf("%+v, %v\n%s", rep, err, dump(m))
		}
		t.Logf("swap to %s: %v", name, time.Since(start))
	}
	swap("cdg", false, 10)
	waitFor(t, "cdg's answers", func() bool { return e.serving() == "cdg remote=true" && e.answers() > 100 })
	if fb := m.find("cdg", "fallback"); fb.Role != "fallback" {
		t.Error("cdg's fallback is not the built-in cdg")
	}
	if s := m.find("third", "standing"); s.PID != third || s.State != "ready" {
		t.Errorf("the old module does not stand by: %+v", s)
	}
	swap("third", false, 10) // back, at once
	// Not configured: as the kind is placed, in a process of this binary; gone after the next swap.
	swap("reno", false, 10)
	if s := m.find("reno", "active"); s.PID == 0 {
		t.Errorf("reno is not a process: %+v", s)
	}
	swap("reno", false, 10) // a fresh instance
	swap("cdg", true, 0)    // new flows only
	if s := m.find("reno", "draining"); s.Flows != 10 {
		t.Errorf("reno keeps its flows: %+v", s)
	}
	swap("cdg", false, 10) // a fresh instance of what is in use, for all flows
	if s := m.find("reno", ""); s.Name != "" && s.Role != "fallback" {
		t.Errorf("reno is still there: %+v", s)
	}
	waitFor(t, "two processes", func() bool { return len(children(t)) == 2 })
}

func TestGiveUp(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "good"))
	cfg.Use[0].Restart.Limit = 3
	m := startManager(t, cfg)
	waitFor(t, "the end", func() bool {
		if pid := m.find("third", "active").PID; pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return m.has(GaveUp)
	})
	waitFor(t, "the fallback", func() bool { return e.serving() == "cubic remote=false" })
	if s := m.find("third", "active"); s.State != "failed" || s.Restarts != 3 {
		t.Errorf("%+v\n%s", s, dump(m))
	}
	if s := m.find("third", "active"); s.RestartIn != 0 {
		t.Errorf("a module that was given up is restarted in %v", s.RestartIn)
	}
	if _, err := m.Swap(t.Context(), plugins.Cong, "third", plugins.Selection{}); err != nil { // an operator may try again
		t.Fatal(err)
	}
	waitFor(t, "answers", func() bool { return e.serving() == "third remote=true" && e.answers() > 100 })
}

// A swap that is refused gives a module that dies again and again no more chances.
func TestRefusedSwapKeepsDeaths(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "good"))
	cfg.Use[0].Restart.Limit = 3
	m := startManager(t, cfg)
	seen := 0
	waitFor(t, "the end", func() bool {
		if pid := m.find("third", "active").PID; pid != 0 && pid != seen {
			seen = pid
			if _, err := m.Swap(t.Context(), plugins.Cong, "third", plugins.Selection{Percent: 101}); err == nil {
				t.Fatal("a swap of 101 % of the flows was not refused")
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := m.Swap(over, plugins.Cong, "third", plugins.Selection{}); err == nil {
				t.Fatal("a swap with a context that is over was not refused")
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return m.has(GaveUp)
	})
	if s := m.find("third", "active"); s.Restarts != 3 {
		t.Errorf("%d restarts with a limit of 3", s.Restarts)
	}
}

// A dead module says when it is started again.
func TestRestartIn(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "good"))
	cfg.Use[0].Restart.Min, cfg.Use[0].Restart.Max = 20*time.Second, 30*time.Second
	m := startManager(t, cfg)
	if s := m.find("third", "active"); s.RestartIn != 0 || len(s.Params) == 0 && len(m.find("third", "active").Version) == 0 {
		t.Errorf("running: %+v", s)
	}
	_ = unix.Kill(m.find("third", "active").PID, unix.SIGKILL)
	waitFor(t, "a time", func() bool { return m.find("third", "active").RestartIn > 0 })
	first := m.find("third", "active")
	if first.State != "restarting" || first.RestartIn > 20*time.Second || first.RestartIn < 10*time.Second {
		t.Errorf("%+v", first)
	}
	waitFor(t, "less time", func() bool { return m.find("third", "active").RestartIn < first.RestartIn })
}

func TestConfigErrorsComeTogether(t *testing.T) {
	e := newFakeEngine(t, 1, 1)
	_, err := New(Config{Engine: e,
		Use:      []Use{{Spec: Spec{Kind: plugins.Cong, Name: "nonesuch"}}, {Spec: Spec{Kind: plugins.Pace, Name: "edt"}, Fallback: "zzz"}},
		Standing: []Spec{{Kind: plugins.Cong, Name: "../etc", Placement: Process}, {Kind: plugins.Cong, Name: "x", Placement: Process, SHA256: "12"}},
	})
	for _, want := range []string{"nonesuch is not built in", "zzz", `"../etc"`, "sha256"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

func TestStartFailsAsAWhole(t *testing.T) {
	e := newFakeEngine(t, 1, 1)
	cfg := testConfig(t, e, testSpec(t, "good"), Spec{Kind: plugins.Cong, Name: "cdg", Placement: Process, Params: plugins.Params{"nonesuch": "1"}})
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "module cong/cdg: refuses its parameters") {
		t.Fatal(err)
	}
	waitFor(t, "no children", func() bool { return len(children(t)) == 0 })
}

package chaos

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// senders are flows that never end, over traffic's bad link.
const senders = 8

// trialOf is a manager with modules of congestion control under traffic of senders, all of which the test's end checks.
func trialOf(t *testing.T, c host.Config) *host.Manager {
	t.Helper()
	tr := newTraffic(t, 1)
	dir, err := os.MkdirTemp("", "fp") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.Engine, c.RunDir = tr.a, dir
	m, err := host.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		tr.stop.Store(true)
		wg.Wait()
		for _, err := range tr.errs {
			t.Error(err)
		}
		for _, c := range []io.Closer{m, tr.ln, tr.a, tr.b, tr.arena} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for range senders {
		c, err := (&sock.Dialer{Stack: tr.a}).DialContext(t.Context(), "tcp", fmt.Sprintf("10.0.0.2:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		in, err := tr.ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _, _ = io.Copy(io.Discard, in); in.Close() })
		wg.Go(func() {
			defer c.Close()
			for buf := make([]byte, 64<<10); !tr.stop.Load(); {
				if _, err := c.Write(buf); err != nil {
					tr.fail("sender: %w", err)
					return
				}
			}
		})
	}
	time.Sleep(time.Second) // slow start
	return m
}

// A module that is bad for its flows, or dies, loses them again; one that is not keeps them.
func TestTrial(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := trialOf(t, host.Config{
		Use: []host.Use{{Spec: host.Spec{Kind: plugins.Cong, Name: "cubic"}, Guard: host.Guard{Late: 5 * time.Second}}},
		Standing: []host.Spec{{Kind: plugins.Cong, Name: "reno", Placement: host.Process},
			{Kind: plugins.Cong, Name: snailName, Placement: host.Process, Path: exe, Args: []string{"plugin", "cong", snailName}, AllowUnpinned: true}},
	})
	on := func(name string, sel plugins.Selection, trial host.Trial) host.TrialReport {
		t.Helper()
		_, r, err := m.SwapOnTrial(t.Context(), plugins.Cong, name, sel, trial)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v", name, r)
		return r
	}
	serves := func(name string, flows int) {
		t.Helper()
		for _, s := range m.List() {
			if s.Kind == plugins.Cong && s.Name == name && s.Role != "fallback" && s.Flows != flows {
				t.Errorf("%s serves %d flows, not %d", name, s.Flows, flows)
			}
		}
	}
	if r := on(snailName, plugins.Selection{}, host.Trial{Time: 2 * time.Second, MaxGoodputDrop: 50}); !strings.Contains(r.RolledBack, "goodput") || r.Flows != senders {
		t.Errorf("a snail: %+v", r)
	}
	serves("cubic", senders)
	if r := on("reno", plugins.Selection{PeerPort: port}, host.Trial{Time: time.Second, MaxGoodputDrop: 99, MaxRTTIncrease: 10_000}); r.RolledBack != "" || r.RTTNow == 0 {
		t.Errorf("a module like the others: %+v", r)
	}
	serves("reno", senders)
	for _, s := range m.List() {
		if s.Name == snailName {
			time.AfterFunc(2500*time.Millisecond, func() { _ = unix.Kill(s.PID, unix.SIGKILL) })
		}
	}
	if r := on(snailName, plugins.Selection{}, host.Trial{Time: 4 * time.Second}); !strings.Contains(r.RolledBack, "died") {
		t.Errorf("one that dies: %+v", r)
	}
	serves("reno", senders)
	if _, _, err := m.SwapOnTrial(t.Context(), plugins.Cong, snailName, plugins.Selection{LocalPort: 1}, host.Trial{Time: time.Second}); err == nil {
		t.Error("a trial without a flow")
	}
}

// version writes this binary to a file that serves, as reno, what its last byte says.
func version(t *testing.T, last byte) (path, sum string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, last)
	path = filepath.Join(t.TempDir(), "version")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("%x", sha256.Sum256(b))
}

// An upgrade is rehearsed, watched, and taken back if its flows do worse or the new code dies: they go on with the old code.
func TestUpgradeTrial(t *testing.T) {
	t.Parallel()
	m := trialOf(t, host.Config{
		Use: []host.Use{{Spec: host.Spec{Kind: plugins.Cong, Name: "reno", Placement: host.Process}, Guard: host.Guard{Late: 5 * time.Second}}},
	})
	reno := func() *host.Status {
		for _, s := range m.List() {
			if s.Kind == plugins.Cong && s.Name == "reno" && s.Role == "active" {
				return &s
			}
		}
		return &host.Status{}
	}
	before := reno()
	good, goodSum := version(t, goodUpgrade)
	bad, badSum := version(t, badUpgrade)
	do := func(path, sum string, c host.Caution) host.UpgradeReport {
		t.Helper()
		r, err := m.UpgradeWith(t.Context(), plugins.Cong, "reno", path, sum, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v, trial %+v", r.SwapReport, r.Trial)
		return r
	}
	r := do(bad, badSum, host.Caution{DryRun: true, Shadow: 300 * time.Millisecond})
	if s := reno(); r.Flows != senders || r.Shadow == nil || r.Shadow.Decisions == 0 || len(r.Shadow.Flows) != senders || r.Shadow.Flows[0].WouldCwnd >= r.Shadow.Flows[0].Cwnd ||
		s.PID != before.PID || s.Flows != senders {
		t.Errorf("a rehearsal: %+v %+v, %+v", r, r.Shadow, s)
	}
	if r = do(good, goodSum, host.Caution{DryRun: true}); r.Flows != senders || r.Shadow != nil || reno().PID != before.PID {
		t.Errorf("a dry run: %+v", r)
	}
	fallback := host.Trial{Time: 2 * time.Second, MaxGoodputDrop: 50}
	if r = do(bad, badSum, host.Caution{Trial: fallback}); r.Trial == nil || !strings.Contains(r.Trial.RolledBack, "goodput") || r.Trial.Flows != senders {
		t.Errorf("a snail: %+v", r)
	}
	if s := reno(); s.SHA256 != before.SHA256 || s.Version != before.Version || s.Flows != senders || s.PID == before.PID || s.State != "ready" {
		t.Errorf("after it: %+v", s)
	}
	time.Sleep(time.Second) // slow start
	time.AfterFunc(2500*time.Millisecond, func() {
		if s := reno(); s.SHA256 == goodSum {
			_ = unix.Kill(s.PID, unix.SIGKILL)
		}
	})
	if r = do(good, goodSum, host.Caution{Trial: host.Trial{Time: 4 * time.Second}}); r.Trial == nil || !strings.Contains(r.Trial.RolledBack, "died") {
		t.Errorf("one that dies: %+v", r)
	}
	if s := reno(); s.SHA256 != before.SHA256 || s.Flows != senders || s.State != "ready" {
		t.Errorf("after its death: %+v", s)
	}
	if r = do(good, goodSum, host.Caution{Shadow: 100 * time.Millisecond, Trial: host.Trial{Time: time.Second, MaxGoodputDrop: 99, MaxRTTIncrease: 10_000}}); r.Trial.RolledBack != "" ||
		r.Flows != senders || r.Shadow == nil {
		t.Errorf("a good one: %+v", r)
	}
	if s := reno(); s.SHA256 != goodSum || s.Version != "2.0.0" || s.Flows != senders {
		t.Errorf("after it: %+v", s)
	}
	if _, err := m.UpgradeWith(t.Context(), plugins.Rtx, "btree", good, goodSum, host.Caution{Shadow: time.Second}); err == nil || !strings.Contains(err.Error(), "cannot be watched") {
		t.Errorf("a shadow of rtx: %v", err)
	}
}

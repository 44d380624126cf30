package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// newVersion writes this binary to a file, changed so that its checksum is another one.
func newVersion(t *testing.T) (path, sum string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, "another version"...)
	path = filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(b)
	return path, hex.EncodeToString(h[:])
}

// A module goes on with the code of another file: with its flows and its place. What is refused changes nothing, and what was verified
// runs again after a crash, though the file is another one by then.
func TestUpgrade(t *testing.T) {
	e := newFakeEngine(t, 2, 5)
	m := startManager(t, testConfig(t, e, testSpec(t, "good")))
	waitFor(t, "answers", func() bool { return e.answers() > 100 })
	before := *m.find("third", "active")
	path, sum := newVersion(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256([]byte("#!/bin/sh\nexit 7\n"))
	for name, bad := range map[string]struct{ module, path, sum, want string }{
		"checksum":   {"third", path, strings.Repeat("ab", 32), "has the checksum sha256:" + sum},
		"no sum":     {"third", path, "", "needs a file and its checksum"},
		"no file":    {"third", path + ".gone", sum, "no such file"},
		"no module":  {"third", script, hex.EncodeToString(h[:]), "ends in the handshake: exit status 7"},
		"not hex":    {"third", path, "xyz", "is not 64 hexadecimal digits"},
		"not known":  {"sixth", path, sum, "does not run and is not configured"},
		"other name": {"cubic", path, sum, "does not run"},
	} {
		if _, err := m.Upgrade(t.Context(), plugins.Cong, bad.module, bad.path, bad.sum); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := m.find("third", "active"); s.PID != before.PID || s.State != "ready" || s.SHA256 != before.SHA256 || e.serving() != "third remote=true" {
		t.Errorf("after refusals: %+v", s)
	}

	rep, err := m.Upgrade(t.Context(), plugins.Cong, "third", path, strings.ToUpper(sum))
	if err != nil || rep.Flows != 10 {
		t.Fatal(rep, err)
	}
	s := *m.find("third", "active")
	if s.PID == before.PID || s.SHA256 != sum || s.Version != "0.2.0" || s.Flows != 10 || s.Path != path || s.State != "ready" {
		t.Errorf("after the upgrade: %+v", s)
	}
	if ev := m.event(Upgraded); ev == nil || ev.Flows != 10 || !strings.Contains(ev.Detail, sum) || !strings.Contains(ev.Detail, "0.1.0 → 0.2.0") {
		t.Errorf("event: %+v", ev)
	}
	n := e.answers()
	waitFor(t, "answers of the new version", func() bool { return e.answers() > n+100 })
	waitFor(t, "the end of the old process", func() bool { return len(children(t)) == 1 })

	// The file becomes something else; what was checked still runs.
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 100), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(s.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the restart", func() bool { return m.has(Recovered) && m.find("third", "active").State == "ready" })
	if again := m.find("third", "active"); again.SHA256 != sum || again.Version != "0.2.0" || again.PID == s.PID || again.Flows != 10 {
		t.Errorf("after a restart: %+v", again)
	}
}

// Parameters change while a module serves: of a process, and of one that is linked in with its fallback.
func TestSet(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "good"), Spec{Kind: plugins.Cong, Name: "cdg", Params: plugins.Params{"window": "16"}})
	cfg.Use[0].Params = plugins.Params{"cwnd": "5000"}
	m := startManager(t, cfg)
	waitFor(t, "answers", func() bool { return e.answers() > 100 })
	pid := m.find("third", "active").PID
	for want, p := range map[string]plugins.Params{
		"refuses its parameters":      {"cwnd": "many"},
		`unknown parameter "nothing"`: {"nothing": "1"},
		"no parameter is given":       {},
	} {
		if _, err := m.Set(t.Context(), plugins.Cong, "third", p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", p, err)
		}
	}
	if s := m.find("third", "active"); s.PID != pid || s.Given["cwnd"] != "5000" {
		t.Errorf("after refusals: %+v", s)
	}
	if rep, err := m.Set(t.Context(), plugins.Cong, "third", plugins.Params{"cwnd": "7000"}); err != nil || rep.Flows != 5 {
		t.Fatal(rep, err)
	}
	if s := m.find("third", "active"); s.PID == pid || s.Given["cwnd"] != "7000" || s.Flows != 5 {
		t.Errorf("after a change: %+v", s)
	}
	if ev := m.event(Changed); ev == nil || ev.Detail != "cwnd 5000 → 7000" {
		t.Errorf("event: %+v", ev)
	}
	n := e.answers()
	waitFor(t, "answers", func() bool { return e.answers() > n+100 })

	// Linked in: its fallback is the same, with the same parameters.
	if _, err := m.Swap(t.Context(), plugins.Cong, "cdg", plugins.Selection{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Set(t.Context(), plugins.Cong, "cdg", plugins.Params{"backoff_beta": "800", "window": ""}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"active", "fallback"} {
		if s := m.find("cdg", role); len(s.Given) != 1 || s.Given["backoff_beta"] != "800" {
			t.Errorf("%s: %+v", role, s)
		}
	}
	if s := m.find("cdg", "active"); s.Flows != 5 || e.serving() != "cdg remote=false" {
		t.Errorf("linked in: %+v", s)
	}
	if _, err := m.Set(t.Context(), plugins.Cong, "cdg", plugins.Params{"backoff_beta": "0"}); err == nil {
		t.Error("a bad value")
	}
}

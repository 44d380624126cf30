package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// The example, which is a Go module of its own, is built as its README says, found in the plugin directory, and swapped in.
func TestExample(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is needed to build the example: ", err)
	}
	dir := t.TempDir()
	build := exec.Command(goTool, "build", "-o", filepath.Join(dir, "fastpath-cong-aimd"), ".")
	build.Dir = "../example"
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, Spec{Kind: plugins.Cong, Name: "reno"})
	cfg.PluginDir, cfg.AllowUnpinned = dir, true
	m := startManager(t, cfg)
	if _, err := m.Swap(t.Context(), plugins.Cong, "aimd", plugins.Selection{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "answers", func() bool { return e.serving() == "aimd remote=true" && e.answers() > 1000 })
	s := m.find("aimd", "active")

	// Configured, with the checksum that the first run has shown, and parameters.
	pinned := Spec{Kind: plugins.Cong, Name: "aimd", Placement: Process, SHA256: s.SHA256, Params: plugins.Params{"increase": "2", "keep": "70"}}
	e = newFakeEngine(t, 1, 5)
	cfg = testConfig(t, e, pinned)
	cfg.PluginDir = dir
	startManager(t, cfg)
	waitFor(t, "answers", func() bool { return e.serving() == "aimd remote=true" && e.answers() > 1000 })
}

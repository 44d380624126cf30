package host

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// A module process may not do what its launcher has given up, and is another user's if it can be.
func TestIsolation(t *testing.T) {
	cfg := testConfig(t, &idleEngine{}, testSpec(t, "probe"))
	cfg.Isolation = Isolation{Launcher: []string{"launch"}, Memory: 64 << 20}
	const no = "operation not permitted"
	memory, data := "<nil>", 320
	if os.Getuid() != 0 { // then Yama has to refuse it, which not every machine has
		memory = ""
	}
	if raceEnabled {
		data = math.MaxUint64 >> 20
	}
	want := "inet " + no + ", unshare " + no + ", kill " + no + ", stop self <nil>, affinity " + no + ", fork true, caps 0, memory of the host " + memory
	limits := fmt.Sprintf("nnp 1, files 256, data %d, seals 7, exe /memfd:fastpath-cong-third, environment 0", data)
	uids := []int{0}
	if os.Getuid() == 0 {
		uids = append(uids, 65534)
		if err := os.Chmod(cfg.RunDir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for _, uid := range uids {
		cfg.Isolation.UID, cfg.Isolation.GID = uid, uid
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = m.Start(t.Context())
		user := ""
		if uid != 0 {
			user = "uid 65534, "
		}
		if err == nil || !strings.Contains(err.Error(), user) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), limits) {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// Only a host starts the launcher.
func TestLaunchRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"-parent", "1"}, {"--", "x"}, {"-nonsense"}} {
		if err := Launch(args); err == nil {
			t.Errorf("%q", args)
		}
	}
}

// A module that takes more memory than it may is ended, and others take over; with a control group, by the limit of what is used.
func TestMemoryLimit(t *testing.T) {
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "leak"))
	cfg.Isolation = Isolation{Launcher: []string{"launch"}, Memory: MinMemory}
	cfg.Use[0].Restart.Limit = 1
	m := startManager(t, cfg)
	waitFor(t, "giving up", func() bool { return m.has(GaveUp) && e.serving() == "cubic remote=false" })
	why := m.event(Crashed).Detail
	t.Log(why)
	if want := errOutOfMemory.Error(); m.cgroups != nil && !strings.Contains(why, want) {
		t.Errorf("died of %q, want %q", why, want)
	}
	if m.cgroups == nil {
		t.Log("no control group can be made here")
		return
	}
	dirs := m.cgroups.dirs
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for _, d := range dirs {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// Without a control group what is mapped is limited.
func TestMapLimit(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector maps more than any limit")
	}
	e := newFakeEngine(t, 1, 5)
	cfg := testConfig(t, e, testSpec(t, "leak"))
	cfg.Isolation = Isolation{Launcher: []string{"launch"}, Memory: MinMemory}
	cfg.Use[0].Restart.Limit = 1
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.noCgroups = true
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to look at any more
	waitFor(t, "giving up", func() bool { return m.has(GaveUp) && e.serving() == "cubic remote=false" })
	if why := m.event(Crashed).Detail; !strings.Contains(why, "process has ended: exit status 2") { // how Go ends that gets no memory
		t.Errorf("died of %q", why)
	}
}

func TestTooLittleMemory(t *testing.T) {
	if _, err := New(Config{Engine: &idleEngine{}, Isolation: Isolation{Memory: 1 << 20}}); err == nil || !strings.Contains(err.Error(), "at least") {
		t.Error(err)
	}
}

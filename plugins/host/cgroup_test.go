package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fakeGroups writes the files that tell where a process's control groups are, and returns the directory of its group. The directories are
// ordinary ones: what the kernel would make in them is made by the test.
func fakeGroups(t *testing.T, version string) (proc, own string) {
	t.Helper()
	dir := t.TempDir()
	proc = filepath.Join(dir, "proc")
	own = filepath.Join(dir, "fs", "service")
	text := map[string]string{
		"v2": "0::/slice/service\n",
		"v1": "9:name=systemd:/\n5:memory:/slice/service\n3:cpu,pids:/slice/service\n0::/\n",
	}[version]
	mounts := map[string]string{
		"v2": "24 1 0:5 / /proc rw - proc proc rw\n31 23 0:28 /slice " + dir + "/fs rw,relatime shared:9 - cgroup2 cgroup2 rw\n",
		"v1": "31 23 0:28 /slice " + dir + "/memory rw - cgroup cgroup rw,memory\n32 23 0:29 / " + dir + "/other rw - cgroup cgroup rw,cpu,pids\n" +
			"33 23 0:30 /elsewhere " + dir + "/x rw - cgroup cgroup rw,memory\n",
	}[version]
	for name, content := range map[string]string{"cgroup": text, "mountinfo": mounts} {
		put(t, filepath.Join(proc, name), content)
	}
	return proc, own
}

func put(t *testing.T, file, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Where groups of each version are made, by what the kernel says of a process.
func TestCgroupMounts(t *testing.T) {
	proc, own := fakeGroups(t, "v2")
	m, err := cgroupMounts(filepath.Join(proc, "mountinfo"), filepath.Join(proc, "cgroup"))
	if err != nil || len(m) != 1 || m[""] != own {
		t.Errorf("version 2: %v, %v; want %s", m, err, own)
	}
	proc, own = fakeGroups(t, "v1")
	dir := filepath.Dir(filepath.Dir(own))
	m, err = cgroupMounts(filepath.Join(proc, "mountinfo"), filepath.Join(proc, "cgroup"))
	if err != nil || m["memory"] != dir+"/memory/service" || m["pids"] != dir+"/other/slice/service" {
		t.Errorf("version 1: %v, %v", m, err)
	}
}

// The kernel's files are there when a group is: here the test makes them. What is written to them is what limits a module.
func TestCgroupVersion2(t *testing.T) {
	proc, own := fakeGroups(t, "v2")
	if _, err := newCgroupsAt(proc, 7); err == nil {
		t.Error("groups without controllers")
	}
	put(t, filepath.Join(own, "cgroup.controllers"), "cpu memory pids\n")
	put(t, filepath.Join(own, "cgroup.subtree_control"), "")
	if _, err := newCgroupsAt(proc, 7); !errors.Is(err, os.ErrNotExist) { // its own group has no such file yet
		t.Error(err)
	}
	if got := get(t, filepath.Join(own, "cgroup.subtree_control")); got != "+memory +pids" {
		t.Errorf("given on: %q", got)
	}
	c := &cgroups{v2: true, dirs: []string{filepath.Join(own, "mine")}}
	g := filepath.Join(own, "mine", "1")
	for _, f := range []string{"memory.max", "pids.max", "memory.swap.max"} {
		put(t, filepath.Join(g, f), "")
	}
	if _, err := c.group("1", 64<<20); !errors.Is(err, os.ErrExist) {
		t.Errorf("a group that is there: %v", err)
	}
}

// The kernel's own groups of version 2: a module is in a group with its limits, is killed when it is over them, and nothing is left.
func TestCgroupKernel(t *testing.T) {
	own, err := cgroupMounts("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil || own[""] == "" {
		t.Skip("no cgroup hierarchy of version 2 is mounted: ", err)
	}
	c, err := newCgroups()
	if err != nil {
		t.Skip("no groups can be made: ", err)
	}
	c.close()
	if !c.v2 {
		has, _ := os.ReadFile(filepath.Join(own[""], "cgroup.controllers"))
		t.Skipf("the hierarchy of version 2 has not memory and pids, but %q; test/vm runs this in a machine that has", strings.TrimSpace(string(has)))
	}
	e := newFakeEngine(t, 1, 5)
	e.workers[0].silent = true
	cfg := testConfig(t, e, testSpec(t, "leak"))
	cfg.Isolation = Isolation{Launcher: []string{"launch"}, Memory: MinMemory}
	cfg.Use[0].Restart.Limit = 1
	m := startManager(t, cfg)
	groups, err := filepath.Glob(filepath.Join(m.cgroups.dirs[0], "*", "cgroup.procs"))
	if err != nil || len(groups) != 1 {
		t.Fatalf("groups %v, %v", groups, err)
	}
	dir := filepath.Dir(groups[0])
	for file, want := range map[string]string{"cgroup.procs": strconv.Itoa(m.find("third", "active").PID), "memory.max": strconv.Itoa(MinMemory), "pids.max": strconv.Itoa(maxThreads)} {
		if got := strings.TrimSpace(get(t, filepath.Join(dir, file))); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	e.workers[0].mu.Lock()
	e.workers[0].silent = false // each sample takes a megabyte
	e.workers[0].mu.Unlock()
	waitFor(t, "giving up", func() bool { return m.has(GaveUp) && e.serving() == "cubic remote=false" })
	if why := m.event(Crashed).Detail; !strings.Contains(why, errOutOfMemory.Error()) {
		t.Errorf("died of %q", why)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group of the dead: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(m.cgroups.dirs[0]), cgroupPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCgroupEvents(t *testing.T) {
	dir := t.TempDir()
	for version, file := range map[bool]string{true: "memory.events", false: "memory.oom_control"} {
		g := &cgroup{v2: version, dirs: []string{dir}}
		for text, want := range map[string]bool{"low 0\noom 3\noom_kill 0\n": false, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n": true, "": false} {
			put(t, filepath.Join(dir, file), text)
			if g.outOfMemory() != want {
				t.Errorf("%q: %v", text, !want)
			}
		}
		if got := g.args(); !slices.Equal(got, []string{"-cgroup", dir}) {
			t.Errorf("arguments %q", got)
		}
	}
	var none *cgroup
	none.remove()
	if none.outOfMemory() || none.args() != nil {
		t.Error("without a group")
	}
}

// Groups of managers that are gone are removed, no others.
func TestSweepCgroups(t *testing.T) {
	dir := t.TempDir()
	alive := filepath.Join(dir, cgroupPrefix+"1")
	for _, d := range []string{alive, filepath.Join(dir, cgroupPrefix+"4194304"), filepath.Join(dir, cgroupPrefix+"x"), filepath.Join(dir, "other")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweepCgroups(dir)
	left, err := os.ReadDir(dir)
	var names []string
	for _, e := range left {
		names = append(names, strings.TrimPrefix(e.Name(), cgroupPrefix))
	}
	if err != nil || !slices.Equal(names, []string{"1", "x", "other"}) {
		t.Errorf("left %q, %v", names, err)
	}
}

func FuzzCgroupMounts(f *testing.F) {
	f.Add("0::/a\n", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Add("5:memory:/a\n3:cpu,pids:/\n", "31 23 0:28 /a /m rw shared:1 - cgroup cgroup rw,memory\n - \nx - cgroup\n")
	f.Fuzz(func(t *testing.T, own, mounts string) {
		for c, dir := range parseCgroups(own, mounts) {
			// Each is at or below a place where something is mounted, and a group of the process.
			if !slices.ContainsFunc(strings.Fields(mounts), func(point string) bool {
				rel, err := filepath.Rel(point, dir)
				return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
			}) || !strings.Contains(own, c) {
				t.Fatalf("%q is at %q", c, dir)
			}
		}
	})
}

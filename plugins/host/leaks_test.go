package host

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
)

var crashFlag = flag.Int("crashes", 50, "of TestCrashesLeaveNothing")

// No zombie, descriptor, socket, mapping, control group or process stays behind, however often a module crashes.
func TestCrashesLeaveNothing(t *testing.T) {
	crashes := *crashFlag
	if testing.Short() {
		crashes = 5
	}
	e := newFakeEngine(t, 1, 3)
	cfg := testConfig(t, e, testSpec(t, "good"))
	cfg.Use[0].Restart.Limit = crashes + 1
	cfg.Isolation = Isolation{Launcher: []string{"launch"}, Memory: 64 << 20}
	m := startManager(t, cfg)
	groups := m.cgroups
	var first usage
	for i := range crashes {
		pid := 0
		waitFor(t, "a process", func() bool {
			s := m.find("third", "active")
			pid = s.PID
			return s.State == "ready" && s.Restarts == i && e.serving() == "third remote=true"
		})
		waitFor(t, "one child", func() bool { return len(children(t)) == 1 })
		if i == 2 {
			first = measure(t, groups)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the last recovery", func() bool { return m.find("third", "active").Restarts == crashes })
	var last usage
	if !poll(20*time.Second, nil, func() bool { last = measure(t, groups); return last == first }) {
		t.Errorf("after 2 crashes %+v, after %d %+v", first, crashes, last)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of all", func() bool {
		u := measure(t, groups)
		return u.children == 0 && u.memfds == 0 && u.maps == 0
	})
	for _, d := range append(groups.list(), filepath.Join(cfg.RunDir, "*")) {
		if left, _ := filepath.Glob(d); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

type usage struct{ children, memfds, maps, groups int }

func (c *cgroups) list() []string {
	if c == nil {
		return nil
	}
	return c.dirs
}

// measure counts the children, zombies included, the shared memory and the control groups of this process.
func measure(t testing.TB, groups *cgroups) (u usage) {
	u.children = len(children(t))
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fds {
		if l, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.Contains(l, "memfd:fastpath") {
			u.memfds++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	u.maps = strings.Count(string(maps), "memfd:fastpath")
	for _, d := range groups.list() {
		in, _ := filepath.Glob(filepath.Join(d, "*", "cgroup.procs"))
		u.groups += len(in)
	}
	return u
}

func children(t testing.TB) (pids []string) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tasks {
		if b, err := os.ReadFile(f); err == nil {
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return pids
}

// A module without events costs nothing, with a processor of its own too.
func TestIdleModuleSleeps(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor: every thread is pinned to it")
	}
	for name, cpus := range map[string][]int{"shared": nil, "own": {firstCPU(t)}} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t, 2, 5)
			cfg := testConfig(t, e, testSpec(t, "good"))
			cfg.Use[0].CPUs = cpus
			m := startManager(t, cfg)
			waitFor(t, "answers", func() bool { return e.answers() > 100 })
			pid := m.find("third", "active").PID
			if pinned := hasThreadOn(t, pid, firstCPU(t)); pinned != (cpus != nil) {
				t.Errorf("a thread is pinned: %v", pinned)
			}
			_ = e.each(func(w *fakeWorker) error { w.silent = true; return nil })
			poll(300*time.Millisecond, nil, func() bool { return false })
			before := cpuTicks(t, pid)
			poll(500*time.Millisecond, nil, func() bool { return false })
			if used := cpuTicks(t, pid) - before; used > 2 {
				t.Errorf("%d ticks (10 ms) of processor time in 500 ms of idleness", used)
			}
			_ = e.each(func(w *fakeWorker) error { w.silent = false; return nil })
			n := e.answers()
			waitFor(t, "answers again", func() bool { return e.answers() > n+100 })
		})
	}
}

func firstCPU(t testing.TB) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if set.IsSet(i) {
			return i
		}
	}
	return 0
}

func hasThreadOn(t testing.TB, pid, cpu int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpu)) {
			return true
		}
	}
	return false
}

// cpuTicks is the user and system time of a process, in ticks of 10 ms.
func cpuTicks(t testing.TB, pid int) (n int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var user, system int
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if _, err := fmt.Sscan(f[11], &user); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(f[12], &system); err != nil {
		t.Fatal(err)
	}
	return user + system
}

// When the daemon is killed its modules end, and the next daemon removes what it left.
func TestHostDies(t *testing.T) {
	dir, err := os.MkdirTemp("", "fp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	host := exec.Command(os.Args[0], "test-host", dir)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	waitFor(t, "the module's end", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // whoever inherits it may not reap it
		return err != nil || bytes.Contains(state, []byte(") Z "))
	})
	old, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(old) != 1 {
		t.Fatalf("left by the dead host: %v", old)
	}
	cfg := testConfig(t, &idleEngine{}, Spec{Kind: plugins.Cong, Name: "reno"})
	cfg.RunDir = dir
	startManager(t, cfg)
	if now, _ := filepath.Glob(filepath.Join(dir, "*")); len(now) != 1 || now[0] == old[0] {
		t.Errorf("the next host has left %v; now there is %v", old, now)
	}
}

package vm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCgroup runs the test of module processes in control groups of version 2 where there are such: in a group of its own, as a service
// manager that delegates one starts a daemon, and in the root's.
func TestCgroup(t *testing.T) {
	need(t)
	tool := filepath.Join(t.TempDir(), "host.test")
	cmd := exec.Command("go", "test", "-c", "-o", tool, "-ldflags", "-s -w", "../../plugins/host")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	m := boot(t, hardware{tools: []string{tool}})
	m.run("mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control && mkdir /sys/fs/cgroup/service")
	const test = "/bin/host.test -test.run ^TestCgroupKernel$ -test.v"
	for name, command := range map[string]string{
		"delegated": "sh -c 'echo 0 >/sys/fs/cgroup/service/cgroup.procs && exec " + test + "'",
		"root":      test,
	} {
		if out := m.run("%s", command); !strings.Contains(out, "--- PASS: TestCgroupKernel") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if left := m.run("ls -d /sys/fs/cgroup/fastpath-modules-* /sys/fs/cgroup/service/fastpath-modules-* 2>/dev/null; true"); left != "" {
		t.Errorf("left: %s", left)
	}
	m.halt()
}

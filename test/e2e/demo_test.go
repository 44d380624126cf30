package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/demo"
)

// The demo holds with a smaller download, and leaves only its plot and its capture.
func TestDemo(t *testing.T) {
	need(t, "curl")
	driver := "dpdk"
	if !haveDPDK() {
		driver = "afpacket"
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	cmd := exec.Command(bin, "demo", "--driver", driver, "--size", "48MiB", "--json", "--out", out)
	cmd.Dir = "../.."
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.String(), stderr.String())
	}
	var r demo.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, stdout.String())
	}
	if r.Download.Bytes != 48<<20 || r.Upload.Bytes != 12<<20 || r.SwapFlows != 1 || r.RecoveredPID == r.KilledPID || r.RecoveryMsec <= 0 || r.FallbackUsec <= 0 {
		t.Errorf("%+v", r)
	}
	if r.MalformedFrames != 0 || r.Judged && r.CapturedFrames == 0 {
		t.Errorf("capture: %+v", r)
	}
	left, err := os.ReadDir(out)
	if err != nil || len(left) != 2 { // flow.pcapng and flow.svg
		t.Errorf("the demo has left %v, %v", left, err)
	}
	svg, err := os.ReadFile(filepath.Join(out, "flow.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"delivery rate", "cwnd", "srtt", "swap", "module killed"} {
		if !bytes.Contains(svg, []byte(label)) {
			t.Errorf("the plot does not show %q", label)
		}
	}
	if left, _ := filepath.Glob("/run/netns/fastpath-client-*"); len(left) > 0 {
		for _, l := range left {
			if strings.Contains(l, "-"+pidOf(cmd)+"-") {
				t.Errorf("%s is left", l)
			}
		}
	}
}

// A daemon that dies ends the demo at once: its error says how the daemon ended, and nothing of the run is left.
func TestDemoDaemonDies(t *testing.T) {
	need(t, "curl")
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
	text, err := os.ReadFile("../../conf/demo.toml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "demo.toml")
	text = bytes.Replace(text, []byte("/run/fastpath-demo/"), []byte(run+"/"), 1)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "demo", "-c", config, "--driver", "afpacket", "--size", "64MiB", "--out", out)
	r, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var said strings.Builder
	var killed time.Time
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if killed.IsZero() && strings.HasPrefix(lines.Text(), "download ") { // bytes have arrived, or are about to
			killed = time.Now()
			if err := unix.Kill(child(t, cmd.Process.Pid, "\x00run\x00-c\x00"), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "the daemon has ended: signal: killed") {
		t.Errorf("%v\n%s", err, said.String())
	}
	if took := time.Since(killed); took > 10*time.Second {
		t.Errorf("the demo ended %v after its daemon\n%s", took, said.String())
	}
	if _, err := os.Stat(run); err == nil {
		t.Errorf("%s is left", run)
	}
	for _, name := range []string{"demo.toml", "upload.bin"} {
		if _, err := os.Stat(filepath.Join(out, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// child finds the child of a process by a part of its command line, whose arguments end with zeros.
func child(t *testing.T, parent int, part string) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(text)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); bytes.Contains(line, []byte(part)) {
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("process %d has no child with %q", parent, part)
	return 0
}

func pidOf(cmd *exec.Cmd) string { return strconv.Itoa(cmd.Process.Pid) }

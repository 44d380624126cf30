package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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

func pidOf(cmd *exec.Cmd) string { return strconv.Itoa(cmd.Process.Pid) }

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd/dpdk"
)

// children counts the processes whose parent is this one.
func children(t *testing.T) (n int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Skip("this kernel does not list children (CONFIG_PROC_CHILDREN)")
	}
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		if err == nil {
			n += len(strings.Fields(string(b)))
		}
	}
	return n
}

// A configuration that cannot work is refused with its cause, and nothing is left of the attempt.
func TestStartErrors(t *testing.T) {
	script := filepath.Join(t.TempDir(), "fastpath-cong-fake")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const port = "[[port]]\nname = \"p\"\naddresses = [\"10.9.0.1/24\"]\n"
	cases := []struct{ name, text, want string }{
		{"no such interface", port + "driver = \"afpacket\"\ninterface = \"fpnosuch0\"\n", `test.toml:5: port[0].interface: there is no interface "fpnosuch0"`},
		{"no such module", strings.Replace(pair, "[modules.cong]", "[modules.cong]\nuse = \"vegas\"", 1), "modules.cong.use: cong vegas is not built in"},
		{"wrong checksum", strings.Replace(pair, "[modules.cong]",
			"[modules.cong]\nuse = \"fake\"\npath = \""+script+"\"\nsha256 = \""+strings.Repeat("0", 64)+"\"", 1), "modules.cong.sha256: " + script + " has the checksum"},
		{"no module", strings.Replace(pair, "[modules.cong]", "[modules.cong]\nuse = \"fake\"\npath = \""+script+"\"\nallow_unpinned = true", 1),
			"module cong/fake: ends in the handshake: exit status 3"},
		{"bad parameter", withoutProcesses + "params = { nosuch = \"1\" }\n", "nosuch"},
		{"bound adaptive worker", withoutProcesses + "[[worker]]\nport = \"a\"\ncore = 0\n[[worker]]\nport = \"b\"\n", "test.toml:50: worker[0].core: adaptive workers"},
		{"two listeners", withoutProcesses + "[metrics]\nlisten = \"192.0.2.1:9\"\n", "metrics.listen"},
		{"little memory", withoutProcesses + "[memory]\nlow = \"20MiB\"\n", "memory.low: the ports' packet buffers alone take"},
	}
	if !dpdk.Available {
		cases = append(cases, struct{ name, text, want string }{"no DPDK", port + "driver = \"dpdk\"\nvdev = \"net_null0\"\n", "built without DPDK"})
	}
	if os.Geteuid() != 0 {
		cases = append(cases, struct{ name, text, want string }{"no root", port + "driver = \"tap\"\ninterface = \"fptest0\"\n", "run as root"})
	}
	before := children(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.text)
			d, err := Start(t.Context(), cfg, Options{})
			if err == nil {
				d.Stop()
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not say %q:\n%v", c.want, err)
			}
			left, _ := filepath.Glob(filepath.Join(filepath.Dir(cfg.Control.Socket), "*"))
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if n := children(t); n != before {
				t.Errorf("%d processes are left", n-before)
			}
		})
	}
}

// A second daemon on the same control socket is refused and does not touch the first; a stale socket is replaced.
func TestSecondDaemon(t *testing.T) {
	d := start(t, withoutProcesses)
	cfg := config(t, withoutProcesses)
	cfg.Control.Socket = d.conf.Control.Socket
	second, err := Start(t.Context(), cfg, Options{})
	if !errors.Is(err, control.ErrRunning) {
		if err == nil {
			second.Stop()
		}
		t.Errorf("the second daemon: %v", err)
	}
	if i := call[control.Info](d, control.OpInfo, nil); i.PID != os.Getpid() || i.Config != "test.toml" || i.Version != "test" {
		t.Errorf("%+v", i)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	third, err := Start(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := third.Stop(); err != nil {
		t.Error(err)
	}
}

// Told to stop while it starts, a daemon ends without an error.
func TestStopWhileStarting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, config(t, withoutProcesses), Options{}); err != nil {
		t.Error(err)
	}
}

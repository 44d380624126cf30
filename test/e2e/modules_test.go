package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestSwapAndKill changes the module of each kind while data flows both ways over a lossy link, and then kills its process: all data
// arrives, and the module comes back.
func TestSwapAndKill(t *testing.T) {
	for _, c := range []struct{ kind, from, to, driver string }{
		{"cong", "bbr", "cdg", "dpdk"}, {"rtx", "btree", "list", "afpacket"}, {"pace", "edt", "none", "tap"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			const size = 3 << 20
			w := newWorld(t, link{driver: c.driver, path: lossy, httpKeys: `rate = "12Mbit/s"`, modules: fmt.Sprintf(
				"[modules.%s]\nuse = %q\nplacement = \"process\"\nrestart_min = \"50ms\"\n[[module]]\nkind = %q\nname = %q\nplacement = \"process\"\n",
				c.kind, c.from, c.kind, c.to)})
			w.ping()
			w.module(c.kind, c.from, control.ModuleActive)
			var up sync.WaitGroup
			up.Go(func() {
				answer, err := w.client.Command("curl", "--silent", "--show-error", "--fail", "--max-time", "55", "--limit-rate", "1500k",
					"-T", w.contentFile(5, size), w.url("/upload")).CombinedOutput()
				if err != nil {
					t.Errorf("upload: %v: %s", err, answer)
					return
				}
				w.uploaded(answer, 5, size)
			})
			down := w.startDownload(size)
			down.reach(size / 3)
			var r control.SwapReply
			w.must(w.call(control.OpSwap, control.SwapRequest{Kind: c.kind, Name: c.to}, &r))
			if r.From != c.from || r.To != c.to || r.Flows < 1 {
				t.Errorf("swap: %+v", r)
			}
			down.reach(size * 2 / 3)
			victim := w.module(c.kind, c.to, control.ModuleActive)
			w.must(syscall.Kill(victim.PID, syscall.SIGKILL))
			down.finish()
			up.Wait()
			w.eventually(10*time.Second, func() error {
				if m := w.find(c.kind, c.to); m.State != control.ModuleActive || m.PID == victim.PID || m.PID == 0 || m.Restarts < 1 {
					return fmt.Errorf("the module that was killed is not back: %+v", m)
				}
				return nil
			})
			t.Logf("swap of %d flows: gap %v, took %v; killed: %s", r.Flows, time.Duration(r.GapNS), time.Duration(r.TookNS), w.times())
			w.impaired()
			w.settled()
		})
	}
}

// times says how long fallback and return took, by the daemon's events.
func (w *world) times() string {
	w.Helper()
	var said []string
	w.eventually(10*time.Second, func() error { // a module serves before its return is told
		said = nil
		for _, e := range w.events() {
			if e.Kind == control.EventFallback || e.Kind == control.EventReturn {
				said = append(said, e.Message)
			}
		}
		if len(said) < 2 {
			return fmt.Errorf("the daemon's events do not tell of fallback and return: %q", said)
		}
		return nil
	})
	return strings.Join(said, "; ")
}

// find returns what the daemon says about a module.
func (w *world) find(kind, name string) control.Module {
	w.Helper()
	var r control.ModulesReply
	w.must(w.call(control.OpModules, nil, &r))
	for _, m := range r.Modules {
		if m.Kind == kind && m.Name == name && m.Placement == "process" {
			return m
		}
	}
	return control.Module{}
}

// module waits until a module is in a state.
func (w *world) module(kind, name, state string) (m control.Module) {
	w.Helper()
	w.eventually(10*time.Second, func() error {
		if m = w.find(kind, name); m.State != state {
			return fmt.Errorf("%s/%s: %+v, want %s", kind, name, m, state)
		}
		return nil
	})
	return m
}

// example builds the example module.
var example = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "fastpath-cong-aimd")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "../../plugins/example"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build plugins/example: %w\n%s", err, out)
	}
	return path, nil
})

// otherProtocol is a program that introduces itself as a module of another protocol version.
const otherProtocol = "#!/bin/sh\necho '1|999|unix|/nowhere|grpc|'\nexec sleep 5\n"

// executable writes an executable file and returns its path and checksum.
func executable(t *testing.T, path, content string) (string, string) {
	t.Helper()
	// A new file, since the old one may be running.
	if err := os.WriteFile(path+".new", []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
}

// aimd copies the example module to a directory of the test.
func aimd(t *testing.T) (path, sum string) {
	t.Helper()
	built, err := example()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	return executable(t, filepath.Join(t.TempDir(), "fastpath-cong-aimd"), string(b))
}

// TestSwapRefused wants the old module to stay, and the cause to be named.
func TestSwapRefused(t *testing.T) {
	for _, c := range []struct{ name, replace, want string }{
		{"wrong checksum", "#!/bin/sh\n", "sha256"},
		{"other protocol", otherProtocol, "protocol"},
		{"missing", "", "no such file"},
		{"no module", "#!/bin/sh\nexit 3\n", "exit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t)
			path, sum := aimd(t)
			pin := fmt.Sprintf("sha256 = %q", sum)
			if c.want == "protocol" || c.want == "exit" {
				pin = "allow_unpinned = true"
			}
			w := newWorld(t, link{driver: "afpacket", modules: linkedIn("cubic") + fmt.Sprintf(
				"[[module]]\nkind = \"cong\"\nname = \"aimd\"\nplacement = \"process\"\npath = %q\n%s\n", path, pin)})
			w.refused("nosuch", "nosuch", "cubic")
			w.module("cong", "aimd", control.ModuleStandby)
			w.must(w.call(control.OpSwap, control.SwapRequest{Kind: "cong", Name: "aimd"}, &control.SwapReply{}))
			serving := w.module("cong", "aimd", control.ModuleActive)
			if c.replace == "" {
				w.must(os.Remove(path))
			} else {
				executable(t, path, c.replace)
			}
			// A restart runs what was verified, a swap to a fresh process what the file is now.
			w.must(syscall.Kill(serving.PID, syscall.SIGKILL))
			w.eventually(10*time.Second, func() error {
				if m := w.find("cong", "aimd"); m.State != control.ModuleActive || m.PID == serving.PID || m.SHA256 != sum {
					return fmt.Errorf("the module is not back: %+v", m)
				}
				return nil
			})
			w.refused("aimd", c.want, "aimd")
			// An upgrade in place names its file.
			file, err := example()
			w.must(err)
			built, err := os.ReadFile(file)
			w.must(err)
			next, nextSum := executable(t, filepath.Join(t.TempDir(), "next"), string(built)+"another version")
			w.must(w.call(control.OpSwap, control.SwapRequest{Kind: "cong", Name: "aimd", To: next, ToSHA256: nextSum}, &control.SwapReply{}))
			if m := w.module("cong", "aimd", control.ModuleActive); m.SHA256 != nextSum || m.Path != next {
				t.Errorf("after the upgrade: %+v", m)
			}
			w.download(1 << 20)
		})
	}
}

// refused wants a swap to be refused with an error that names the cause, and the module that serves to stay.
func (w *world) refused(name, cause, stays string) {
	w.Helper()
	var r control.SwapReply
	err := w.call(control.OpSwap, control.SwapRequest{Kind: "cong", Name: name}, &r)
	if e := (*control.Error)(nil); !errors.As(err, &e) {
		w.Errorf("swap to %s: %+v, %v; want a refusal", name, r, err)
		return
	}
	w.Logf("swap to %s: %v", name, err)
	if !strings.Contains(strings.ToLower(err.Error()), cause) {
		w.Errorf("swap to %s: %v; the cause %q is not named", name, err, cause)
	}
	var list control.ModulesReply
	w.must(w.call(control.OpModules, nil, &list))
	for _, m := range list.Modules {
		if m.Kind == "cong" && m.State == control.ModuleActive && m.Name != stays {
			w.Errorf("after the refused swap %s serves", m.Name)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// asProgram makes the test binary behave as the program.
const asProgram = "FASTPATH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) >= 4 && os.Args[1] == "plugin" || len(os.Args) > 2 && os.Args[1] == "plugin-launch" { // modules get no environment
		main()
	}
	os.Exit(m.Run())
}

// daemonProcess is `fastpath run` in a process of its own.
type daemonProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr syncBuffer
	socket string
	ended  chan error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// runDaemon starts the daemon and waits until it serves. It is killed at the end of the test, if it still runs.
func runDaemon(t *testing.T, text string) *daemonProcess {
	t.Helper()
	dir := t.TempDir()
	p := &daemonProcess{t: t, socket: filepath.Join(dir, "control.sock"), ended: make(chan error, 1)}
	file := filepath.Join(dir, "fastpath.toml")
	if err := os.WriteFile(file, []byte(text+"\n[control]\nsocket = \""+p.socket+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(exe, "run", "-c", file)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		p.ended <- p.cmd.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-gone
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var info control.Info
		err := p.call(control.OpInfo, &info)
		if err == nil {
			if info.PID != p.cmd.Process.Pid || info.Config != file {
				t.Errorf("info: %+v", info)
			}
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("the daemon does not serve: %v\n%s", err, &p.stderr)
		}
	}
}

func (p *daemonProcess) call(op string, reply any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	c, err := control.Dial(ctx, p.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, op, nil, reply)
}

// modules returns the process ids of the daemon's modules.
func (p *daemonProcess) modules() (pids []int) {
	p.t.Helper()
	var r control.ModulesReply
	if err := p.call(control.OpModules, &r); err != nil {
		p.t.Fatal(err)
	}
	for _, m := range r.Modules {
		if m.PID != 0 {
			pids = append(pids, m.PID)
		}
	}
	return pids
}

func (p *daemonProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *daemonProcess) wait(d time.Duration) error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(d):
		p.t.Fatalf("the daemon does not end\n%s", &p.stderr)
		return nil
	}
}

func checkGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for end := time.Now().Add(20 * time.Second); !errors.Is(unix.Kill(pid, 0), unix.ESRCH); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("module process %d is left", pid)
				break
			}
		}
	}
}

const runConfig = `
[[port]]
name = "a"
driver = "memlink"
peer = "b"
mac = "02:00:00:00:00:0a"
addresses = ["10.9.0.1/24"]
[[port]]
name = "b"
driver = "memlink"
peer = "a"
mac = "02:00:00:00:00:0b"
addresses = ["10.9.0.2/24"]
[[app]]
kind = "echo"
listen = "10.9.0.1:7"
`

// A signal ends the daemon with exit code 0, and nothing of it is left.
func TestRunSignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := runDaemon(t, runConfig)
		pids := p.modules()
		if len(pids) != 3 || pids[0] != pids[1] || pids[0] != pids[2] { // a module of each kind, all in one
			t.Errorf("module processes: %v", pids)
		}
		p.signal(s)
		if err := p.wait(20 * time.Second); err != nil {
			t.Errorf("%v: %v\n%s", s, err, &p.stderr)
		}
		checkGone(t, pids)
		if left, _ := filepath.Glob(p.socket + "*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if log := p.stderr.String(); !strings.Contains(log, "msg=serving") || !strings.Contains(log, "msg=stopped") {
			t.Errorf("log:\n%s", log)
		}
	}
}

// Killed, it leaves a socket that the next one replaces, and no module process.
func TestRunKilled(t *testing.T) {
	p := runDaemon(t, runConfig)
	pids := p.modules()
	p.signal(syscall.SIGKILL)
	_ = p.wait(20 * time.Second)
	checkGone(t, pids)
	if _, err := os.Stat(p.socket); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(p.socket), "fastpath.toml")
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var out syncBuffer
	go func() { code <- run(ctx, []string{"run", "-c", file}, io.Discard, &out) }()
	var info control.Info
	for end := time.Now().Add(20 * time.Second); p.call(control.OpInfo, &info) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the next daemon does not serve\n%s", &out)
		}
	}
	cancel()
	if c := <-code; c != 0 || info.PID != os.Getpid() {
		t.Errorf("exit code %d, %+v\n%s", c, info, &out)
	}
}

// The first signal drains; the second ends the daemon at once, with all its processes.
func TestRunSecondSignal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace and packet sockets")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	ns, err := netns.New("run")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	veth, err := netns.Veth(netns.End{}, netns.End{NS: ns, Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.8.1.2/24")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer veth.Close()
	p := runDaemon(t, fmt.Sprintf(`
[[port]]
name = "veth"
driver = "afpacket"
interface = "%s"
mac = "02:00:00:08:01:01"
addresses = ["10.8.1.1/24"]
[[app]]
kind = "http"
listen = "10.8.1.1:80"
size = "1GiB"
rate = "10Mbit/s"
[shutdown]
drain = "1m"
`, veth.A.Name))
	pids := p.modules()
	curl := ns.Command("timeout", "90", "curl", "-sS", "-o", "/dev/null", "http://10.8.1.1/")
	if err := curl.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = curl.Process.Signal(syscall.SIGTERM) // timeout passes it on
		_ = curl.Wait()
	}()
	var r control.SSReply
	for end := time.Now().Add(20 * time.Second); len(r.Conns) == 0 || r.Conns[0].AckedBytes == 0; time.Sleep(10 * time.Millisecond) {
		if err := p.call(control.OpSS, &r); err != nil || time.Now().After(end) {
			t.Fatalf("no connection: %v, %+v", err, r)
		}
	}
	p.signal(syscall.SIGTERM)
	for end := time.Now().Add(20 * time.Second); !strings.Contains(p.stderr.String(), "msg=stopping"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the first signal has no effect\n%s", &p.stderr)
		}
	}
	if err := p.call(control.OpSS, &r); err != nil || len(r.Conns) != 1 {
		t.Errorf("while draining: %v, %+v", err, r)
	}
	p.signal(syscall.SIGTERM)
	var exit *exec.ExitError
	if err := p.wait(20 * time.Second); !errors.As(err, &exit) {
		t.Errorf("after the second signal: %v", err)
	}
	checkGone(t, pids)
}

func TestRunErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(file, []byte("[[port]]\nname = \"a\"\nspeed = 9\n[log]\nlevel = \"loud\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"run"}, []string{`required flag(s) "config" not set`}},
		{[]string{"run", "-c", filepath.Join(t.TempDir(), "nosuch")}, []string{"no such file"}},
		{[]string{"run", "-c", file}, []string{"bad.toml:3: port[0].speed", "bad.toml:5: log.level", "port[0].driver"}},
		{[]string{"plugin", "cong", "nosuch"}, []string{"not built in"}},
		{[]string{"plugin", "magic", "bbr"}, []string{"unknown module kind"}},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), c.args, io.Discard, &out); code != 1 {
			t.Errorf("%v: exit code %d", c.args, code)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%v does not say %q:\n%s", c.args, w, &out)
			}
		}
	}
}

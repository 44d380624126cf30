package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestStartRefused gives the daemon configurations that it must not start with. The error names the cause, and the place in the file
// where there is one.
func TestStartRefused(t *testing.T) {
	need(t)
	path, sum := aimd(t)
	other, otherSum := executable(t, filepath.Join(t.TempDir(), "other"), otherProtocol)
	cong := func(path, sum string) string {
		return fmt.Sprintf("[modules.cong]\nuse = \"aimd\"\nplacement = \"process\"\npath = %q\nsha256 = %q\n", path, sum)
	}
	port := fmt.Sprintf("[[port]]\nname = \"p\"\ndriver = \"afpacket\"\ninterface = %q\naddresses = [\"10.7.0.1/24\"]\n", clientIf)
	for _, c := range []struct {
		name, config string
		want         []string
	}{
		{"no TOML", "[[port]\n", []string{"fastpath.toml:1"}},
		{"unknown keys", port + "colour = \"red\"\n[nonsense]\n", []string{"fastpath.toml:6", "colour", "fastpath.toml:7", "nonsense"}},
		{"bad values", strings.Replace(port, "10.7.0.1/24", "10.7.0.256/24", 1) + "mtu = 12\n", []string{"addresses", "mtu"}},
		{"no such interface", strings.Replace(port, clientIf, "nosuch0", 1), []string{"nosuch0"}},
		{"no such core", port + "[[worker]]\npoll = \"spin\"\ncore = 4000\n", []string{"core", "4000"}},
		{"no such address", port + "[[app]]\nkind = \"echo\"\nlisten = \"10.9.9.9:7\"\n", []string{"listen", "10.9.9.9"}},
		{"no such module", port + "[modules.cong]\nuse = \"nosuch\"\nplacement = \"builtin\"\n", []string{"nosuch"}},
		{"missing module", port + cong(path+".missing", sum), []string{path + ".missing"}},
		{"wrong checksum", port + cong(path, strings.Repeat("0", 64)), []string{"sha256", path}},
		{"other protocol", port + cong(other, otherSum), []string{"protocol", "999"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{T: t, client: newNS(t, "refuse"), dir: t.TempDir()}
			w.server, w.mtu = w.client, 1500
			w.veth(w.clientEnd(), w.otherEnd())
			file := filepath.Join(w.dir, "fastpath.toml")
			socket := filepath.Join(w.dir, "control.sock")
			w.must(os.WriteFile(file, []byte(c.config+fmt.Sprintf("[control]\nsocket = %q\n", socket)), 0o644))
			bin, err := program()
			w.must(err)
			p := startProcess(t, w.server, exec.Command(bin, "run", "-c", file))
			err = p.wait(20 * time.Second)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() <= 0 || strings.Contains(p.said(), "panic") {
				t.Fatalf("the daemon ended with %v\n%s", err, p.said())
			}
			t.Log(p.tail(3))
			for _, want := range c.want {
				if !strings.Contains(p.said(), want) {
					t.Errorf("the daemon does not name %q:\n%s", want, p.said())
				}
			}
			if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the control socket is there: %v", err)
			}
		})
	}
}

// TestControlSocket wants one daemon per control socket: a second one is refused while the first lives, and replaces the socket of one
// that was killed.
func TestControlSocket(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket"})
	bin, err := program()
	w.must(err)
	second := startProcess(t, w.server, exec.Command(bin, "run", "-c", filepath.Join(w.dir, "fastpath.toml")))
	if err := second.wait(20 * time.Second); err == nil || !strings.Contains(second.said(), control.ErrRunning.Error()) || !strings.Contains(second.said(), w.socket) {
		t.Errorf("a second daemon ended with %v:\n%s", err, second.said())
	}
	w.download(64 << 10) // the first one serves on
	st, err := os.Stat(w.socket)
	w.must(err)
	if st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the control socket has mode %v", st.Mode())
	}
	w.must(w.daemon.cmd.Process.Kill())
	_ = w.daemon.wait(limit)
	if _, err := os.Stat(w.socket); err != nil {
		t.Fatalf("a daemon that was killed left no socket behind: %v", err)
	}
	w.start()
	w.download(64 << 10)
	w.stop()
	if _, err := os.Stat(w.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a daemon that ended in order left its socket: %v", err)
	}
}

// TestDrain stops the daemon while a download runs: it is let finish, while new connections are refused.
func TestDrain(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket", httpKeys: `rate = "10Mbit/s"`, more: "[shutdown]\ndrain = \"20s\"\n"})
	const size = 2 << 20 // 1.7 s
	d := w.startDownload(size)
	d.reach(size / 4)
	w.must(w.daemon.cmd.Process.Signal(syscall.SIGTERM))
	w.eventually(limit, func() error {
		c, err := w.dial(portEcho)
		if err == nil {
			c.Close()
			return errors.New("the daemon still accepts connections")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) { // a reset, if the listener closes while the connection is made
			return fmt.Errorf("%w, want a refusal", err)
		}
		return nil
	})
	d.finish()
	if err := w.daemon.wait(limit); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
}

// TestDrainEnds stops the daemon while a download runs that takes too long: when the time is over it is reset.
func TestDrainEnds(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket", httpKeys: `rate = "8Mbit/s"`, more: "[shutdown]\ndrain = \"1s\"\n"})
	d := w.startDownload(32 << 20)
	d.reach(256 << 10)
	quiet, err := w.dial(portEcho) // an idle connection is reset, too
	w.must(err)
	defer quiet.Close()
	_, err = quiet.Write([]byte("x"))
	w.must(err)
	w.must(quiet.SetDeadline(time.Now().Add(limit)))
	_, err = quiet.Read(make([]byte, 1))
	w.must(err)
	began := time.Now()
	w.must(w.daemon.cmd.Process.Signal(syscall.SIGTERM))
	if _, err := quiet.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the idle connection ended with %v, want a reset", err)
	}
	if err := w.daemon.wait(limit); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	if took := time.Since(began); took < 900*time.Millisecond || took > 10*time.Second { // the download would take half a minute
		t.Errorf("stopping took %v, want about a second", took)
	}
	<-d.done
	var exit *exec.ExitError
	if !errors.As(d.err, &exit) || exit.ExitCode() != 56 { // CURLE_RECV_ERROR
		t.Errorf("curl ended with %v, want a reset: %s", d.err, d.log.String())
	}
	if n := w.nstat()["TcpEstabResets"]; n != 2 {
		t.Errorf("the client's kernel counts %d resets, want 2", n)
	}
}

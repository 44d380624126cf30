package chaos

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// A module that is bad for its flows, or dies, loses them again; one that is not keeps them.
func TestTrial(t *testing.T) {
	tr := newTraffic(t, 1)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := host.New(host.Config{
		Engine: tr.a, RunDir: t.TempDir(), Use: []host.Use{{Spec: host.Spec{Kind: plugins.Cong, Name: "cubic"}, Guard: host.Guard{Late: 5 * time.Second}}},
		Standing: []host.Spec{{Kind: plugins.Cong, Name: "reno", Placement: host.Process},
			{Kind: plugins.Cong, Name: snailName, Placement: host.Process, Path: exe, Args: []string{"plugin", "cong", snailName}, AllowUnpinned: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const senders = 8
	for range senders {
		c, err := (&sock.Dialer{Stack: tr.a}).DialContext(t.Context(), "tcp", fmt.Sprintf("10.0.0.2:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		in, err := tr.ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _, _ = io.Copy(io.Discard, in); in.Close() })
		wg.Go(func() {
			defer c.Close()
			for buf := make([]byte, 64<<10); !tr.stop.Load(); {
				if _, err := c.Write(buf); err != nil {
					tr.fail("sender: %w", err)
					return
				}
			}
		})
	}
	time.Sleep(time.Second) // slow start
	on := func(name string, sel plugins.Selection, trial host.Trial) host.TrialReport {
		t.Helper()
		_, r, err := m.SwapOnTrial(t.Context(), plugins.Cong, name, sel, trial)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v", name, r)
		return r
	}
	serves := func(name string, flows int) {
		t.Helper()
		for _, s := range m.List() {
			if s.Kind == plugins.Cong && s.Name == name && s.Role != "fallback" && s.Flows != flows {
				t.Errorf("%s serves %d flows, not %d", name, s.Flows, flows)
			}
		}
	}
	if r := on(snailName, plugins.Selection{}, host.Trial{Time: 2 * time.Second, MaxGoodputDrop: 50}); !strings.Contains(r.RolledBack, "goodput") || r.Flows != senders {
		t.Errorf("a snail: %+v", r)
	}
	serves("cubic", senders)
	if r := on("reno", plugins.Selection{PeerPort: port}, host.Trial{Time: time.Second, MaxGoodputDrop: 99, MaxRTTIncrease: 10_000}); r.RolledBack != "" || r.RTTNow == 0 {
		t.Errorf("a module like the others: %+v", r)
	}
	serves("reno", senders)
	for _, s := range m.List() {
		if s.Name == snailName {
			time.AfterFunc(2500*time.Millisecond, func() { _ = unix.Kill(s.PID, unix.SIGKILL) })
		}
	}
	if r := on(snailName, plugins.Selection{}, host.Trial{Time: 4 * time.Second}); !strings.Contains(r.RolledBack, "died") {
		t.Errorf("one that dies: %+v", r)
	}
	serves("reno", senders)
	if _, _, err := m.SwapOnTrial(t.Context(), plugins.Cong, snailName, plugins.Selection{LocalPort: 1}, host.Trial{Time: time.Second}); err == nil {
		t.Error("a trial without a flow")
	}
	tr.stop.Store(true)
	wg.Wait()
	for _, err := range tr.errs {
		t.Error(err)
	}
	for _, c := range []io.Closer{m, tr.ln, tr.a, tr.b, tr.arena} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

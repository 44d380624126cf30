package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
)

// A swap, the death of the module process in use, and its return, in the middle of a download.
func TestTransfer(t *testing.T) {
	d := start(t, pair)
	const size = 32 << 20
	n, sum := get(t, d.client(), "http://10.9.0.1/", size/2, func() {
		var flow *control.Conn
		r := call[control.SSReply](d, control.OpSS, control.SSRequest{LocalPort: 80})
		for i := range r.Conns {
			if r.Conns[i].Local.Port() == 80 {
				flow = &r.Conns[i]
			}
		}
		if flow == nil || flow.State != control.StateEstablished || flow.Cong != "bbr" || flow.SentBytes < size/4 || flow.CwndBytes == 0 ||
			flow.SRTTNS == 0 || len(flow.CongInfo) < 3 || flow.Peer.Addr() != netip.MustParseAddr("10.9.0.2") {
			t.Errorf("ss during the transfer: %+v", r.Conns)
		}
		s := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "cdg"})
		if s.From != "bbr" || s.To != "cdg" || s.Flows != 2 || s.Workers != 2 || s.GapNS <= 0 || s.TookNS <= 0 {
			t.Errorf("swap: %+v", s)
		}
		m := d.module("cong", "cdg")
		if m.State != control.ModuleActive || m.Flows != 2 || m.Resumes != 2 || m.PID == 0 || len(m.SHA256) != 64 || m.Placement != "process" || m.Path != "" {
			t.Errorf("the module in use: %+v", m)
		}
		if err := unix.Kill(m.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := d.event(control.EventDead, "cong/cdg"); e.Fields["pid"] != fmt.Sprint(m.PID) {
			t.Errorf("event: %+v", e)
		}
		d.event(control.EventFallback, "with cdg")
		d.event(control.EventReturn, "cong/cdg serves 2 flows again")
		back := d.module("cong", "cdg")
		if back.State != control.ModuleActive || back.Restarts != 1 || back.PID == m.PID || back.Flows != 2 {
			t.Errorf("after the restart: %+v", back)
		}
	})
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	d.event(control.EventSwap, "cong/cdg serves 2 flows, was bbr")
	d.event(control.EventRestart, "cong/cdg")
}

// By default the modules of all kinds are in one process. One that is swapped for another leaves it, and comes back. When the process is
// killed in the middle of a download, all of them fall back and return with their flows.
func TestCommonProcess(t *testing.T) {
	d := start(t, pair)
	client := d.client()
	names := map[string]string{"rtx": "btree", "pace": "edt", "cong": "bbr"}
	common := func(restarts int) (pid int) { // the process that all three are in after so many restarts
		t.Helper()
		why := ""
		if !eventually(10*time.Second, func() bool {
			pid, why = 0, ""
			for kind, name := range names {
				m := d.module(kind, name)
				if m.State != control.ModuleActive && m.State != control.ModuleStandby || m.Restarts != restarts || m.PID == 0 || pid != 0 && m.PID != pid {
					why += fmt.Sprintf("%s is %s in process %d after %d restarts. ", name, m.State, m.PID, m.Restarts)
				}
				pid = m.PID
			}
			return why == ""
		}) {
			t.Fatal(why)
		}
		return pid
	}
	swap := func(name string) {
		t.Helper()
		if s := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: name}); s.Flows != 2 {
			t.Errorf("swap to %s: %+v", name, s)
		}
	}
	deaths := 0
	kill := func() {
		t.Helper()
		if err := unix.Kill(common(deaths), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		deaths++
		common(deaths)
	}
	const size = 32 << 20
	n, sum := get(t, client, "http://10.9.0.1/", size/2, func() {
		first := common(0)
		swap("cdg")
		if m := d.module("cong", "cdg"); m.PID == first || m.Flows != 2 {
			t.Errorf("%+v", m)
		}
		kill()
		swap("bbr")
	})
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	n, sum = get(t, client, "http://10.9.0.1/", size/2, kill) // with all three in use
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("after the second death: %d bytes with hash %s", n, sum)
	}
	for kind, name := range names {
		if m := d.module(kind, name); m.State != control.ModuleActive || m.Resumes < 2 {
			t.Errorf("%+v", m)
		}
		d.event(control.EventFallback, kind+"/")
		d.event(control.EventReturn, kind+"/"+name+" serves 2 flows again")
	}
}

// Any built-in module can be swapped to, for all kinds; what cannot be found is refused, and the old one stays.
func TestSwap(t *testing.T) {
	d := start(t, pair)
	c := d.dial("10.9.0.1:7")
	check := func() {
		t.Helper()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
			t.Fatalf("echo: %q, %v", b, err)
		}
	}
	check()
	for _, s := range []struct{ kind, name, placement string }{
		{"cong", "cubic", "process"}, {"cong", "reno", "process"}, {"cong", "bbr", "process"}, {"rtx", "list", "process"}, {"rtx", "btree", "process"},
		{"pace", "none", "process"}, {"pace", "edt", "process"},
	} {
		r := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: s.kind, Name: s.name})
		if r.Flows != 2 {
			t.Errorf("swap to %s: %+v", s.name, r)
		}
		check()
		if m := d.module(s.kind, s.name); m.Placement != s.placement || m.State != control.ModuleActive || m.Flows != 2 {
			t.Errorf("after the swap to %s: %+v", s.name, m)
		}
	}
	_, err := try[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "nosuch"})
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.CodeRefused || !strings.Contains(refused.Message, "nosuch") {
		t.Errorf("swap to a module that does not exist: %v", err)
	}
	if m := d.module("cong", "bbr"); m.State != control.ModuleActive || m.Flows != 2 {
		t.Errorf("after a refused swap: %+v", m)
	}
	check()
}

// A module that is linked in and in use is listed once; one from outside shows the parameters that it documents itself.
func TestModulesList(t *testing.T) {
	d := start(t, withoutProcesses)
	seen := map[string]int{}
	for _, m := range call[control.ModulesReply](d, control.OpModules, nil).Modules {
		seen[m.Kind+"/"+m.Name]++
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	if len(seen) < 3 {
		t.Errorf("modules %v", seen)
	}
	m := d.Daemon.module(&host.Status{
		Kind: plugins.Cong, Name: "third", Placement: host.Process, State: "restarting", Trouble: "killed", RestartIn: 3 * time.Second,
		Params: []plugins.Param{{Name: "alpha", Type: "int", Default: "7", Doc: "what it is"}},
	}, "cubic")
	if len(m.Params) != 1 || m.Params[0].Value != "7" || m.Params[0].Doc != "what it is" || m.NextRestartInNS != int64(3*time.Second) || m.State != control.ModuleDead {
		t.Errorf("%+v", m)
	}
}

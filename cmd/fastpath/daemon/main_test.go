package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

// The test binary is the binary of its module processes, too. Buffers that are left fail the run.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == Launcher {
		fmt.Fprintln(os.Stderr, host.Launch(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) >= 4 && os.Args[1] == "plugin" {
		if err := host.ServeBuiltin(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pmdtest.Main(m)
}

// config parses a configuration and gives it a control socket of its own.
func config(t *testing.T, text string) *conf.Config {
	t.Helper()
	c, err := conf.Parse("test.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if c.Control.Socket == conf.DefaultSocket {
		c.Control.Socket = filepath.Join(t.TempDir(), "control.sock")
	}
	c.Log.Level = "error"
	return c
}

// testDaemon is a running daemon with a client.
type testDaemon struct {
	*Daemon
	t *testing.T
}

// start runs the daemon that text describes until the test ends, when it must stop without an error.
func start(t *testing.T, text string) *testDaemon {
	t.Helper()
	d, err := Start(t.Context(), config(t, text), Options{Config: "test.toml", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return &testDaemon{d, t}
}

// call asks over the control socket.
func call[R any](d *testDaemon, op string, args any) *R {
	d.t.Helper()
	r, err := try[R](d, op, args)
	if err != nil {
		d.t.Fatalf("%s: %v", op, err)
	}
	return r
}

func try[R any](d *testDaemon, op string, args any) (*R, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer cancel()
	c, err := control.Dial(ctx, d.conf.Control.Socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var r R
	return &r, c.Call(ctx, op, args, &r)
}

// events returns all events so far.
func (d *testDaemon) events() (all []control.Event) {
	list, _ := d.Daemon.events.after(0)
	return list
}

// event waits for an event of that kind whose message has the text.
func (d *testDaemon) event(kind, text string) control.Event {
	d.t.Helper()
	var found control.Event
	if !eventually(20*time.Second, func() bool {
		for _, e := range d.events() {
			if e.Kind == kind && strings.Contains(e.Message, text) {
				found = e
				return true
			}
		}
		return false
	}) {
		d.t.Fatalf("no event %s with %q; there are %+v", kind, text, d.events())
	}
	return found
}

// module returns the module of that kind and name that is no fallback.
func (d *testDaemon) module(kind, name string) control.Module {
	d.t.Helper()
	for _, m := range call[control.ModulesReply](d, control.OpModules, nil).Modules {
		if m.Kind == kind && m.Name == name && m.Fallback != "" {
			return m
		}
	}
	d.t.Fatalf("no module %s/%s", kind, name)
	return control.Module{}
}

func eventually(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

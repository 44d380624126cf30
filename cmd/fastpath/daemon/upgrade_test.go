package daemon

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// Parameters change and binaries are replaced while connections live; what is refused changes nothing. All of it is an event and is
// counted.
func TestUpgradeAndSet(t *testing.T) {
	d := start(t, pair)
	c := d.dial("10.9.0.1:7")
	check := func() {
		t.Helper()
		b := []byte("hello")
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	check()
	value := func(m control.Module, name string) string {
		i := slices.IndexFunc(m.Params, func(p control.Param) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("no parameter %s: %+v", name, m.Params)
		}
		return m.Params[i].Value
	}
	before := d.module("cong", "bbr")
	name := before.Params[0].Name
	if _, err := try[control.SetReply](d, control.OpSet, control.SetRequest{Kind: "cong", Name: "bbr", Params: map[string]string{name: "x"}}); err == nil ||
		!strings.Contains(err.Error(), "refuses its parameters") {
		t.Error(err)
	}
	def := before.Params[0].Default
	r := call[control.SetReply](d, control.OpSet, control.SetRequest{Kind: "cong", Name: "bbr", Params: map[string]string{name: def}})
	if r.Flows != 2 || len(r.Params) != len(before.Params) {
		t.Errorf("set: %+v", r)
	}
	after := d.module("cong", "bbr")
	if after.PID == before.PID && before.PID != 0 || value(after, name) != def || after.Flows != 2 {
		t.Errorf("after set: %+v", after)
	}
	check()

	script := filepath.Join(t.TempDir(), "module")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("#!/bin/sh\nexit 3\n")))
	for want, sha := range map[string]string{"has the checksum": strings.Repeat("ab", 32), "exit status 3": sum} {
		_, err := try[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "bbr", To: script, ToSHA256: sha})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if m := d.module("cong", "bbr"); m.PID != after.PID || m.State != control.ModuleActive {
		t.Errorf("after refusals: %+v", m)
	}
	check()
	d.event(control.EventSet, "cong/bbr goes on with")
	d.event(control.EventRefused, "cong/bbr is refused: "+script+" has the checksum")
	refused, _, changes := d.names.changeCounts(2)
	if refused != 3 || changes != 1 {
		t.Errorf("counted: %d refusals, %d changes", refused, changes)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{d.Daemon})
	if _, err := reg.Gather(); err != nil { // names and labels go together
		t.Error(err)
	}
}

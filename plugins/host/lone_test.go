package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// TestLone: a binary of any name, alone and in lockstep: it answers at once, the same each time, and is gone when it is closed.
func TestLone(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is needed to build the example: ", err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	bin := filepath.Join(dir, "anything")
	build := exec.Command(goTool, "build", "-o", bin, ".")
	build.Dir = "../example"
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "TMPDIR=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	answers := func(params plugins.Params) (out []cong.Decision) {
		l, err := OpenLone(t.Context(), plugins.Cong, bin, params, 7)
		if err != nil {
			t.Fatal(err)
		}
		if l.Info.Name != "aimd" || len(l.Info.Params) != 2 {
			t.Errorf("%+v", l.Info)
		}
		m := l.Module.(cong.Module)
		in := cong.Sample{Flow: plugins.Flow{Slot: 1, Gen: 1}, ID: 1, Kind: cong.KindOpen, Now: 1e9, MSS: 1000, Cwnd: 10_000, Ssthresh: 20_000}
		for i := range 100 {
			var buf [4]cong.Decision
			out = append(out, buf[:m.Poll(in.Now, []cong.Sample{in}, buf[:])]...)
			in.ID, in.Now, in.Kind, in.Acked, in.Flags = in.ID+1, in.Now+1e6, cong.KindAck, 1000, cong.FlagCwndLimited
			if i == 50 {
				in.Flags |= cong.FlagEnter
			}
		}
		if l.Fault() != "" {
			t.Error(l.Fault())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		return out
	}
	one := answers(nil)
	if diff := cmp.Diff(one, answers(nil)); len(one) != 100 || diff != "" {
		t.Errorf("%d answers; second time (-first +second):\n%s", len(one), diff)
	}
	if cmp.Diff(one, answers(plugins.Params{"keep": "80"})) == "" {
		t.Error("the parameter changes nothing")
	}
	for _, c := range []struct {
		path   string
		kind   plugins.Kind
		params plugins.Params
		want   string
	}{
		{bin, plugins.Cong, plugins.Params{"keep": "5"}, "keep"},
		{bin, plugins.Pace, nil, "is the module cong/aimd"},
		{"/bin/true", plugins.Cong, nil, "handshake"},
		{filepath.Join(dir, "none"), plugins.Cong, nil, "no such file"},
	} {
		if _, err := OpenLone(t.Context(), c.kind, c.path, c.params, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c, err, c.want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, runDirPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

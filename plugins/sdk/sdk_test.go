package sdk

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

func TestCheck(t *testing.T) {
	info := plugins.Info{Kind: plugins.Cong, Name: "x", Version: "1.0.0"}
	newCong := func(plugins.Params, uint64) (cong.Module, error) { return nil, nil }
	newPace := func(plugins.Params, uint64) (pace.Module, error) { return nil, nil }
	if err := (&Module{Info: info, Cong: newCong}).Check(); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]Module{
		"no factory":    {Info: info},
		"wrong factory": {Info: info, Pace: newPace},
		"two factories": {Info: info, Cong: newCong, Pace: newPace},
		"no name":       {Info: plugins.Info{Kind: plugins.Cong, Version: "1.0.0"}, Cong: newCong},
		"no version":    {Info: plugins.Info{Kind: plugins.Cong, Name: "x"}, Cong: newCong},
	} {
		if m.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A binary may offer several modules, each once.
func TestCheckAll(t *testing.T) {
	newCong := func(plugins.Params, uint64) (cong.Module, error) { return nil, nil }
	of := func(name string) Module {
		return Module{Info: plugins.Info{Kind: plugins.Cong, Name: name, Version: "1.0.0"}, Cong: newCong}
	}
	if err := check([]Module{of("x"), of("y")}); err != nil {
		t.Error(err)
	}
	for want, all := range map[string][]Module{"there is no module": nil, "cong module x is there twice": {of("x"), of("y"), of("x")}, "needs a name": {of("x"), of("")}} {
		if err := check(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	text := usage([]Module{of("x"), of("y")}, "")
	if !strings.Contains(text, "ctl swap cong x") || !strings.Contains(text, "ctl swap cong y") {
		t.Error(text)
	}
}

// Started by hand, a module says what it is for.
func TestStartedByHand(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is needed to build the example: ", err)
	}
	file := filepath.Join(t.TempDir(), "module")
	cmd := exec.Command(goTool, "build", "-o", file, ".")
	cmd.Dir = "../example"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(file).CombinedOutput()
	if entry := fmt.Sprintf("[[module]]\nkind      = \"cong\"\nname      = \"aimd\"\nplacement = \"process\"\nsha256    = \"%x\"\n", sha256.Sum256(code)); !strings.Contains(string(out), entry) {
		t.Errorf("there is no\n%s in\n%s", entry, out)
	}
	if err == nil || !strings.Contains(string(out), "fastpath ctl swap cong aimd") || !strings.Contains(string(out), "parameter keep (uint percent, default 50)") {
		t.Errorf("%v\n%s", err, out)
	}
}

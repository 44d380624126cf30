package sdk

import (
	"os/exec"
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

// Started by hand, a module says what it is for.
func TestStartedByHand(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is needed to build the example: ", err)
	}
	cmd := exec.Command(goTool, "run", ".")
	cmd.Dir = "../example"
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "fastpath ctl swap cong aimd") || !strings.Contains(string(out), "parameter keep (uint percent, default 50)") {
		t.Errorf("%v\n%s", err, out)
	}
}

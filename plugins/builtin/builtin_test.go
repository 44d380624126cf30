package builtin

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Every entry is complete, found by its name, made with its defaults, and refuses what it does not know.
func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		name := e.Info.Kind.String() + "/" + e.Info.Name
		if seen[name] {
			t.Errorf("%s is in the list twice", name)
		}
		seen[name] = true
		if found, ok := Find(e.Info.Kind, e.Info.Name); !ok || found.Info.Version != e.Info.Version || e.Info.Version == "" {
			t.Errorf("%s is not found, or has no version", name)
		}
		m, err := e.New(nil, 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ok := false
		switch e.Info.Kind {
		case plugins.Rtx:
			_, ok = m.(rtx.Module)
		case plugins.Pace:
			_, ok = m.(pace.Module)
		case plugins.Cong:
			_, ok = m.(cong.Module)
			if e.Describe == nil || e.Describe([3]uint64{}, &cong.Decision{}) == "" {
				t.Errorf("%s does not describe its flows", name)
			}
		}
		if !ok {
			t.Errorf("%s is a %T", name, m)
		}
		defaults := plugins.Params{}
		for _, p := range e.Info.Params {
			if p.Doc == "" || p.Type == "" {
				t.Errorf("%s: parameter %s is not documented", name, p.Name)
			}
			defaults[p.Name] = p.Default
		}
		if _, err := e.New(defaults, 1); err != nil {
			t.Errorf("%s refuses its own defaults: %v", name, err)
		}
		if _, err := e.New(plugins.Params{"no_such_parameter": "1"}, 1); err == nil {
			t.Errorf("%s accepts an unknown parameter", name)
		}
	}
	for _, want := range []string{"rtx/btree", "rtx/list", "pace/edt", "pace/none", "cong/bbr", "cong/bbr3", "cong/cdg", "cong/cubic", "cong/dctcp", "cong/reno"} {
		if !seen[want] {
			t.Errorf("%s is missing", want)
		}
	}
	if _, ok := Find(plugins.Cong, "btree"); ok {
		t.Error("btree is found as a congestion control")
	}
}

// Package builtin is the list of the modules that are linked in. To add one, write its package and add a line here; the same
// entry serves it linked into workers and, by host.ServeBuiltin, as a process.
package builtin

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Entry is one built-in module: its description, and the factory of the one kind that Info names.
type Entry struct {
	Info plugins.Info
	Rtx  rtx.New
	Pace pace.New
	Cong cong.New
	// Describe renders the algorithm's own state of a flow for `fastpath ctl ss`, from its last decision. Congestion control only.
	Describe func(aux [3]uint64, d *cong.Decision) string
}

// New makes an instance: an rtx.Module, pace.Module or cong.Module.
func (e *Entry) New(p plugins.Params, seed uint64) (any, error) {
	switch e.Info.Kind {
	case plugins.Rtx:
		return e.Rtx(p, seed)
	case plugins.Pace:
		return e.Pace(p, seed)
	case plugins.Cong:
		return e.Cong(p, seed)
	}
	return nil, fmt.Errorf("builtin: module of unknown %v", e.Info.Kind)
}

// All returns the list, sorted by kind.
func All() []Entry { return append([]Entry(nil), modules...) }

// Find returns the module of that kind and name.
func Find(kind plugins.Kind, name string) (Entry, bool) {
	for _, e := range modules {
		if e.Info.Kind == kind && e.Info.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}

// Checker returns what tells whether a built-in module accepts parameters, and why not (see plugins.Params); nil if there is no such
// module.
func Checker(kind plugins.Kind, name string) func(plugins.Params) error {
	e, ok := Find(kind, name)
	if !ok {
		return nil
	}
	return func(p plugins.Params) error {
		_, err := e.New(p, 1)
		return err
	}
}

// Names returns the names of the built-in modules of a kind.
func Names(kind plugins.Kind) (names []string) {
	for _, e := range modules {
		if e.Info.Kind == kind {
			names = append(names, e.Info.Name)
		}
	}
	return names
}

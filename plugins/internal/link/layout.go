package link

import (
	"fmt"
	"hash/fnv"
	"io"
	"reflect"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Layout hashes what host and module must see alike: names, types, sizes and offsets of all fields of the kind's records and
// of the control blocks beside the rings. It is computed from the compiled types, so nobody can forget to change it.
func Layout(kind plugins.Kind) (uint64, error) {
	var event, command reflect.Type
	switch kind {
	case plugins.Rtx:
		event, command = reflect.TypeFor[rtx.Event](), reflect.TypeFor[rtx.Command]()
	case plugins.Pace:
		event, command = reflect.TypeFor[pace.Event](), reflect.TypeFor[pace.Line]()
	case plugins.Cong:
		event, command = reflect.TypeFor[cong.Sample](), reflect.TypeFor[cong.Decision]()
	default:
		return 0, fmt.Errorf("no records for module %v", kind)
	}
	return layoutOf(event, command, reflect.TypeFor[HostBlock](), reflect.TypeFor[ModuleBlock]()), nil
}

func layoutOf(types ...reflect.Type) uint64 {
	h := fnv.New64a()
	for _, t := range types {
		describe(h, "", t, 0)
	}
	return h.Sum64()
}

func describe(w io.Writer, name string, t reflect.Type, offset uintptr) {
	fmt.Fprintf(w, "%s %s %v %d+%d;", name, t.Name(), t.Kind(), offset, t.Size())
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			describe(w, f.Name, f.Type, offset+f.Offset)
		}
	case reflect.Array:
		fmt.Fprintf(w, "[%d]", t.Len())
		describe(w, "", t.Elem(), offset)
	}
}

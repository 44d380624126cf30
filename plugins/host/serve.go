package host

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// ServeBuiltin runs a built-in module as a module process: it is what `fastpath plugin KIND NAME` does. A Manager starts its
// own program with these arguments for a process of a built-in module. It returns when the host has let go of the process.
func ServeBuiltin(kind plugins.Kind, name string) error {
	e, ok := builtin.Find(kind, name)
	if !ok {
		return fmt.Errorf("module %v/%s is not built in (built in are: %v)", kind, name, builtin.Names(kind))
	}
	sdk.Serve(sdk.Module{Info: e.Info, Rtx: e.Rtx, Pace: e.Pace, Cong: e.Cong})
	return nil
}

package host

import (
	"errors"
	"fmt"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// ServeBuiltin runs built-in modules as a module process: it is what `fastpath plugin KIND NAME ...` does. A Manager starts its
// own program with these arguments for a process of built-in modules. It returns when the host has let go of the process.
func ServeBuiltin(args []string) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return errors.New("modules are given as KIND NAME")
	}
	var all []sdk.Module
	for i := 0; i < len(args); i += 2 {
		kind, err := plugins.ParseKind(args[i])
		if err != nil {
			return err
		}
		e, ok := builtin.Find(kind, args[i+1])
		if !ok {
			return fmt.Errorf("module %v/%s is not built in (built in are: %v)", kind, args[i+1], builtin.Names(kind))
		}
		all = append(all, sdk.Module{Info: e.Info, Rtx: e.Rtx, Pace: e.Pace, Cong: e.Cong})
	}
	sdk.Serve(all...)
	return nil
}

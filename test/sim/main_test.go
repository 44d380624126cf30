package sim

import (
	"os"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// The test binary is the binary of a retransmit queue, too, when the host starts it as one.
func TestMain(m *testing.M) {
	if sdk.Started() {
		e, _ := builtin.Find(plugins.Rtx, "btree")
		sdk.Serve(sdk.Module{Info: e.Info, Rtx: e.Rtx})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

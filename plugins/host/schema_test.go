package host

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// A module process may send every command and flag that there is; what the host does not know is a protocol violation.
func TestCheckRtxKnowsAllCommands(t *testing.T) {
	for kind := rtx.CmdStatus; kind < rtx.CmdEnd; kind++ {
		c := rtx.Command{Kind: kind, Flags: rtx.AllCommandFlags}
		if kind == rtx.CmdLost || kind == rtx.CmdSacked {
			c.SetRange(seq.Range{Start: 1<<32 - 1, End: 5})
		}
		if err := checkRtx(&c); err != nil {
			t.Errorf("command %d: %v", kind, err)
		}
	}
	for _, c := range []rtx.Command{{Kind: rtx.CmdEnd}, {}, {Kind: rtx.CmdStatus, Flags: rtx.AllCommandFlags + 1}, {Kind: rtx.CmdLost}} {
		if checkRtx(&c) == nil {
			t.Errorf("command %+v passes", c)
		}
	}
}

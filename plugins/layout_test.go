package plugins_test

import (
	"testing"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// The records travel through shared memory: their sizes are part of the contract.
func TestRecordSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"cong.Sample", unsafe.Sizeof(cong.Sample{}), 128},
		{"cong.Decision", unsafe.Sizeof(cong.Decision{}), 64},
		{"rtx.Event", unsafe.Sizeof(rtx.Event{}), 128},
		{"rtx.Command", unsafe.Sizeof(rtx.Command{}), 128},
		{"pace.Event", unsafe.Sizeof(pace.Event{}), 64},
		{"pace.Line", unsafe.Sizeof(pace.Line{}), 64},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d bytes, want %d", c.name, c.got, c.want)
		}
	}
}

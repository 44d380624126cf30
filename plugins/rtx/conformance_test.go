package rtx_test

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/plugtest"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

func TestBTreeConformance(t *testing.T) { plugtest.Rtx(t, rtx.NewBTree) }
func TestListConformance(t *testing.T)  { plugtest.Rtx(t, rtx.NewList) }

// The index from the first segment on.
func TestBTreeThresholdZero(t *testing.T) {
	plugtest.Rtx(t, func(p plugins.Params, seed uint64) (rtx.Module, error) {
		all := plugins.Params{"threshold": "0"}
		for k, v := range p {
			all[k] = v
		}
		return rtx.NewBTree(all, seed)
	})
}

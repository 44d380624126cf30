package builtin

import (
	"github.com/fastpath-tcp/fastpath/cong/bbr"
	"github.com/fastpath-tcp/fastpath/cong/bbr3"
	"github.com/fastpath-tcp/fastpath/cong/cdg"
	"github.com/fastpath-tcp/fastpath/cong/cubic"
	"github.com/fastpath-tcp/fastpath/cong/dctcp"
	"github.com/fastpath-tcp/fastpath/cong/reno"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// modules is the list.
var modules = []Entry{
	{Info: rtx.BTreeInfo(), Rtx: rtx.NewBTree},
	{Info: rtx.ListInfo(), Rtx: rtx.NewList},

	{Info: pace.EDTInfo(), Pace: pace.NewEDT},
	{Info: pace.NoneInfo(), Pace: pace.NewNone},

	{Info: bbr.Info(), Cong: bbr.New, Describe: bbr.Describe},
	{Info: bbr3.Info(), Cong: bbr3.New, Describe: bbr3.Describe},
	{Info: cdg.Info(), Cong: cdg.New, Describe: cdg.Describe},
	{Info: cubic.Info(), Cong: cubic.New, Describe: cubic.Describe},
	{Info: dctcp.Info(), Cong: dctcp.New, Describe: dctcp.Describe},
	{Info: reno.Info(), Cong: reno.New, Describe: reno.Describe},
}

package report

import (
	"fmt"
	"io"
)

// Founding is the result of `fastpath bench founding`: the same transfer with the linear retransmit queue and with the default one.
type Founding struct {
	Bench
	ListBPS  float64    `json:"list_mean_bps"`  // mean goodput over the runs
	BTreeBPS float64    `json:"btree_mean_bps"` // the same
	Ratio    float64    `json:"ratio"`          // of the two
	Checks   []RtxCheck `json:"checks"`
	Met      bool       `json:"met"` // every check
}

// Judge fills in the means and checks them: the default queue's goodput is at least ratio times the list's, and at least bps.
func (f *Founding) Judge(ratio, bps float64) {
	f.ListBPS, f.BTreeBPS = f.mean("list_goodput_bps"), f.mean("btree_goodput_bps")
	f.Ratio = f.BTreeBPS / max(f.ListBPS, 1)
	f.Checks = []RtxCheck{
		{Name: "mean goodput of btree by list's", Value: f.Ratio, AtLeast: ratio},
		{Name: "mean goodput of btree, Gbit/s", Value: f.BTreeBPS / 1e9, AtLeast: bps / 1e9},
	}
	f.Met = judge(f.Checks)
}

func (f *Founding) mean(name string) float64 {
	sum := 0.0
	for _, r := range f.Runs {
		sum += r.Values[name]
	}
	return sum / float64(max(len(f.Runs), 1))
}

// WriteText writes the result as tables.
func (f *Founding) WriteText(w io.Writer) error {
	if err := f.Bench.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "mean goodput: list %s, btree %s\n\n", Format(f.ListBPS, "bit/s"), Format(f.BTreeBPS, "bit/s"))
	return writeChecks(w, f.Checks)
}

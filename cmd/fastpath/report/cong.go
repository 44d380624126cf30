package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Cong is the result of `fastpath bench cong`: what a sample costs each congestion control.
type Cong struct {
	Machine Machine   `json:"machine"`
	Rows    []CongRow `json:"rows"`
	Met     bool      `json:"met"` // every limit
}

// CongRow is one algorithm with one size of batches.
type CongRow struct {
	Cong      string  `json:"cong"`
	Batch     int     `json:"batch"`      // samples per call
	SampleNS  Metric  `json:"sample_ns"`  // per sample, over the runs
	Allocs    float64 `json:"allocs"`     // per sample
	RenoRatio float64 `json:"reno_ratio"` // median over the runs of the time by that of reno in the same run and batch
	AtMost    float64 `json:"at_most"`    // what the ratio may be; 0: any
	OK        bool    `json:"ok"`
}

// Judge fills in OK and Met.
func (r *Cong) Judge() {
	r.Met = true
	for i := range r.Rows {
		c := &r.Rows[i]
		c.OK = c.Allocs == 0 && (c.AtMost == 0 || c.RenoRatio <= c.AtMost)
		r.Met = r.Met && c.OK
	}
}

// WriteText writes the result as a table.
func (r *Cong) WriteText(w io.Writer) error {
	r.Machine.writeText(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONG\tBATCH\tPER SAMPLE\tMIN\tMAX\tALLOCS\tTIME / RENO\tLIMIT\tVERDICT")
	for i := range r.Rows {
		c := &r.Rows[i]
		limit, verdict := "-", "met"
		if c.AtMost != 0 {
			limit = "≤ " + four(c.AtMost)
		}
		if !c.OK {
			verdict = "missed"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Cong, c.Batch, Format(c.SampleNS.Median, "ns"), Format(c.SampleNS.Min, "ns"),
			Format(c.SampleNS.Max, "ns"), four(c.Allocs), four(c.RenoRatio), limit, verdict)
	}
	return t.Flush()
}

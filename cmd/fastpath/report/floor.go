package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Floor is the result of `fastpath bench all`: each benchmark beside what another stack does on the same work, and what is required.
type Floor struct {
	Machine Machine    `json:"machine"`
	Peer    string     `json:"peer"` // the other stack
	Rows    []FloorRow `json:"rows"`
	Met     bool       `json:"met"` // every requirement that could be judged
}

// FloorRow is one benchmark.
type FloorRow struct {
	Name         string  `json:"name"`
	Ours         Metric  `json:"ours"`
	Peer         *Metric `json:"peer"`          // measured in the same run, interleaved with ours; null: no peer was given
	RefMedian    float64 `json:"ref_median"`    // of the peer, from another run on another day: for orientation only
	Ratio        float64 `json:"ratio"`         // Ours.Median / Peer.Median; 0 without a peer
	RefRatio     float64 `json:"ref_ratio"`     // Ours.Median / RefMedian
	RequireRatio float64 `json:"require_ratio"` // the least Ratio; 0: none is required
	RequireMost  float64 `json:"require_most"`  // the largest Ours.Median; 0: none is required
	Verdict      string  `json:"verdict"`       // "met", "missed", "reported": nothing is required, or "unknown": no peer in the same run
}

// Judge fills in the ratios and verdicts.
func (f *Floor) Judge() {
	f.Met = true
	for i := range f.Rows {
		r := &f.Rows[i]
		if r.Peer != nil && r.Peer.Median > 0 {
			r.Ratio = r.Ours.Median / r.Peer.Median
		}
		if r.RefMedian > 0 {
			r.RefRatio = r.Ours.Median / r.RefMedian
		}
		ok := (r.RequireRatio == 0 || r.Ratio >= r.RequireRatio) && (r.RequireMost == 0 || r.Ours.Median <= r.RequireMost)
		switch {
		case r.RequireRatio == 0 && r.RequireMost == 0:
			r.Verdict = "reported"
		case r.RequireRatio > 0 && r.Ratio == 0:
			r.Verdict = "unknown"
		case ok:
			r.Verdict = "met"
		default:
			r.Verdict = "missed"
			f.Met = false
		}
	}
}

// WriteText writes the result as a table.
func (f *Floor) WriteText(w io.Writer) error {
	f.Machine.writeText(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "BENCHMARK\tMEDIAN\tMIN\tMAX\tIQR\tRUNS\t%s, SAME RUN\tRATIO\tREQUIRED\tVERDICT\tREFERENCE FROM ANOTHER RUN\tRATIO TO THAT\n", f.Peer)
	for i := range f.Rows {
		r := &f.Rows[i]
		m := &r.Ours
		peer, ratio, ref, refRatio, required := "-", "-", "-", "-", "-"
		if r.Peer != nil {
			peer = fmt.Sprintf("%s (%s … %s)", Format(r.Peer.Median, m.Unit), Format(r.Peer.Min, m.Unit), Format(r.Peer.Max, m.Unit))
			ratio = fmt.Sprintf("%.2f×", r.Ratio)
		}
		if r.RefMedian > 0 {
			ref, refRatio = Format(r.RefMedian, m.Unit), fmt.Sprintf("(%.2f×)", r.RefRatio)
		}
		switch {
		case r.RequireMost > 0:
			required = "≤ " + Format(r.RequireMost, m.Unit)
		case r.RequireRatio > 0:
			required = fmt.Sprintf("≥ %v×", r.RequireRatio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, Format(m.Median, m.Unit), Format(m.Min, m.Unit), Format(m.Max, m.Unit),
			Format(m.IQR, m.Unit), m.N, peer, ratio, required, r.Verdict, ref, refRatio)
	}
	return t.Flush()
}

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Pace is the result of `fastpath bench pace`: what pacing and the send path do, beside the figures that they are measured by.
type Pace struct {
	Machine Machine   `json:"machine"`
	Rows    []PaceRow `json:"rows"`
	Met     bool      `json:"met"` // every limit of a row on virtual time; those in real time depend on the machine and fail nothing
}

// PaceRow is one measurement.
type PaceRow struct {
	Proof    string             `json:"proof"` // "precision", "real time", "timer", "fairness", "messages", …
	Name     string             `json:"name"`
	Virtual  bool               `json:"virtual"` // on virtual time: the same on every machine
	Value    Metric             `json:"value"`
	Founding float64            `json:"founding"` // the same figure in the founding documents; 0: none
	AtLeast  float64            `json:"at_least"` // 0: none
	AtMost   float64            `json:"at_most"`  // 0: none
	Verdict  string             `json:"verdict"`  // "met", "missed" or "reported"
	Figures  map[string]float64 `json:"figures"`  // what else was measured, medians; names end in their units
	Note     string             `json:"note"`     // why there is no figure
}

// Judge fills in the verdicts.
func (p *Pace) Judge() {
	p.Met = true
	for i := range p.Rows {
		r := &p.Rows[i]
		v := r.Value.Median
		switch {
		case r.Value.N == 0 || r.AtLeast == 0 && r.AtMost == 0:
			r.Verdict = "reported"
		case v >= r.AtLeast && (r.AtMost == 0 || v <= r.AtMost):
			r.Verdict = "met"
		default:
			r.Verdict = "missed"
			p.Met = p.Met && !r.Virtual
		}
	}
}

// WriteText writes the result as a table.
func (p *Pace) WriteText(w io.Writer) error {
	p.Machine.writeText(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROOF\tCASE\tFIGURE\tMEDIAN\tMIN\tMAX\tRUNS\tFOUNDING\tLIMIT\tVERDICT\tBESIDES")
	for i := range p.Rows {
		r := &p.Rows[i]
		m := &r.Value
		if m.N == 0 {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t-\t-\t-\t-\t%s\t%s\n", r.Proof, r.Name, r.Verdict, r.Note)
			continue
		}
		founding := "-"
		if r.Founding != 0 {
			founding = paceFormat(r.Founding, m.Unit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Proof, r.Name, m.Name, paceFormat(m.Median, m.Unit), paceFormat(m.Min, m.Unit),
			paceFormat(m.Max, m.Unit), m.N, founding, r.limit(), r.Verdict, r.besides())
	}
	return t.Flush()
}

func (r *PaceRow) limit() string {
	var s []string
	if r.AtLeast != 0 {
		s = append(s, "≥ "+paceFormat(r.AtLeast, r.Value.Unit))
	}
	if r.AtMost != 0 {
		s = append(s, "≤ "+paceFormat(r.AtMost, r.Value.Unit))
	}
	if s == nil {
		return "-"
	}
	return strings.Join(s, ", ")
}

func (r *PaceRow) besides() string {
	var s []string
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		s = append(s, name+" "+Format(r.Figures[name], UnitOf(name)))
	}
	if r.Note != "" {
		s = append(s, r.Note)
	}
	return strings.Join(s, ", ")
}

// paceFormat is Format, but for rates of data, whose deviations show in the seventh digit only.
func paceFormat(v float64, unit string) string {
	if unit == "bit/s" && v >= 1e6 {
		return fmt.Sprintf("%.3f Mbit/s", v/1e6)
	}
	return Format(v, unit)
}

package report

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Rtx is the result of `fastpath bench rtx`: what an acknowledgement costs, by length of the retransmit queue, pattern of arrival and module.
type Rtx struct {
	Machine Machine    `json:"machine"`
	Rows    []RtxRow   `json:"rows"`
	Checks  []RtxCheck `json:"checks"`
	Met     bool       `json:"met"` // every check
}

// RtxRow is one measurement.
type RtxRow struct {
	Pattern  string `json:"pattern"`  // "inorder", "hole", "second", "random5", "uniform5"
	Segments int    `json:"segments"` // outstanding
	Module   string `json:"module"`
	// Acks is how many acknowledgements were measured per run. CutShort: time was up before the pattern's last one, in some run.
	Acks         int     `json:"acks"`
	CutShort     bool    `json:"cut_short"`
	AckNS        Metric  `json:"ack_ns"` // per acknowledgement, over the runs
	VisitsPerAck float64 `json:"visits_per_ack"`
	// ListRatio is the median over the runs of the time by that of the list, on the same acknowledgements; 0: not measured.
	ListRatio float64 `json:"list_ratio"`
	// ListVisits is the list's visits by this module's, on the same acknowledgements; 0: not measured.
	ListVisits float64 `json:"list_visits_ratio"`
}

// RtxCheck is one thing that is required.
type RtxCheck struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	AtMost  float64 `json:"at_most"`  // 0: none
	AtLeast float64 `json:"at_least"` // 0: none
	OK      bool    `json:"ok"`
}

// Judge fills in OK and Met.
func (r *Rtx) Judge() { r.Met = judge(r.Checks) }

// judge fills in OK of each check and reports whether all are met.
func judge(checks []RtxCheck) (met bool) {
	met = true
	for i := range checks {
		c := &checks[i]
		c.OK = (c.AtMost == 0 || c.Value <= c.AtMost) && (c.AtLeast == 0 || c.Value >= c.AtLeast)
		met = met && c.OK
	}
	return met
}

// WriteText writes the result as two tables.
func (r *Rtx) WriteText(w io.Writer) error {
	r.Machine.writeText(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PATTERN\tSEGMENTS\tMODULE\tACKS\tPER ACK\tMIN\tMAX\tVISITS\tTIME / LIST\tLIST'S VISITS / THESE")
	for i := range r.Rows {
		m := &r.Rows[i]
		acks := strconv.Itoa(m.Acks)
		if m.CutShort {
			acks += " first ones"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Pattern, m.Segments, m.Module, acks, Format(m.AckNS.Median, "ns"),
			Format(m.AckNS.Min, "ns"), Format(m.AckNS.Max, "ns"), four(m.VisitsPerAck), orDash(m.ListRatio), orDash(m.ListVisits))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return writeChecks(w, r.Checks)
}

// writeChecks writes what is required, as a table.
func writeChecks(w io.Writer, checks []RtxCheck) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REQUIRED\tVALUE\tLIMIT\tVERDICT")
	for _, c := range checks {
		limit, verdict := "≤ "+four(c.AtMost), "met"
		if c.AtLeast != 0 {
			limit = "≥ " + four(c.AtLeast)
		}
		if !c.OK {
			verdict = "missed"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Name, four(c.Value), limit, verdict)
	}
	return t.Flush()
}

func orDash(v float64) string {
	if v == 0 {
		return "-"
	}
	return four(v)
}

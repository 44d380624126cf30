// Package report holds the results of `fastpath bench` and `fastpath sim`: their JSON, their text, and the time series as CSV.
//
// Names in JSON are as in package control: snake case, with the unit at the end. Rates of data (_bps) are bits of payload per
// second; results of the simulator are integers, so that the same seed gives the same bytes on every machine.
package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Bench is the result of `fastpath bench NAME`.
type Bench struct {
	Name    string            `json:"name"`   // "bulk", "rr", "cps", "idle", …
	Params  map[string]string `json:"params"` // what was asked for: "size", "cong", "mtu", …
	Machine Machine           `json:"machine"`
	Runs    []Run             `json:"runs"`    // in the order in which they were made
	Metrics []Metric          `json:"metrics"` // one for each name in the runs' values, in order of names
}

// Run is one repetition.
type Run struct {
	// Values are what was measured; the name's end is the unit: "goodput_bps", "rate_per_s", "p50_ns", "endpoint_bytes".
	Values          map[string]float64 `json:"values"`
	DurationNS      int64              `json:"duration_ns"`
	CPUNS           int64              `json:"cpu_ns"`             // user and system time of the process
	CPUSecondsPerGB float64            `json:"cpu_seconds_per_gb"` // per 10⁹ payload bytes; 0 if no bulk data moved
	GapMaxNS        int64              `json:"gap_max_ns"`         // the machine's longest scheduling gap meanwhile; 0: not measured
}

// Metric sums up one value over all runs.
type Metric struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"` // "bit/s", "1/s", "ns", "bytes", ""
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	IQR    float64 `json:"iqr"` // Q3 − Q1
}

// Machine is where it was measured. A figure without it means little.
type Machine struct {
	CPU        string `json:"cpu"`   // model
	Cores      int    `json:"cores"` // that the process may use
	GOMAXPROCS int    `json:"gomaxprocs"`
	GoVersion  string `json:"go_version"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"`
	Gaps       Gaps   `json:"gaps"` // before the first run
	GapsAfter  Gaps   `json:"gaps_after"`
}

// Gaps are the times during which the machine did not run a thread that never sleeps.
type Gaps struct {
	MeasuredNS int64   `json:"measured_ns"`
	Over10us   int     `json:"over_10us"` // how many gaps were longer than 10 µs
	LostNS     int64   `json:"lost_ns"`   // their sum
	MaxNS      int64   `json:"max_ns"`
	LostShare  float64 `json:"lost_share"` // LostNS / MeasuredNS
}

var units = []struct{ suffix, unit string }{{"_bps", "bit/s"}, {"_per_s", "1/s"}, {"_ns", "ns"}, {"_bytes", "bytes"}, {"_seconds_per_gb", "s/GB"}}

// UnitOf returns the unit that a value's name ends in; "" for a count or ratio.
func UnitOf(name string) string {
	for _, u := range units {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}

// Summarize fills in Metrics from Runs.
func (b *Bench) Summarize() {
	values := map[string][]float64{}
	for _, r := range b.Runs {
		for name, v := range r.Values {
			values[name] = append(values[name], v)
		}
		if r.CPUSecondsPerGB != 0 {
			values["cpu_seconds_per_gb"] = append(values["cpu_seconds_per_gb"], r.CPUSecondsPerGB)
		}
	}
	b.Metrics = []Metric{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b.Metrics = append(b.Metrics, Summary(name, values[name]))
	}
}

// Summary sums up the values of one metric, at least one.
func Summary(name string, v []float64) Metric {
	v = slices.Sorted(slices.Values(v))
	m := Metric{Name: name, Unit: UnitOf(name), N: len(v), Median: Quantile(v, 0.5), Min: v[0], Max: v[len(v)-1],
		Q1: Quantile(v, 0.25), Q3: Quantile(v, 0.75)}
	m.IQR = m.Q3 - m.Q1
	return m
}

// Quantile returns the q-quantile (0 to 1) of sorted values, interpolated between the two nearest (type 7 of Hyndman and Fan).
// values must not be empty.
func Quantile(values []float64, q float64) float64 {
	at := q * float64(len(values)-1)
	i := int(at)
	if i+1 >= len(values) {
		return values[len(values)-1]
	}
	return values[i] + (at-float64(i))*(values[i+1]-values[i])
}

// WriteText writes the result as a table.
func (b *Bench) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s", b.Name)
	for _, p := range slices.Sorted(maps.Keys(b.Params)) {
		fmt.Fprintf(w, " %s=%s", p, b.Params[p])
	}
	fmt.Fprintln(w)
	b.Machine.writeText(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "METRIC\tMEDIAN\tMIN\tMAX\tIQR\tRUNS")
	for _, m := range b.Metrics {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", m.Name, Format(m.Median, m.Unit), Format(m.Min, m.Unit), Format(m.Max, m.Unit), Format(m.IQR, m.Unit), m.N)
	}
	return t.Flush()
}

// writeText writes what the machine is, and how often it did not run a thread that never sleeps.
func (m *Machine) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, GOMAXPROCS %d, %s %s/%s, %s\n", m.CPU, m.Cores, m.GOMAXPROCS, m.GoVersion, m.OS, m.Arch, m.Kernel)
	for _, g := range []struct {
		when string
		*Gaps
	}{{"before", &m.Gaps}, {"after", &m.GapsAfter}} {
		if g.MeasuredNS > 0 {
			fmt.Fprintf(w, "the machine's gaps over 10 µs %s: %d in %s, %.1f %% of the time, longest %s\n", g.when, g.Over10us,
				Format(float64(g.MeasuredNS), "ns"), 100*g.LostShare, Format(float64(g.MaxNS), "ns"))
		}
	}
}

// Format writes a value with a unit and four significant digits: "2.100 Gbit/s", "16.00 µs".
func Format(v float64, unit string) string {
	switch unit {
	case "bit/s", "1/s":
		prefix, scaled := scale(v, 1000, "kMGT")
		if unit == "1/s" {
			return four(scaled) + prefix + "/s"
		}
		return four(scaled) + " " + prefix + unit
	case "bytes":
		prefix, scaled := scale(v, 1000, "kMGT")
		return four(scaled) + " " + prefix + "B"
	case "ns":
		for _, u := range []struct {
			name string
			ns   float64
		}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
			if math.Abs(v) >= u.ns {
				return four(v/u.ns) + " " + u.name
			}
		}
		return four(v) + " ns"
	case "":
		return four(v)
	}
	return four(v) + " " + unit
}

func scale(v, step float64, prefixes string) (string, float64) {
	prefix := ""
	for i := 0; math.Abs(v) >= step && i < len(prefixes); i++ {
		v /= step
		prefix = prefixes[i : i+1]
	}
	return prefix, v
}

// four writes v with four significant digits, or all digits before the point if there are more.
func four(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 3 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(digits, 0), 6), v)
}

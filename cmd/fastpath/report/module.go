package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Module is the result of `fastpath bench module`: a bulk transfer with modules linked in and in processes of their own.
type Module struct {
	Params  map[string]string `json:"params"`
	Machine Machine           `json:"machine"`
	Cells   []ModuleCell      `json:"cells"`
}

// ModuleCell is one way to place modules, measured in pairs of runs.
type ModuleCell struct {
	Kinds    []string `json:"kinds"`    // whose modules are processes
	Together bool     `json:"together"` // they share one
	Flows    int      `json:"flows"`
	Wait     string   `json:"wait"` // "park": they share processors, and sleep when there is nothing to do; "spin": they have one of their own
	Bench
}

// Processes says which modules are in processes: "rtx+cong", or "(rtx+cong)" if they share one.
func (c *ModuleCell) Processes() string {
	s := strings.Join(c.Kinds, "+")
	if c.Together {
		return "(" + s + ")"
	}
	return s
}

// Names of values of a ModuleCell. CPU is of all processes; an event is one that was written to a module's process, its CPU that of this
// process; the answer's time is from the turn that wrote an event to the one that read its answer.
const (
	ModuleBuiltin    = "builtin_bps"
	ModuleProcess    = "process_bps"
	ModuleRatio      = "process_per_builtin_ratio"
	ModuleBuiltinCPU = "builtin_cpu_seconds_per_gb"
	ModuleProcessCPU = "process_cpu_seconds_per_gb"
	ModuleEvents     = "events_per_s"
	ModuleEvent      = "module_cpu_per_event_ns"
	ModuleP50        = "answer_p50_ns"
	ModuleP99        = "answer_p99_ns"
	ModuleP999       = "answer_p999_ns"
	ModuleWakes      = "wakes_per_s"
	ModuleAllocs     = "process_allocs_per_1000_packets"
)

// metric returns the metric of that name, which the cell has.
func (c *ModuleCell) metric(name string) *Metric {
	for i := range c.Metrics {
		if c.Metrics[i].Name == name {
			return &c.Metrics[i]
		}
	}
	return &Metric{Name: name, Unit: UnitOf(name)}
}

// WriteText writes the result as a table: medians, of the ratio also the quartiles.
func (r *Module) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "module")
	for _, p := range []string{"rtx", "pace", "cong", "size", "time", "pairs"} {
		if v, ok := r.Params[p]; ok {
			fmt.Fprintf(w, " %s=%s", p, v)
		}
	}
	fmt.Fprintln(w)
	r.Machine.writeText(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROCESSES\tFLOWS\tWAIT\tBUILT IN\tPROCESS\tRATIO\tQ1 … Q3\tCPU s/GB\tEVENTS\tCPU/EVENT\tANSWER p50\tp99\tp99.9\tWAKES\tALLOCS/1000")
	for i := range r.Cells {
		c := &r.Cells[i]
		v := func(name string) string { m := c.metric(name); return Format(m.Median, m.Unit) }
		ratio := c.metric(ModuleRatio)
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s … %s\t%s → %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Processes(), c.Flows, c.Wait, v(ModuleBuiltin), v(ModuleProcess),
			v(ModuleRatio), four(ratio.Q1), four(ratio.Q3), four(c.metric(ModuleBuiltinCPU).Median), four(c.metric(ModuleProcessCPU).Median), v(ModuleEvents),
			v(ModuleEvent), v(ModuleP50), v(ModuleP99), v(ModuleP999), v(ModuleWakes), v(ModuleAllocs))
	}
	return t.Flush()
}

package control

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteStat writes `ctl stat`: memory, ports, workers, and the counters that are not zero unless all is set.
func WriteStat(w io.Writer, r *StatReply, all bool) error {
	m, g := &r.Memory, &r.Go
	fmt.Fprintf(w, "uptime %v\n", time.Duration(r.UptimeNS).Round(time.Millisecond))
	fmt.Fprintf(w, "memory %s: %s used, %s peak, %s mapped; low %s, pressure %s, high %s; %d pressures, %d fulls, %d refusals\n", m.Level,
		bytesText(m.UsedBytes), bytesText(m.PeakBytes), bytesText(m.MappedBytes), bytesText(m.LowBytes), bytesText(m.PressureBytes),
		bytesText(m.HighBytes), m.Pressures, m.Fulls, m.Refusals)
	for _, use := range slices.Sorted(maps.Keys(m.ByUseBytes)) {
		fmt.Fprintf(w, "       %s %s\n", use, bytesText(m.ByUseBytes[use]))
	}
	fmt.Fprintf(w, "go     heap %s of %s, %d goroutines, %d collections, pause max %v, total %v\n", bytesText(g.HeapBytes),
		bytesText(g.HeapLimitBytes), g.Goroutines, g.GCs, time.Duration(g.GCPauseMaxNS), time.Duration(g.GCPauseTotalNS))
	fmt.Fprintf(w, "machine: threads waited %v for a processor, the hypervisor took %v\n", time.Duration(r.Machine.WaitedNS).Round(time.Microsecond),
		time.Duration(r.Machine.StolenNS).Round(time.Microsecond))
	if err := writePorts(w, r.Ports); err != nil {
		return err
	}
	if err := writeWorkers(w, r.Workers); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return writeCounters(w, r, all)
}

// WritePorts writes the ports of `ctl info`.
func WritePorts(w io.Writer, ports []PortInfo) error {
	rows := [][]string{{"PORT", "DRIVER", "MAC", "LINK", "DOWNS", "UPS", "ADDRESSES"}}
	for i := range ports {
		p := &ports[i]
		rows = append(rows, []string{p.Name, p.Driver, p.MAC, linkText(p.LinkUp), u(p.LinkDowns), u(p.LinkUps), dash(strings.Join(p.Addresses, ","))})
	}
	return table(w, rows)
}

func linkText(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func writePorts(w io.Writer, ports []PortStat) error {
	rows := [][]string{
		{"PORT", "DRIVER", "LINK", "RX", "RX-BYTES", "DROPPED", "ERRORS", "TX", "TX-BYTES", "ERRORS", "FULL", "FREE", "OFFLOADS"},
	}
	for i := range ports {
		p := &ports[i]
		rows = append(rows, []string{p.Name, p.Driver, linkText(p.LinkUp), u(p.RxFrames), u(p.RxBytes), u(p.RxDropped), u(p.RxErrors),
			u(p.TxFrames), u(p.TxBytes), u(p.TxErrors), u(p.TxFull), fmt.Sprintf("%d/%d", p.PoolFree, p.PoolBuffers),
			dash(strings.Join(p.Offloads, ","))})
	}
	return table(w, rows)
}

func writeWorkers(w io.Writer, workers []WorkerStat) error {
	rows := [][]string{{"WORKER", "PORT", "QUEUE", "CORE", "POLL", "CONNS", "TURNS", "IDLE", "PARKS", "BUSY", "PARKED",
		"TURN P50", "P99", "MAX", "GAP P99", "MAX"}}
	for i := range workers {
		k := &workers[i]
		core, queue := "any", "none"
		if k.Core >= 0 {
			core = strconv.Itoa(k.Core)
		}
		if k.Queue >= 0 {
			queue = strconv.Itoa(k.Queue)
		}
		rows = append(rows, []string{strconv.Itoa(k.Worker), dash(k.Port), queue, core, k.Poll, strconv.Itoa(k.Conns), u(k.Turns), u(k.Idle),
			u(k.Parks), dur(k.BusyNS), dur(k.ParkedNS), dur(k.Turn.P50NS), dur(k.Turn.P99NS), dur(k.Turn.MaxNS), dur(k.Gap.P99NS), dur(k.Gap.MaxNS)})
	}
	return table(w, rows)
}

func writeCounters(w io.Writer, r *StatReply, all bool) error {
	var rows [][]string
	for _, set := range []map[string]uint64{r.Gauges, r.Counters} {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if v := set[name]; v != 0 || all {
				rows = append(rows, []string{name, u(v)})
			}
		}
	}
	return table(w, rows)
}

func u(v uint64) string { return strconv.FormatUint(v, 10) }

// dur rounds a duration to three or four digits.
func dur(ns int64) string {
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit / 10).String()
		}
	}
	return d.String()
}

// bytesText writes a number of bytes with a binary unit.
func bytesText(n uint64) string {
	const units = "KMGT"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

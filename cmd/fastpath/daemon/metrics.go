package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// startMetrics serves Prometheus metrics on the kernel's network, if they are configured.
func (d *Daemon) startMetrics(ctx context.Context) error {
	if !d.conf.Metrics.Listen.IsValid() {
		return nil
	}
	l, err := apps.Kernel{}.Listen(ctx, d.conf.Metrics.Listen)
	if err != nil {
		return errors.Join(errors.New("metrics.listen"), err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{d})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn)}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("metrics", "err", err)
		}
	}()
	d.onStop(srv.Close)
	d.metrics = l.Addr()
	d.log.Info("metrics", "addr", l.Addr())
	return nil
}

// collector makes metrics of what `ctl stat` and `ctl modules` show.
type collector struct{ d *Daemon }

// Describe implements prometheus.Collector. It describes nothing: the set of metrics follows from the counters.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.d.Stat(context.Background())
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	for name, v := range s.Counters {
		counter(out, name+"_total", float64(v), nil)
	}
	for name, v := range s.Gauges {
		gauge(out, name, float64(v), nil)
	}
	for use, v := range s.Memory.ByUseBytes {
		gauge(out, "memory_bytes", float64(v), labels{{"use", use}})
	}
	gauge(out, "memory_mapped_bytes", float64(s.Memory.MappedBytes), nil)
	for limit, v := range map[string]uint64{"low": s.Memory.LowBytes, "pressure": s.Memory.PressureBytes, "high": s.Memory.HighBytes} {
		gauge(out, "memory_limit_bytes", float64(v), labels{{"limit", limit}})
	}
	counter(out, "memory_refusals_total", float64(s.Memory.Refusals), nil)
	gauge(out, "go_heap_bytes", float64(s.Go.HeapBytes), nil)
	gauge(out, "go_goroutines", float64(s.Go.Goroutines), nil)
	counter(out, "go_gc_pause_seconds_total", float64(s.Go.GCPauseTotalNS)/1e9, nil)
	for i := range s.Ports {
		portMetrics(out, &s.Ports[i])
	}
	for i := range s.Workers {
		workerMetrics(out, &s.Workers[i])
	}
	for k := range plugins.NumKinds {
		swaps, flows, rollbacks := c.d.names.swapCounts(k)
		l := labels{{"kind", k.String()}}
		counter(out, "module_swaps_total", float64(swaps), l)
		counter(out, "module_swapped_flows_total", float64(flows), l)
		counter(out, "module_rollbacks_total", float64(rollbacks), l)
		refused, upgrades, changes := c.d.names.changeCounts(k)
		counter(out, "module_refusals_total", float64(refused), l)
		counter(out, "module_upgrades_total", float64(upgrades), l)
		counter(out, "module_parameter_changes_total", float64(changes), l)
	}
	if m, err := c.d.Modules(context.Background()); err == nil {
		for i := range m.Modules {
			moduleMetrics(out, &m.Modules[i])
		}
	}
}

func portMetrics(out chan<- prometheus.Metric, p *control.PortStat) {
	l := labels{{"port", p.Name}}
	for _, m := range []struct {
		name  string
		value uint64
	}{
		{"rx_frames", p.RxFrames}, {"rx_bytes", p.RxBytes}, {"rx_dropped", p.RxDropped}, {"rx_errors", p.RxErrors},
		{"tx_frames", p.TxFrames}, {"tx_bytes", p.TxBytes}, {"tx_errors", p.TxErrors}, {"tx_full", p.TxFull},
	} {
		counter(out, "port_"+m.name+"_total", float64(m.value), l)
	}
	up := 0.0
	if p.LinkUp {
		up = 1
	}
	gauge(out, "port_link_up", up, l)
	gauge(out, "port_buffers", float64(p.PoolBuffers), l)
	gauge(out, "port_buffers_free", float64(p.PoolFree), l)
}

func workerMetrics(out chan<- prometheus.Metric, w *control.WorkerStat) {
	l := labels{{"worker", strconv.Itoa(w.Worker)}, {"port", w.Port}}
	counter(out, "worker_turns_total", float64(w.Turns), l)
	counter(out, "worker_idle_turns_total", float64(w.Idle), l)
	counter(out, "worker_parks_total", float64(w.Parks), l)
	counter(out, "worker_parked_seconds_total", float64(w.ParkedNS)/1e9, l)
	gauge(out, "worker_connections", float64(w.Conns), l)
	histogramMetric(out, "worker_turn_seconds", &w.Turn, l)
	histogramMetric(out, "worker_gap_seconds", &w.Gap, l)
}

func moduleMetrics(out chan<- prometheus.Metric, m *control.Module) {
	role := "module"
	if m.Fallback == "" { // only a fallback has none
		role = "fallback"
	}
	l := labels{{"kind", m.Kind}, {"module", m.Name}, {"role", role}}
	gauge(out, "module_flows", float64(m.Flows), l)
	counter(out, "module_restarts_total", float64(m.Restarts), l)
	counter(out, "module_late_total", float64(m.LateCount), l)
	counter(out, "module_refused_commands_total", float64(m.BadCommands), l)
	given := 0.0
	if m.State == control.ModuleGivenUp {
		given = 1
	}
	gauge(out, "module_given_up", given, l)
}

// labels are names and values.
type labels [][2]string

func (l labels) names() (s []string) {
	for _, x := range l {
		s = append(s, x[0])
	}
	return s
}

func (l labels) values() (s []string) {
	for _, x := range l {
		s = append(s, x[1])
	}
	return s
}

func desc(name string, l labels) *prometheus.Desc {
	return prometheus.NewDesc("fastpath_"+name, "See fastpath ctl stat.", l.names(), nil)
}

func counter(out chan<- prometheus.Metric, name string, v float64, l labels) {
	out <- prometheus.MustNewConstMetric(desc(name, l), prometheus.CounterValue, v, l.values()...)
}

func gauge(out chan<- prometheus.Metric, name string, v float64, l labels) {
	out <- prometheus.MustNewConstMetric(desc(name, l), prometheus.GaugeValue, v, l.values()...)
}

func histogramMetric(out chan<- prometheus.Metric, name string, h *control.Histogram, l labels) {
	buckets, sum := map[float64]uint64{}, uint64(0)
	for _, b := range h.Buckets {
		sum += b.Count
		buckets[float64(b.LeNS)/1e9] = sum
	}
	out <- prometheus.MustNewConstHistogram(desc(name, l), h.Count, float64(h.SumNS)/1e9, buckets, l.values()...)
}

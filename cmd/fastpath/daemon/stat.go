package daemon

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Stat implements control.Handler.
func (d *Daemon) Stat(context.Context) (*control.StatReply, error) {
	now := time.Now()
	r := &control.StatReply{TimeUnixNS: now.UnixNano(), UptimeNS: int64(now.Sub(d.started)), Memory: d.memoryStat(), Go: goStat(), Machine: d.machineStat(),
		Ports: []control.PortStat{}, Workers: []control.WorkerStat{}, Counters: map[string]uint64{}, Gauges: map[string]uint64{}}
	for _, p := range d.ports {
		ws := p.stack.Stats()
		ps := portStat(p)
		for i := range ws {
			w := &ws[i]
			if w.Queue >= 0 {
				ps.PoolBuffers += w.PoolLen
				ps.PoolFree += w.PoolFree
			}
			r.Workers = append(r.Workers, workerStat(p, w))
			count(r, w)
		}
		r.Ports = append(r.Ports, ps)
		countException(r, p)
	}
	r.Counters["proxy_backend_failures"] = d.counts.BackendFailures.Load()
	return r, nil
}

func (d *Daemon) memoryStat() control.MemoryStat {
	s := d.budget.Stats()
	return control.MemoryStat{
		Level: s.Level, UsedBytes: uint64(s.Used), PeakBytes: uint64(s.Peak), MappedBytes: uint64(s.Mapped),
		LowBytes: uint64(s.Low), PressureBytes: uint64(s.Limits.Pressure), HighBytes: uint64(s.High),
		Pressures: s.Pressures, Fulls: s.Fulls, Refusals: s.Refusals,
		ByUseBytes: map[string]uint64{"packet_buffers": uint64(d.buffers), "streams": uint64(max(s.Used-d.buffers, 0))},
	}
}

// goStat describes the Go runtime. It does not stop the world.
func goStat() control.GoStat {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	g := control.GoStat{
		HeapBytes: s[0].Value.Uint64(), Goroutines: runtime.NumGoroutine(), GCs: uint64(gc.NumGC), GCPauseTotalNS: int64(gc.PauseTotal),
		HeapLimitBytes: uint64(debug.SetMemoryLimit(-1)), // a negative limit changes nothing
	}
	h := s[1].Value.Float64Histogram()
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] != 0 { // the bound above the longest pause, or the one below if there is none above
			bound := h.Buckets[i+1]
			if math.IsInf(bound, 1) {
				bound = h.Buckets[i]
			}
			g.GCPauseMaxNS = int64(bound * 1e9)
			break
		}
	}
	return g
}

var capNames = []struct {
	cap  pmd.Caps
	name string
}{{pmd.RxCsum, "rx_csum"}, {pmd.TxCsum, "tx_csum"}, {pmd.TSO, "tso"}, {pmd.RSSHash, "rss"}}

func portStat(p *port) control.PortStat {
	i, s := p.trace.Info(), p.trace.Stats()
	r := control.PortStat{
		Name: p.conf.Name, Driver: i.Driver, MAC: i.MAC.String(), Addresses: p.addresses(), LinkUp: p.trace.LinkUp(), MTUBytes: i.MTU, Offloads: []string{},
		RxFrames: s.RxFrames, RxBytes: s.RxBytes, RxDropped: s.RxDropped, RxErrors: s.RxErrors,
		TxFrames: s.TxFrames, TxBytes: s.TxBytes, TxErrors: s.TxErrors, TxFull: s.TxFull,
	}
	for _, c := range capNames {
		if i.Caps&c.cap != 0 {
			r.Offloads = append(r.Offloads, c.name)
		}
	}
	return r
}

func workerStat(p *port, w *stack.WorkerStats) control.WorkerStat {
	r := control.WorkerStat{
		Worker: p.first + w.Index, Port: p.conf.Name, Queue: w.Queue, Core: w.Core, Poll: "adaptive", Conns: int(w.TCP.Conns),
		Turns: w.Busy + w.Idle, Idle: w.Idle, Parks: w.Parks, ParkedNS: int64(w.Parked), Turn: histogram(&w.Turn), Gap: histogram(&w.Gap),
	}
	if w.Poll == stack.Spin {
		r.Poll = "spin"
	}
	if r.Turn.Count > 0 { // turns are sampled: their mean stands for all
		r.BusyNS = int64(float64(r.Turn.SumNS) / float64(r.Turn.Count) * float64(w.Busy))
	}
	return r
}

// histogram turns the stack's buckets, which double, into those of the control socket.
func histogram(h *stack.Histogram) control.Histogram {
	r := control.Histogram{SumNS: int64(h.Sum), MaxNS: int64(h.Max), Buckets: []control.Bucket{}}
	for i, n := range h.Buckets {
		if n == 0 {
			continue
		}
		le := int64(2)<<i - 1
		if i == len(h.Buckets)-1 { // no bound of its own
			le = max(le, r.MaxNS)
		}
		r.Buckets = append(r.Buckets, control.Bucket{LeNS: le, Count: n})
	}
	r.Fill()
	return r
}

// gauges are the fields of tcp.Stats that can fall.
var gauges = map[string]bool{"conns": true, "time_waits": true}

// count adds a worker's counters to the sums over all workers.
func count(r *control.StatReply, w *stack.WorkerStats) {
	for _, f := range (*tcp.Stats).Fields(&w.TCP) {
		if gauges[f.Name] {
			r.Gauges["tcp_"+f.Name] += *f.Value
		} else {
			r.Counters["tcp_"+f.Name] += *f.Value
		}
	}
	u := &w.UDP
	for _, c := range []struct {
		name  string
		value uint64
	}{
		{"udp_in_datagrams", u.InDatagrams}, {"udp_no_ports", u.NoPorts}, {"udp_in_errors", u.InErrors}, {"udp_rcvbuf_errors", u.RcvbufErrors},
		{"udp_mem_errors", u.MemErrors}, {"udp_out_datagrams", u.OutDatagrams}, {"udp_sndbuf_errors", u.SndbufErrors}, {"udp_icmp_errors", u.IcmpErrors},
	} {
		r.Counters[c.name] += c.value
	}
	l := &w.L3
	for d := wire.DropNone + 1; d < wire.NumDrops; d++ {
		r.Counters["drop_"+d.String()] += l.Drops[d]
	}
	n := &w.Neigh
	for _, c := range []struct {
		name  string
		value uint64
	}{
		{"rx_frames", l.RxFrames}, {"rx_bytes", l.RxBytes}, {"no_route", l.NoRoute}, {"icmp_echo_replies", l.EchoReplies},
		{"icmp_errors_in", l.IcmpErrorsIn}, {"icmp_errors_out", l.IcmpErrorsOut}, {"handed_over", l.HandedOver}, {"taken_over", l.Taken},
		{"no_buffers", l.NoBuffers}, {"tx_fifo_full", l.TxFull}, {"link_downs", l.LinkDowns}, {"link_ups", l.LinkUps}, {"notifier_full", w.NotifierFull},
		{"arp_requests", n.Requests}, {"arp_replies", n.Replies}, {"arp_resolved", n.Resolved}, {"arp_failed", n.Failed},
		{"arp_evicted", n.Evicted}, {"arp_full", n.Full}, {"arp_dropped", n.Dropped}, {"arp_changed", n.Changed}, {"arp_locked", n.Locked},
		{"arp_conflicts", n.Conflicts}, {"arp_ignored", n.Ignored},
		{"ipv6_duplicates", w.Autoconf.Duplicates}, {"ipv6_looped_back", w.Autoconf.LoopedBack},
		{"ipv6_router_adverts", w.Autoconf.Adverts}, {"ipv6_router_adverts_ignored", w.Autoconf.Ignored},
	} {
		r.Counters[c.name] += c.value
	}
	f := &w.Frag
	for d := frag.None + 1; d < frag.NumDrops; d++ {
		r.Counters["frag_drop_"+d.String()] += f.Drops[d]
	}
	r.Counters["frag_fragments"] += f.Fragments
	r.Counters["frag_whole"] += f.Whole
	r.Counters["frag_timed_out"] += f.TimedOut
	r.Counters["frag_evicted"] += f.Evicted
	r.Gauges["frag_datagrams"] += uint64(f.Datagrams)
	r.Gauges["frag_bytes"] += uint64(f.Bytes)
	r.Gauges["arp_entries"] += uint64(n.Entries)
	r.Gauges["frames_waiting"] += uint64(w.FramesWaiting)
}

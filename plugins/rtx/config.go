package rtx

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/param"
)

// config is what the parameters of a module say.
type config struct {
	rtoMin, rtoMax, rtoInit time.Duration
	minRTTWindow            uint32 // in ticks of minFilter
	dupThresh               uint32
	reoWndDiv               int64
	reoSteps, reoPersist    uint8
	maxAckDelay, slack      time.Duration
	tsTick                  plugins.Time
	tlp, frto               bool
}

var params = []plugins.Param{
	{Name: "rto_min", Type: "duration", Default: "200ms", Doc: "least variance term of the RTO (RFC 6298; as Linux: RTO = SRTT + at least this)"},
	{Name: "rto_max", Type: "duration", Default: "120s", Doc: "largest RTO, back-off included"},
	{Name: "rto_init", Type: "duration", Default: "1s", Doc: "RTO without a sample; three times as much if the handshake's was ambiguous (RFC 6298, 5.7)"},
	{Name: "min_rtt_window", Type: "duration", Default: "300s", Doc: "window of the minimum RTT"},
	{Name: "dupthresh", Type: "uint", Unit: "segments", Default: "3", Doc: "duplicates, or SACKed segments while no reordering was seen, that mean loss"},
	{Name: "reo_wnd_div", Type: "uint", Default: "4", Doc: "one step of RACK's reordering window is min RTT divided by this (RFC 8985, 6.2 step 4)"},
	{Name: "reo_steps_max", Type: "uint", Default: "255", Doc: "most steps of the reordering window; D-SACKs add steps"},
	{Name: "reo_persist", Type: "uint", Unit: "recoveries", Default: "16", Doc: "recoveries without a D-SACK after which the window is one step again"},
	{Name: "tlp", Type: "bool", Default: "true", Doc: "send tail-loss probes (RFC 8985, 7)"},
	{Name: "tlp_max_ack_delay", Type: "duration", Default: "200ms", Doc: "added to the probe time-out if one segment is outstanding"},
	{Name: "timer_slack", Type: "duration", Default: "2ms", Doc: "added to other probe time-outs and to the reordering timer"},
	{Name: "frto", Type: "bool", Default: "true", Doc: "detect spurious timeouts by F-RTO (RFC 5682)"},
	{Name: "ts_tick", Type: "duration", Default: "1ms", Doc: "tick of the timestamp clock that echoed times are rounded down to"},
}

// BTreeInfo describes the module btree.
func BTreeInfo() plugins.Info {
	return plugins.Info{Kind: plugins.Rtx, Name: "btree", Version: "1.0.0", Needs: []string{plugins.FeatureReplay}, Params: append([]plugins.Param{
		{Name: "threshold", Type: "uint", Unit: "segments", Default: "32", Doc: "a queue with more segments than this is searched by its index"},
		{Name: "run", Type: "uint", Unit: "segments", Default: "64", Doc: "neighbours that the index keeps together, at most"},
	}, params...)}
}

// ListInfo describes the module list.
func ListInfo() plugins.Info {
	return plugins.Info{Kind: plugins.Rtx, Name: "list", Version: "1.0.0", Needs: []string{plugins.FeatureReplay}, Params: params}
}

// readConfig reads the parameters that both modules have.
func readConfig(r *param.Reader) config {
	return config{
		rtoMin:       r.Duration("rto_min", time.Millisecond, time.Minute),
		rtoMax:       r.Duration("rto_max", time.Second, time.Hour),
		rtoInit:      r.Duration("rto_init", time.Millisecond, time.Minute),
		minRTTWindow: uint32(r.Duration("min_rtt_window", time.Second, 24*time.Hour) >> minFilterShift),
		dupThresh:    uint32(r.Uint("dupthresh", 1, maxReordering)),
		reoWndDiv:    int64(r.Uint("reo_wnd_div", 1, 1024)),
		reoSteps:     uint8(r.Uint("reo_steps_max", 1, 255)),
		reoPersist:   uint8(r.Uint("reo_persist", 1, 255)),
		maxAckDelay:  r.Duration("tlp_max_ack_delay", 0, time.Second),
		slack:        r.Duration("timer_slack", 0, time.Second),
		tsTick:       plugins.Time(r.Duration("ts_tick", time.Nanosecond, time.Second)),
		tlp:          r.Bool("tlp"),
		frto:         r.Bool("frto"),
	}
}

// NewBTree makes the module btree: queues with a tree index above a threshold, so that finding a SACK edge costs O(log n).
func NewBTree(p plugins.Params, _ uint64) (Module, error) {
	r := param.Read(BTreeInfo(), p)
	threshold := r.Uint("threshold", 0, 1<<20)
	run := r.Uint("run", 1, 1<<12)
	return newModule(r, indexPool{threshold: int(threshold), runLen: int(run)}, 64)
}

// NewList makes the module list: the linear queue of individually allocated nodes that is searched from its head, as a baseline. Its
// answers are the same as btree's.
func NewList(p plugins.Params, _ uint64) (Module, error) {
	return newModule(param.Read(ListInfo(), p), indexPool{threshold: maxSpan, runLen: defaultRunLen}, 1)
}

func newModule(r *param.Reader, ip indexPool, slab int) (Module, error) {
	m := &module{cfg: readConfig(r)}
	m.pool.idx, m.pool.slab = ip, slab
	if err := r.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

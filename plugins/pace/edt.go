package pace

import (
	"math/bits"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/param"
)

// EDTInfo describes the module edt.
func EDTInfo() plugins.Info {
	return plugins.Info{Kind: plugins.Pace, Name: "edt", Version: "1.0.0", Params: append([]plugins.Param{
		{Name: "window_pacing", Type: "bool", Default: "true",
			Doc: "pace flows whose congestion control gives no rate, at a multiple of window/SRTT"},
		{Name: "ss_ratio", Type: "uint", Unit: "percent", Default: "200", Doc: "that multiple while cwnd < ssthresh/2"},
		{Name: "ca_ratio", Type: "uint", Unit: "percent", Default: "120", Doc: "that multiple from ssthresh/2 on"},
	}, lineParams...)}
}

// NoneInfo describes the module none.
func NoneInfo() plugins.Info {
	return plugins.Info{Kind: plugins.Pace, Name: "none", Version: "1.0.0", Params: lineParams}
}

var lineParams = []plugins.Param{
	{Name: "credit", Type: "uint", Unit: "percent", Default: "50", Doc: "share of a piece's duration that lateness may forgive"},
	{Name: "free_segs", Type: "uint", Unit: "segments", Default: "10", Doc: "the first data segments of a connection are not paced"},
	{Name: "horizon", Type: "duration", Default: "10s", Doc: "a departure further ahead is refused to the sender"},
}

// rater computes a flow's pacing rate in payload bytes per second from what the engine tells.
type rater func(ev *Event) uint64

// NewEDT makes the module edt: it paces at congestion control's rate or, where there is none, by window and SRTT as Linux does, and
// never above the connection's maximum. Earliest-Departure-Time arithmetic on the answered line is Clock's.
func NewEDT(p plugins.Params, _ uint64) (Module, error) {
	r := param.Read(EDTInfo(), p)
	m := newModule(r, nil)
	on := r.Bool("window_pacing")
	ss, ca := r.Uint("ss_ratio", 100, 1000), r.Uint("ca_ratio", 100, 1000)
	if err := r.Err(); err != nil {
		return nil, err
	}
	m.rate = func(ev *Event) uint64 {
		rate := ev.Rate
		if rate == 0 {
			rate = plugins.Unlimited
			if on {
				rate = windowRate(ev, ss, ca)
			}
		}
		return min(rate, maxRate(ev))
	}
	return m, nil
}

// NewNone makes the module none: no pacing but for the connection's own maximum.
func NewNone(p plugins.Params, _ uint64) (Module, error) {
	r := param.Read(NoneInfo(), p)
	m := newModule(r, maxRate)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// maxRate is the connection's own maximum.
func maxRate(ev *Event) uint64 {
	if ev.MaxRate == 0 {
		return plugins.Unlimited
	}
	return ev.MaxRate
}

// windowRate is ratio·cwnd/SRTT (Linux tcp_update_pacing_rate). Without an SRTT there is no rate to pace at.
func windowRate(ev *Event, ss, ca uint64) uint64 {
	if ev.SRTT <= 0 {
		return plugins.Unlimited
	}
	ratio := ca
	if ev.Cwnd < ev.Ssthresh/2 {
		ratio = ss
	}
	hi, lo := bits.Mul64(uint64(ev.Cwnd)*uint64(time.Second), ratio)
	den := 100 * uint64(min(ev.SRTT, 1<<56))
	if hi >= den {
		return plugins.Unlimited
	}
	q, _ := bits.Div64(hi, lo, den)
	return max(q, 1)
}

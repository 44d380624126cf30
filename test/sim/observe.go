package sim

import (
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// observed is what a retransmit-queue module said of one flow.
type observed struct {
	recoveries, undos, timeouts, probes int64
	rtts                                []int64 // ns
	last                                time.Duration
	told, entered, undone               bool  // a word of it, a reduction, or its undo, in this turn
	cwnd, before                        int64 // after the last turn, and before the last reduction
}

// observer is an rtx module that notes what the one inside says of the flows that are watched.
type observer struct {
	rtx.Module
	host *host
	note func(now plugins.Time, kind, message string)
}

// Poll implements plugins.Module.
func (o *observer) Poll(now plugins.Time, in []rtx.Event, out []rtx.Command) int {
	n := o.Module.Poll(now, in, out)
	for i := range out[:n] {
		m := &out[i]
		f := o.host.flow(m.Flow)
		if f == nil {
			continue
		}
		switch s := &f.seen; m.Kind {
		case rtx.CmdProbe:
			s.probes++
		case rtx.CmdReneged:
			o.note(now, "renege", "flow "+f.cfg.Name+": the peer has dropped what it had SACKed")
		case rtx.CmdStatus:
			s.status(m)
		}
	}
	return n
}

func (s *observed) status(m *rtx.Command) {
	s.told = true
	s.entered = s.entered || m.Flags&rtx.FlagEnter != 0
	s.undone = s.undone || m.Flags&rtx.FlagUndo != 0
	if m.Flags&rtx.FlagEnter != 0 && m.CA == rtx.CARecovery {
		s.recoveries++
	}
	if m.Flags&rtx.FlagUndo != 0 {
		s.undos++
	}
	if m.Flags&rtx.FlagTimeout != 0 {
		s.timeouts++
	}
	if m.Flags&rtx.FlagRTTValid != 0 {
		s.last = m.RTT
		s.rtts = append(s.rtts, int64(m.RTT))
	}
}

// distribution sums up durations in ns; it sorts them.
func distribution(ns []int64) (r report.RTT) {
	if len(ns) == 0 {
		return r
	}
	slices.Sort(ns)
	at := func(percent int) int64 { return ns[(len(ns)-1)*percent/100] }
	r = report.RTT{Samples: int64(len(ns)), MinNS: ns[0], P50NS: at(50), P95NS: at(95), P99NS: at(99), MaxNS: ns[len(ns)-1]}
	sum := int64(0)
	for _, v := range ns {
		sum += v
	}
	r.MeanNS = sum / int64(len(ns))
	return r
}

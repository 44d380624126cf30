package sim

import (
	"math"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

var linkNames = [2]string{"a→b", "b→a"}

// bps turns bytes per second into bits per second; unlimited is 0.
func bps(rate uint64) int64 {
	if rate > math.MaxInt64/8 {
		return 0
	}
	return int64(rate * 8)
}

func ssthresh(v uint32) int64 {
	if v == cong.InfiniteSsthresh {
		return 0
	}
	return int64(v)
}

// sample adds a point of the time series for each flow that runs, and one for the link.
func (r *runner) sample(now plugins.Time) {
	at := int64(now.Sub(Start))
	l := LinkPoint{TimeNS: at}
	for i := range 2 {
		p := r.port(i)
		_, bytes := p.Queued(now)
		c := p.Counters()
		l.QueueBytes[i], l.Dropped[i] = int64(bytes), int64(c.Lost+c.Policed+c.QueueDrops)
	}
	r.res.Links = append(r.res.Links, l)
	for _, f := range r.flows {
		if f.client == nil || !f.client.Up() || f.ended != 0 || f.over() {
			continue
		}
		f.snapshot()
		i, direction := &f.info, 0
		if r.o.Sample != nil {
			r.o.Sample(f.index, i)
		}
		if f.from == r.hosts[1] {
			direction = 1
		}
		r.res.Points = append(r.res.Points, report.Point{
			TimeNS: at, Flow: f.index, State: i.CAState, CwndBytes: int64(i.Cwnd), SsthreshBytes: ssthresh(i.Ssthresh), InFlightBytes: int64(i.InFlight),
			SRTTNS: int64(i.RTT), MinRTTNS: int64(i.MinRTT), RTTNS: int64(f.seen.last), DeliveryBPS: bps(i.DeliveryRate), PacingBPS: bps(i.PacingRate),
			DeliveredBytes: int64(f.payload()), Retransmits: int64(i.Counts.Retrans), Lost: int64(i.Counts.LostSegs), QueueBytes: l.QueueBytes[direction],
		})
	}
	if r.o.Progress != nil {
		r.o.Progress(now.Sub(Start), r.s.Duration.D())
	}
}

// capacity takes account of what a direction could have carried until now.
func (r *runner) capacity(direction int, now plugins.Time) {
	c := &r.cap[direction]
	if c.trace != nil {
		c.bits += c.trace.Bits(c.at, now)
	} else {
		c.bits += cong.MulDiv(c.rate, uint64(now.Sub(c.at)), uint64(time.Second))
	}
	c.at = now
}

func (r *runner) report() {
	now := r.w.Clock.Now()
	rep := &r.res.Report
	rep.Scenario, rep.Seed, rep.DurationNS, rep.Complete = r.s.Name, r.s.Seed, int64(now.Sub(Start)), true
	if rep.Events == nil {
		rep.Events = []report.Event{}
	}
	r.res.Rounds = r.w.Rounds
	for _, f := range r.flows {
		rep.Flows = append(rep.Flows, r.flowReport(f, now))
		if f.err != nil {
			r.note(now, "error", "flow "+f.cfg.Name+": "+f.err.Error())
		}
		if f.err != nil || f.bounded(r.end) && f.ended == 0 {
			rep.Complete = false
		}
	}
	for i := range 2 {
		rep.Links = append(rep.Links, r.linkReport(i, now))
	}
}

func (r *runner) flowReport(f *flow, now plugins.Time) report.Flow {
	i := &f.info
	end := now
	out := report.Flow{
		Flow: f.index, Name: f.cfg.Name, Rtx: i.Rtx, Pace: i.Pace, Cong: i.Cong, StartNS: int64(f.start.Sub(Start)), PayloadBytes: int64(f.payload()),
		SentBytes: int64(i.BytesSent), Segments: int64(i.Counts.DataSegsOut), Retransmits: int64(i.Counts.Retrans), Lost: int64(i.Counts.LostSegs),
		Dropped: f.drops, Recoveries: f.seen.recoveries, Undos: f.seen.undos, Timeouts: f.seen.timeouts, Probes: f.seen.probes,
		RTT: distribution(f.seen.rtts), Transactions: distribution(f.times), CwndBytes: int64(i.Cwnd), CwndMaxBytes: f.maxC,
		SsthreshBytes: ssthresh(i.Ssthresh), Verified: f.err == nil,
	}
	if f.ended != 0 {
		end, out.EndNS = f.ended, int64(f.ended.Sub(Start))
	}
	if end > f.start {
		out.GoodputBPS = int64(cong.MulDiv(f.payload()*8, uint64(time.Second), uint64(end.Sub(f.start))))
	}
	return out
}

func (r *runner) linkReport(i int, now plugins.Time) report.Link {
	p, peer := r.port(i), r.port(1-i)
	c, tx, rx := p.Counters(), p.Stats(), peer.Stats()
	out := report.Link{
		Name: linkNames[i], RateBPS: int64(r.cap[i].rate), Frames: int64(tx.TxFrames), FrameBytes: int64(tx.TxBytes), Delivered: int64(rx.RxFrames),
		LostRandom: int64(c.Lost), LostQueue: int64(c.QueueDrops), LostPolicer: int64(c.Policed), Duplicated: int64(c.Duplicated), Reordered: int64(c.Reordered),
		Corrupted: int64(c.Corrupted), Marked: int64(c.Marked), QueueMaxBytes: int64(c.QueuedBytes),
	}
	path := [2]Path{r.s.Link.AtoB, r.s.Link.BtoA}
	for e := range r.s.Events {
		if ev := &r.s.Events[e]; ev.isPath() && Start.Add(ev.At.D()) <= now {
			path = [2]Path{ev.aToB, ev.bToA}
		}
	}
	out.DelayNS = int64(path[i].Delay)
	sum := int64(0)
	for _, l := range r.res.Links {
		sum += l.QueueBytes[i]
	}
	out.QueueMeanBytes = sum / int64(max(len(r.res.Links), 1))
	r.capacity(i, now)
	if ran := now.Sub(Start); r.cap[i].trace != nil && ran > 0 {
		out.RateBPS = int64(cong.MulDiv(r.cap[i].bits, uint64(time.Second), uint64(ran)))
	}
	if bits := r.cap[i].bits; bits > 0 {
		out.UtilPerMille = int64(cong.MulDiv(rx.RxBytes*8, 1000, bits))
	}
	return out
}

package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Sim is the result of `fastpath sim FILE`: one scenario with one seed.
type Sim struct {
	Scenario   string  `json:"scenario"`
	Seed       uint64  `json:"seed"`
	DurationNS int64   `json:"duration_ns"` // virtual time
	Complete   bool    `json:"complete"`    // every flow moved all its bytes, intact, before the scenario's end
	Flows      []Flow  `json:"flows"`
	Links      []Link  `json:"links"`
	Events     []Event `json:"events"` // what the scenario, or the engine, did at a point in time
}

// Flow is one connection of a simulation, seen from its sender.
type Flow struct {
	Flow          int    `json:"flow"` // from 0, in the order of the scenario
	Name          string `json:"name"`
	Rtx           string `json:"rtx"` // modules at the end
	Pace          string `json:"pace"`
	Cong          string `json:"cong"`
	StartNS       int64  `json:"start_ns"`
	EndNS         int64  `json:"end_ns"`        // when the last byte was acknowledged; 0: it was not
	PayloadBytes  int64  `json:"payload_bytes"` // delivered to the receiver's application
	GoodputBPS    int64  `json:"goodput_bps"`   // payload bits / (EndNS − StartNS), or until the scenario's end
	SentBytes     int64  `json:"sent_bytes"`    // payload, retransmissions included
	Segments      int64  `json:"segments"`      // data segments sent
	Retransmits   int64  `json:"retransmits"`   // of them, sent again
	Lost          int64  `json:"lost"`          // segments marked lost
	Dropped       int64  `json:"dropped"`       // of its segments that the links really dropped, both ways
	Recoveries    int64  `json:"recoveries"`    // times that recovery was entered
	Undos         int64  `json:"undos"`         // times that a reduction was taken back
	Timeouts      int64  `json:"timeouts"`      // RTOs
	Probes        int64  `json:"probes"`        // tail-loss probes
	RTT           RTT    `json:"rtt"`
	Transactions  RTT    `json:"transactions"`   // of a request/response flow: the times from request to response
	CwndBytes     int64  `json:"cwnd_bytes"`     // at the end
	CwndMaxBytes  int64  `json:"cwnd_max_bytes"` // the largest
	SsthreshBytes int64  `json:"ssthresh_bytes"` // at the end; 0: none
	Verified      bool   `json:"verified"`       // the receiver's bytes are the sender's
}

// RTT are the round-trip times that a sender measured, or the times that its application saw.
type RTT struct {
	Samples int64 `json:"samples"`
	MinNS   int64 `json:"min_ns"`
	P50NS   int64 `json:"p50_ns"`
	P95NS   int64 `json:"p95_ns"`
	P99NS   int64 `json:"p99_ns"`
	MaxNS   int64 `json:"max_ns"`
	MeanNS  int64 `json:"mean_ns"` // rounded down
}

// Link is one direction of an emulated link.
type Link struct {
	Name           string `json:"name"`
	RateBPS        int64  `json:"rate_bps"` // of frames, at the end, or with a trace the mean; 0: unlimited
	DelayNS        int64  `json:"delay_ns"` // at the end
	Frames         int64  `json:"frames"`   // offered
	FrameBytes     int64  `json:"frame_bytes"`
	Delivered      int64  `json:"delivered"`       // frames
	LostRandom     int64  `json:"lost_random"`     // frames that the loss model took
	LostQueue      int64  `json:"lost_queue"`      // frames that found the queue full
	LostPolicer    int64  `json:"lost_policer"`    // frames beyond the policer's rate and burst
	Duplicated     int64  `json:"duplicated"`      // frames
	Reordered      int64  `json:"reordered"`       // frames
	Corrupted      int64  `json:"corrupted"`       // frames
	Marked         int64  `json:"marked"`          // frames with a congestion mark
	QueueMaxBytes  int64  `json:"queue_max_bytes"` // the fullest
	QueueMeanBytes int64  `json:"queue_mean_bytes"`
	UtilPerMille   int64  `json:"utilisation_per_mille"` // of the rate, over the flows' time; 0 without a rate
}

// Event marks a point in time of a simulation, or of a demo, in its plots.
type Event struct {
	TimeNS  int64  `json:"time_ns"`
	Kind    string `json:"kind"` // "swap", "crash", "resume", "route", …
	Message string `json:"message"`
}

// Jain returns Jain's fairness index of the flows' goodput in parts per thousand, rounded down: 1000 if all are equal.
func (s *Sim) Jain() int64 {
	// In kbit/s, so that the squares of a thousand flows at 1 Tbit/s fit.
	var sum, squares float64
	for i := range s.Flows {
		x := float64(s.Flows[i].GoodputBPS / 1000)
		sum += x
		squares += float64(x * x) // the conversion forbids fusing, which would differ between processors
	}
	if squares == 0 {
		return 0
	}
	return int64(1000 * sum * sum / (float64(len(s.Flows)) * squares))
}

// WriteText writes the result as tables.
func (s *Sim) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s seed=%d duration=%s complete=%v fairness=%d/1000\n", s.Scenario, s.Seed, ns(s.DurationNS), s.Complete, s.Jain())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FLOW\tNAME\tMODULES\tBYTES\tGOODPUT\tRETRANS\tLOST\tDROPPED\tRTO\tTLP\tUNDO\tRTT MIN\tP50\tP99\tCWND")
	for i := range s.Flows {
		f := &s.Flows[i]
		fmt.Fprintf(t, "%d\t%s\t%s/%s/%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\n", f.Flow, f.Name, f.Rtx, f.Pace, f.Cong, f.PayloadBytes,
			Format(float64(f.GoodputBPS), "bit/s"), f.Retransmits, f.Lost, f.Dropped, f.Timeouts, f.Probes, f.Undos, ns(f.RTT.MinNS), ns(f.RTT.P50NS),
			ns(f.RTT.P99NS), f.CwndBytes)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := s.writeTransactions(w); err != nil {
		return err
	}
	fmt.Fprintln(t, "LINK\tRATE\tDELAY\tFRAMES\tDELIVERED\tLOST\tFULL\tDUP\tREORDERED\tQUEUE MAX\tUSED")
	for i := range s.Links {
		l := &s.Links[i]
		rate := "unlimited"
		if l.RateBPS > 0 {
			rate = Format(float64(l.RateBPS), "bit/s")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d/1000\n", l.Name, rate, ns(l.DelayNS), l.Frames, l.Delivered, l.LostRandom,
			l.LostQueue, l.Duplicated, l.Reordered, l.QueueMaxBytes, l.UtilPerMille)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range s.Events {
		fmt.Fprintf(w, "%s %s: %s\n", ns(s.Events[i].TimeNS), s.Events[i].Kind, s.Events[i].Message)
	}
	return nil
}

// writeTransactions writes the times of request/response flows, if there are any.
func (s *Sim) writeTransactions(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := "FLOW\tTRANSACTIONS\tMIN\tP50\tP95\tP99\tMAX\n"
	for i := range s.Flows {
		x := &s.Flows[i].Transactions
		if x.Samples == 0 {
			continue
		}
		fmt.Fprintf(t, "%s%s\t%d\t%s\t%s\t%s\t%s\t%s\n", header, s.Flows[i].Name, x.Samples, ns(x.MinNS), ns(x.P50NS), ns(x.P95NS), ns(x.P99NS), ns(x.MaxNS))
		header = ""
	}
	return t.Flush()
}

func ns(v int64) string { return Format(float64(v), "ns") }

// Point is one line of a time series: a flow at a point in time.
type Point struct {
	TimeNS         int64
	Flow           int
	State          string // of congestion: "open", "disorder", "cwr", "recovery", "loss"
	CwndBytes      int64
	SsthreshBytes  int64 // 0: none
	InFlightBytes  int64
	SRTTNS         int64
	MinRTTNS       int64
	RTTNS          int64 // the last sample
	DeliveryBPS    int64
	PacingBPS      int64 // 0: not paced
	DeliveredBytes int64 // since the start
	Retransmits    int64 // since the start
	Lost           int64 // since the start
	QueueBytes     int64 // that wait at the bottleneck of the flow's direction
}

// SeriesHeader is the first line of a time series in CSV.
const SeriesHeader = "time_ns,flow,state,cwnd_bytes,ssthresh_bytes,in_flight_bytes,srtt_ns,min_rtt_ns,rtt_ns,delivery_bps,pacing_bps," +
	"delivered_bytes,retransmits,lost,queue_bytes\n"

// Series writes a time series as CSV, with a header line.
type Series struct {
	w   *bufio.Writer
	buf []byte
}

// NewSeries begins a time series on w.
func NewSeries(w io.Writer) (*Series, error) {
	s := &Series{w: bufio.NewWriter(w)}
	_, err := s.w.WriteString(SeriesHeader)
	return s, err
}

// Add writes one line.
func (s *Series) Add(p *Point) error {
	b := strconv.AppendInt(s.buf[:0], p.TimeNS, 10)
	b = strconv.AppendInt(append(b, ','), int64(p.Flow), 10)
	b = append(append(b, ','), p.State...)
	for _, v := range [...]int64{p.CwndBytes, p.SsthreshBytes, p.InFlightBytes, p.SRTTNS, p.MinRTTNS, p.RTTNS, p.DeliveryBPS, p.PacingBPS,
		p.DeliveredBytes, p.Retransmits, p.Lost, p.QueueBytes} {
		b = strconv.AppendInt(append(b, ','), v, 10)
	}
	s.buf = append(b, '\n')
	_, err := s.w.Write(s.buf)
	return err
}

// Flush writes out what is buffered.
func (s *Series) Flush() error { return s.w.Flush() }

package bbr

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const (
	rate100 = 12_500_000 // 100 Mbit/s
	rtt100  = 100 * time.Millisecond
	bdp100  = rate100 / 10
)

// change is a change of mode.
type change struct {
	to       mode
	at       time.Duration
	rounds   int // packet-timed, from the start
	inFlight uint32
	bw       uint64
}

// watch notes the changes of mode of a simulation.
func watch(s *congtest.Sim) *[]change {
	list := &[]change{{to: startup}}
	rounds, next := 0, uint64(0)
	s.OnSample = func(in *cong.Sample, d *cong.Decision) {
		if d == nil {
			return
		}
		if in.Kind == cong.KindAck && in.PriorDelivered >= next {
			rounds, next = rounds+1, in.Delivered
		}
		if m := modeOf(*d); m != (*list)[len(*list)-1].to {
			*list = append(*list, change{m, in.Now.Sub(congtest.Start), rounds, in.InFlight, d.Aux[0]})
		}
	}
	return list
}

// A.1, A.3 of draft-ietf-ccwg-bbr-06's appendix, whose cases hold for version 1 where it has the mechanism (no loss bound, no rounds of
// DRAIN, no phases of PROBE_BW: not A.2, A.4 to A.9, A.21), and facts V7: 100 Mbit/s, 100 ms from a window of 10: about 6.4 round trips to fill the pipe and 3 to see it; the
// estimate is within 2 % of the link; the queue stays below 1.885 BDP; DRAIN ends at one BDP in flight, after about a round.
func TestStartupFillsThePipe(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, newModule(t, nil, 1))
	changes := watch(s)
	s.Run(3 * time.Second)
	c := *changes
	if len(c) < 3 || c[1].to != drain || c[2].to != probeBW {
		t.Fatalf("modes %+v", c)
	}
	// The first acknowledgement counts as a round; a round's rate is known a round later: 1 + 6.4 + 1 + 3, rounded up.
	if n := c[1].rounds; n < 11 || n > 12 {
		t.Errorf("STARTUP took %d rounds", n)
	}
	within(t, "bandwidth at the end of STARTUP", c[1].bw, rate100, 20)
	// Quantisation adds three bursts of 1 ms at 2.885 times the rate.
	if q := s.Stats.MaxQueue; q > bdp100*1885/1000+3*rate100*2885/1000/1000 || q < bdp100/2 {
		t.Errorf("queue of %d bytes, BDP %d", q, bdp100)
	}
	if d := c[2].at - c[1].at; d > 3*rtt100 {
		t.Errorf("DRAIN took %v", d)
	}
	within(t, "in flight at the end of DRAIN", uint64(c[2].inFlight), bdp100, 50)
	if d := s.Decision(); d.Ssthresh == cong.InfiniteSsthresh {
		t.Error("ssthresh does not tell that the pipe was full")
	}
}

func TestSteadyState(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100, Buffer: 10 * bdp100}, newModule(t, nil, 1))
	s.Run(3 * time.Second)
	d := s.Delivered()
	queue, n := uint64(0), uint64(0)
	for range 600 {
		s.Run(10 * time.Millisecond)
		queue += s.Queue()
		n++
	}
	within(t, "delivered", s.Delivered()-d, 6*rate100, 20)
	if queue/n > bdp100/4 {
		t.Errorf("a mean queue of %d bytes with a deep buffer, BDP %d", queue/n, bdp100)
	}
}

// A.10: after 10 s without a lower RTT: PROBE_RTT for 200 ms and a round with 4 segments in flight, then on at full rate.
func TestProbeRTT(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, newModule(t, nil, 1))
	changes := watch(s)
	s.Run(15 * time.Second)
	var in, out *change
	for i := range *changes {
		if c := &(*changes)[i]; c.to == probeRTT {
			in, out = c, &(*changes)[i+1]
			break
		}
	}
	if in == nil {
		t.Fatalf("no PROBE_RTT in %+v", *changes)
	}
	if in.at < 10*time.Second || in.at > 10*time.Second+rtt100*5/2 {
		t.Errorf("PROBE_RTT at %v", in.at)
	}
	if out.to != probeBW {
		t.Errorf("%s after PROBE_RTT", modeNames[out.to])
	}
	if d := out.at - in.at; d < 200*time.Millisecond || d > 600*time.Millisecond {
		t.Errorf("PROBE_RTT lasted %v", d)
	}
	if out.inFlight > minCwndSegs*mss {
		t.Errorf("%d bytes in flight at the end of PROBE_RTT", out.inFlight)
	}
	d := s.Delivered()
	s.Run(time.Second)
	within(t, "delivered after PROBE_RTT", s.Delivered()-d, rate100, 50)
}

// A.20: PROBE_RTT in STARTUP goes back to STARTUP.
func TestProbeRTTInStartup(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, newModule(t, plugins.Params{"min_rtt_win_sec": "1"}, 1))
	s.Backlog = 0
	changes := watch(s)
	for range 200 { // an application that writes 4 segments each 20 ms never fills the pipe
		s.Backlog += 4 * mss
		s.Run(20 * time.Millisecond)
	}
	c := *changes
	if len(c) < 3 || c[1].to != probeRTT || c[2].to != startup {
		t.Errorf("modes %+v", c)
	}
}

// A.7: STARTUP does not end while the application is the limit.
func TestStartupAppLimited(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, newModule(t, nil, 1))
	s.Backlog = 0
	for range 250 {
		s.Backlog += 10 * mss
		s.Run(20 * time.Millisecond)
	}
	if d := s.Decision(); modeOf(d) != startup {
		t.Errorf("%s", Describe(d.Aux, &d))
	}
}

// Published picture (facts P1): payload as a share of capacity × (1-p) after 10 s: 95 % up to 1 % loss, 90 % up to 5 %.
func TestRandomLoss(t *testing.T) {
	for _, c := range []struct {
		ppm  uint32
		want uint64 // 1/1000 of rate·(1-p)
	}{{0, 950}, {1000, 950}, {10_000, 950}, {50_000, 900}} {
		for seed := range uint64(2) {
			p := congtest.Path{Rate: rate100, RTT: rtt100, Buffer: bdp100, LossPPM: c.ppm, Seed: seed}
			s := congtest.NewSim(p, newModule(t, nil, seed))
			s.Run(10 * time.Second)
			d := s.Delivered()
			s.Run(10 * time.Second)
			capacity := uint64(10*rate100) / 1_000_000 * uint64(1_000_000-c.ppm)
			share := (s.Delivered() - d) * 1000 / capacity
			t.Logf("loss %d ppm: %d ‰ of capacity", c.ppm, share)
			if share < c.want {
				t.Errorf("loss %d ppm, seed %d: %d ‰ of capacity, want %d", c.ppm, seed, share, c.want)
			}
			if s.Stats.Timeouts > 0 && c.ppm < 50_000 {
				t.Errorf("loss %d ppm: %d timeouts", c.ppm, s.Stats.Timeouts)
			}
		}
	}
}

// A.12, A.13: aggregated acknowledgements raise the window above 2 BDP, so that the link stays busy.
func TestAggregation(t *testing.T) {
	const rtt = 10 * time.Millisecond
	p := congtest.Path{Rate: rate100, RTT: rtt, AckEvery: 30 * time.Millisecond}
	delivered := map[string]uint64{}
	for _, gain := range []string{"256", "0"} {
		s := congtest.NewSim(p, newModule(t, plugins.Params{"extra_acked_gain": gain}, 1))
		s.Run(3 * time.Second)
		d := s.Delivered()
		s.Run(5 * time.Second)
		delivered[gain] = s.Delivered() - d
		t.Logf("gain %s: %d bytes/s, cwnd %d", gain, delivered[gain]/5, s.Decision().Cwnd)
		if gain == "256" && s.Decision().Cwnd <= 2*rate100/100 {
			t.Errorf("cwnd %d is not above twice the BDP", s.Decision().Cwnd)
		}
	}
	if delivered["256"] <= delivered["0"] {
		t.Errorf("%d bytes with, %d without the allowance", delivered["256"], delivered["0"])
	}
	within(t, "delivered in bursts", delivered["256"], 5*rate100, 60)
}

// A.14: a BDP below a segment still has 4 in flight.
func TestSubPacketBDP(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: 125_000, RTT: time.Millisecond}, newModule(t, nil, 1))
	s.Run(5 * time.Second)
	d := s.Delivered()
	s.Run(5 * time.Second)
	if s.Decision().Cwnd < minCwndSegs*mss {
		t.Errorf("cwnd %d", s.Decision().Cwnd)
	}
	within(t, "delivered", s.Delivered()-d, 5*125_000, 30)
}

// A.15: ten times the bandwidth is found, by 5/4 per cycle of 8 round trips: ln 10 / ln 1.25 = 10.3 cycles.
func TestBandwidthUp(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100 / 10, RTT: 20 * time.Millisecond}, newModule(t, nil, 1))
	s.Run(3 * time.Second)
	s.Path.Rate = rate100
	s.Run(14 * 8 * 20 * time.Millisecond)
	within(t, "bandwidth", s.Decision().Aux[0], rate100, 50)
}

// A.16: a tenth of the bandwidth is believed when the old maximum has left the filter.
func TestBandwidthDown(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: 20 * time.Millisecond, Buffer: 500_000}, newModule(t, nil, 1))
	s.Run(3 * time.Second)
	s.Path.Rate = rate100 / 10
	s.Run(10 * time.Second)
	within(t, "bandwidth", s.Decision().Aux[0], rate100/10, 50)
	if s.Stats.Timeouts > 2 {
		t.Errorf("%d timeouts", s.Stats.Timeouts)
	}
}

// A.17: a policer's rate is found and held: fewer losses than without, the same goodput.
func TestPolicer(t *testing.T) {
	const limit = 1_250_000
	p := congtest.Path{Rate: rate100, RTT: 40 * time.Millisecond, PolicerRate: limit, PolicerSize: 100_000}
	lost := map[string]uint64{}
	for _, on := range []string{"true", "false"} {
		s := congtest.NewSim(p, newModule(t, plugins.Params{"lt_bw": on}, 1))
		held := 0
		s.OnSample = func(in *cong.Sample, d *cong.Decision) {
			if d != nil && modeOf(*d) == probeBW && pacingGain(*d) == unit && d.Aux[0] < limit*9/8 && d.Aux[0] > limit*7/8 {
				held++
			}
		}
		s.Run(20 * time.Second)
		lost[on] = s.Stats.Lost * 1000 / s.Stats.Sent
		t.Logf("lt_bw %s: %d bytes/s, %d ‰ lost", on, s.Delivered()/20, lost[on])
		if got := s.Delivered() / 20; got < limit*8/10 {
			t.Errorf("lt_bw %s: %d bytes/s of %d", on, got, limit)
		}
		if on == "true" && held == 0 {
			t.Error("the policer's rate was never held")
		}
	}
	if lost["true"] >= lost["false"] {
		t.Errorf("%d ‰ lost with, %d ‰ without the detection", lost["true"], lost["false"])
	}
}

// A.18: undo forgets what the spurious loss taught: the search for a full pipe starts again, the policer's samples go.
func TestUndo(t *testing.T) {
	s := &state{fullBW: 100, fullCnt: 2}
	s.police = policer{sampling: true, use: true, bw: 5, rounds: 3}
	s.undo()
	if s.fullBW != 0 || s.fullCnt != 0 || s.police.sampling || s.police.use || s.police.bw != 0 {
		t.Errorf("%+v", s)
	}
}

package bbr3

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// The test cases of appendix A of draft-ietf-ccwg-bbr-06, on an emulated path; those of spurious losses (A.18, A.19) are in bbr3_test.go.

const (
	mss     = 1448
	rate100 = 12_500_000 // 100 Mbit/s
	rtt100  = 100 * time.Millisecond
	bdp100  = rate100 / 10
)

func make3(t testing.TB, p plugins.Params, seed uint64) cong.Module {
	m, err := New(p, seed)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func modeOf(d *cong.Decision) mode         { return mode(d.Aux[2] & 15) }
func bwOf(d *cong.Decision) uint64         { return d.Aux[0] & maxBW }
func longTermOf(d *cong.Decision) uint64   { return d.Aux[2] >> longTermShift }
func shortTermOf(d *cong.Decision) uint64  { return d.Aux[1] >> shortTermShift }
func pacingGainOf(d *cong.Decision) uint64 { return d.Aux[2] >> pacingGainShift & gainMask }

func within(t *testing.T, what string, got, want, permille uint64) {
	t.Helper()
	if d := max(got, want) - min(got, want); d*1000 > want*permille {
		t.Errorf("%s: %d, want %d ± %d ‰", what, got, want, permille)
	}
}

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
		if m := modeOf(d); m != (*list)[len(*list)-1].to {
			*list = append(*list, change{m, in.Now.Sub(congtest.Start), rounds, in.InFlight, bwOf(d)})
		}
	}
	return list
}

// until runs until the flow is in mode m, for at most limit.
func until(t *testing.T, s *congtest.Sim, m mode, limit time.Duration) {
	t.Helper()
	for end := s.Now().Add(limit); s.Now() < end; s.Run(time.Millisecond) {
		if d := s.Decision(); modeOf(&d) == m {
			return
		}
	}
	d := s.Decision()
	t.Fatalf("not in %s after %v: %s", modeNames[m], limit, Describe(d.Aux, &d))
}

// A.1, A.3: STARTUP ends when three rounds did not deliver 25 % more: the bandwidth is within 2 % of the link, and at most one BDP was queued
// (V7: a window of 2 BDP, plus what acknowledgements in flight allow). From 10 segments 100 Mbit/s over 100 ms take 6.4 doublings.
func TestStartupPlateau(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, nil, 1))
	changes := watch(s)
	s.Run(3 * time.Second)
	c := *changes
	// One acknowledgement may end DRAIN, and DOWN after it.
	if len(c) < 3 || c[1].to != drain || c[2].to != cruise && c[2].to != down {
		t.Fatalf("modes %+v", c)
	}
	if n := c[1].rounds; n < 11 || n > 12 {
		t.Errorf("STARTUP took %d rounds", n)
	}
	within(t, "bandwidth", c[1].bw, rate100, 20)
	if q := s.Stats.MaxQueue; q > bdp100*11/10 || q < bdp100/2 {
		t.Errorf("queue of %d bytes, BDP %d", q, bdp100)
	}
	// DRAIN ends at one BDP.
	within(t, "in flight at the end of DRAIN", uint64(c[2].inFlight), bdp100, 50)
	if d := c[2].at - c[1].at; d > 3*rtt100 {
		t.Errorf("DRAIN took %v", d)
	}
	if d := s.Decision(); d.Ssthresh == cong.InfiniteSsthresh {
		t.Error("ssthresh does not tell that the pipe was full")
	}
}

// A.2: STARTUP ends when more than 2 % is lost for a round of recovery, and inflight_longterm is set; even if the application is the
// limit.
func TestStartupLoss(t *testing.T) {
	for _, limited := range []bool{false, true} {
		s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100, LossPPM: 100_000, LossFrom: 300, Seed: 3}, make3(t, nil, 1))
		if limited {
			s.Backlog = 0
		}
		changes := watch(s)
		var longTerm uint64
		for range 150 {
			if limited {
				s.Backlog += 25 * mss
			}
			s.Run(20 * time.Millisecond)
			if d := s.Decision(); longTerm == 0 {
				longTerm = longTermOf(&d)
			}
		}
		c := *changes
		if len(c) < 2 || c[1].to != drain || longTerm == 0 {
			t.Errorf("application limited: %v: modes %+v, inflight_longterm %d", limited, c, longTerm)
		}
	}
}

// Losses in few places, or below 2 %, do not end STARTUP before the pipe is full.
func TestStartupStandsLittleLoss(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100, LossEvery: 100}, make3(t, nil, 1))
	changes := watch(s)
	s.Run(3 * time.Second)
	if c := *changes; len(c) < 2 || c[1].bw < rate100*9/10 {
		t.Errorf("modes %+v", c)
	}
}

// A.4: DRAIN ends after three rounds when the link gets 10 % slower as it begins, so that the BDP as it was estimated stays queued.
func TestDrainBounded(t *testing.T) {
	// A gain of 1 never drains: only the bound can end it.
	for _, gain := range []string{"50", "100"} {
		s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, plugins.Params{"drain_gain": gain}, 1))
		changes := watch(s)
		until(t, s, drain, 3*time.Second)
		s.Path.Rate = rate100 * 9 / 10
		s.Run(2 * time.Second)
		c := *changes
		if n := c[2].rounds - c[1].rounds; gain == "50" && n > 3 || n > 4 || gain == "100" && n != 4 {
			t.Errorf("gain %s %%: DRAIN took %d rounds", gain, n)
		}
	}
}

// A.5: UP ends when the rate does not grow for three rounds.
func TestUpPlateau(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, nil, 1))
	changes := watch(s)
	until(t, s, up, 10*time.Second)
	until(t, s, down, 3*time.Second)
	c := *changes
	in, out := c[len(c)-2], c[len(c)-1]
	if in.to != up || c[len(c)-3].to != refill || out.rounds-in.rounds < 3 || out.rounds-in.rounds > 5 {
		t.Errorf("modes %+v", c)
	}
	if n := in.rounds - c[len(c)-3].rounds; n != 1 {
		t.Errorf("REFILL took %d rounds", n)
	}
	if d := s.Decision(); longTermOf(&d) != 0 {
		t.Errorf("without loss there is a bound: %s", Describe(d.Aux, &d))
	}
	if s.Stats.Lost != 0 {
		t.Errorf("%d lost", s.Stats.Lost)
	}
}

// A.8, A.21 without a bound: UP ends when it loses more than 2 %, and what was in flight is the bound.
func TestUpLoss(t *testing.T) {
	const buffer = bdp100 / 10
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100, Buffer: buffer}, make3(t, nil, 1))
	until(t, s, up, 10*time.Second)
	until(t, s, down, 3*time.Second)
	d := s.Decision()
	if v := longTermOf(&d); v < bdp100*7/10 || v > (bdp100+buffer)*105/100 {
		t.Errorf("inflight_longterm %d, BDP %d and %d of buffer", v, bdp100, buffer)
	}
	until(t, s, cruise, 3*time.Second)
	// CRUISE leaves headroom below the bound.
	if d = s.Decision(); uint64(d.Cwnd) > longTermOf(&d)*86/100 {
		t.Errorf("window %d in CRUISE, inflight_longterm %d", d.Cwnd, longTermOf(&d))
	}
}

// A.7: Without loss neither STARTUP nor UP ends while the application is the limit.
func TestAppLimited(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: 20 * time.Millisecond}, make3(t, plugins.Params{"probe_rtt_interval_ms": "60000"}, 1))
	s.Backlog = 0
	for range 100 {
		s.Backlog += 10 * mss
		s.Run(20 * time.Millisecond)
	}
	if d := s.Decision(); modeOf(&d) != startup {
		t.Errorf("STARTUP ended: %s", Describe(d.Aux, &d))
	}
	s.Backlog = congtest.Endless
	until(t, s, up, 6*time.Second)
	d := s.Decision()
	bw := bwOf(&d)
	s.Backlog = 0
	s.Run(20 * time.Millisecond)
	for range 100 {
		s.Backlog += 10 * mss
		s.Run(20 * time.Millisecond)
		if d = s.Decision(); modeOf(&d) != up {
			t.Fatalf("UP ended: %s", Describe(d.Aux, &d))
		}
	}
	if got := bwOf(&d); got < bw {
		t.Errorf("bandwidth fell from %d to %d", bw, got)
	}
}

// A.22: A cycle in which the application was the limit leaves the bandwidth as it is.
func TestAppLimitedRefill(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: 20 * time.Millisecond}, make3(t, nil, 1))
	until(t, s, cruise, 6*time.Second)
	d := s.Decision()
	bw := bwOf(&d)
	s.Backlog = 0
	s.Run(20 * time.Millisecond)
	changes := watch(s)
	for range 1000 {
		s.Backlog += 10 * mss
		s.Run(20 * time.Millisecond)
	}
	refills := 0
	for _, c := range *changes {
		if c.to == refill {
			refills++
		}
	}
	if d = s.Decision(); bwOf(&d) != bw || refills == 0 {
		t.Errorf("bandwidth was %d, is %d after %d REFILLs", bw, bwOf(&d), refills)
	}
}

// A.10: PROBE_RTT comes after 5 s without a lower RTT, lasts 200 ms and a round with half a BDP in flight, and goes on to CRUISE.
func TestProbeRTT(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, nil, 1))
	changes := watch(s)
	least := uint32(unset)
	until(t, s, probeRTT, 8*time.Second)
	for d := s.Decision(); modeOf(&d) == probeRTT; d = s.Decision() {
		least = min(least, s.InFlight())
		s.Run(time.Millisecond)
	}
	c := *changes
	in, out := c[len(c)-2], c[len(c)-1]
	if in.at < 5*time.Second || in.at > 5*time.Second+rtt100*5/2 {
		t.Errorf("PROBE_RTT at %v", in.at)
	}
	if out.to != cruise {
		t.Errorf("%s after PROBE_RTT", modeNames[out.to])
	}
	if d := out.at - in.at; d < 300*time.Millisecond || d > 600*time.Millisecond {
		t.Errorf("PROBE_RTT lasted %v", d)
	}
	within(t, "least in flight", uint64(least), bdp100/2, 50)
	d := s.Delivered()
	s.Run(time.Second)
	within(t, "delivered after PROBE_RTT", s.Delivered()-d, rate100, 80)
}

// The long-run cost of PROBE_RTT is 2 % (the draft's formula).
func TestSteadyState(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: 20 * time.Millisecond, Buffer: 10 * bdp100}, make3(t, nil, 1))
	s.Run(3 * time.Second)
	d := s.Delivered()
	queue, n := uint64(0), uint64(0)
	for range 2000 {
		s.Run(10 * time.Millisecond)
		queue += s.Queue()
		n++
	}
	within(t, "delivered", s.Delivered()-d, 20*rate100*98/100, 15)
	if queue/n > rate100/50/4 {
		t.Errorf("a mean queue of %d bytes with a deep buffer, BDP %d", queue/n, rate100/50)
	}
}

// A.11: PROBE_RTT is not needed after idle time: the queue was empty.
func TestNoProbeRTTAfterIdle(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, nil, 1))
	until(t, s, cruise, 3*time.Second)
	s.Backlog = 0
	s.Run(8 * time.Second)
	changes := watch(s)
	s.Backlog = 1_000_000
	s.Run(300 * time.Millisecond)
	for _, c := range *changes {
		if c.to == probeRTT {
			t.Errorf("modes %+v", *changes)
		}
	}
}

// A.20: PROBE_RTT in STARTUP goes back to STARTUP.
func TestProbeRTTInStartup(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, nil, 1))
	s.Backlog = 0
	changes := watch(s)
	for range 350 { // an application that writes 4 segments each 20 ms never fills the pipe
		s.Backlog += 4 * mss
		s.Run(20 * time.Millisecond)
	}
	c := *changes
	if len(c) < 3 || c[1].to != probeRTT || c[2].to != startup {
		t.Errorf("modes %+v", c)
	}
}

// A.12: Aggregated acknowledgements raise the window above 2 BDP, so that the link stays busy.
func TestAggregation(t *testing.T) {
	p := congtest.Path{Rate: rate100, RTT: 10 * time.Millisecond, AckEvery: 30 * time.Millisecond}
	s := congtest.NewSim(p, make3(t, nil, 1))
	s.Run(3 * time.Second)
	d := s.Delivered()
	s.Run(5 * time.Second)
	if s.Decision().Cwnd <= 2*rate100/100 {
		t.Errorf("cwnd %d is not above twice the BDP", s.Decision().Cwnd)
	}
	within(t, "delivered in bursts", s.Delivered()-d, 5*rate100, 80)
}

// A.14: A BDP below a segment still has 4 in flight.
func TestSubPacketBDP(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: 125_000, RTT: time.Millisecond}, make3(t, nil, 1))
	s.Run(5 * time.Second)
	d := s.Delivered()
	s.Run(5 * time.Second)
	if s.Decision().Cwnd < minPipeSegs*mss {
		t.Errorf("cwnd %d", s.Decision().Cwnd)
	}
	within(t, "delivered", s.Delivered()-d, 5*125_000, 40)
}

// A.15: Ten times the bandwidth is found in O(log BDP) round trips of UP: by 25 % each while the rate grows so.
func TestBandwidthUp(t *testing.T) {
	const rtt = 20 * time.Millisecond
	s := congtest.NewSim(congtest.Path{Rate: rate100 / 10, RTT: rtt}, make3(t, nil, 1))
	until(t, s, cruise, 3*time.Second)
	s.Path.Rate = rate100
	until(t, s, up, 4*time.Second)
	start := s.Now()
	for d := s.Decision(); bwOf(&d) < rate100*95/100 && s.Now().Sub(start) < 3*time.Second; d = s.Decision() {
		s.Run(time.Millisecond)
	}
	// ln 10 / ln 1.25 = 10.3 round trips, and each rate is measured a round trip after it was sent.
	if d := s.Now().Sub(start); d > 24*rtt {
		t.Errorf("ten times the bandwidth took %v", d)
	}
}

// A.16: A tenth of the bandwidth: losses lower bw_shortterm at once, by 30 % a round; the filter forgets after two cycles.
func TestBandwidthDown(t *testing.T) {
	const rtt = 20 * time.Millisecond
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt, Buffer: 100_000}, make3(t, nil, 1))
	until(t, s, cruise, 3*time.Second)
	s.Path.Rate = rate100 / 10
	s.Run(time.Second) // the queue is full: 10 round trips of 100 ms
	if d := s.Decision(); bwOf(&d) > rate100/5 || shortTermOf(&d) == 0 {
		t.Errorf("after 10 round trips: %s", Describe(d.Aux, &d))
	}
	s.Run(10 * time.Second)
	d := s.Decision()
	within(t, "bandwidth", bwOf(&d), rate100/10, 50)
	if s.Stats.Timeouts > 2 {
		t.Errorf("%d timeouts", s.Stats.Timeouts)
	}
}

// A.17: A policer: most of its rate is used, and it drops little: what a probe sends until it sees 2 % lost, and nothing in CRUISE.
func TestPolicer(t *testing.T) {
	const limit = 1_250_000
	p := congtest.Path{Rate: rate100, RTT: 40 * time.Millisecond, PolicerRate: limit, PolicerSize: 100_000}
	s := congtest.NewSim(p, make3(t, nil, 1))
	s.Run(5 * time.Second)
	d, sent, lost := s.Delivered(), s.Stats.Sent, s.Stats.Lost
	s.Run(20 * time.Second)
	if got := (s.Delivered() - d) / 20; got < limit*8/10 {
		t.Errorf("%d bytes/s of %d", got, limit)
	}
	if got := (s.Stats.Lost - lost) * 1000 / (s.Stats.Sent - sent); got > 50 {
		t.Errorf("%d ‰ lost", got)
	}
}

// Random loss below the threshold (V8): each lossy round of CRUISE keeps the share that was delivered, less the pacing margin,
// and REFILL and UP restore the rate. Over the 20 to 30 rounds of a cruise that is a mean of (1-q^30)/(30(1-q)) with q = 0.99
// for little loss, and 0.98 for 1 %, less 2 % for PROBE_RTT.
func TestRandomLoss(t *testing.T) {
	for _, c := range []struct {
		ppm  uint32
		want uint64 // 1/1000 of rate·(1-p)
	}{{0, 940}, {1000, 850}, {10_000, 740}} {
		p := congtest.Path{Rate: rate100, RTT: rtt100, Buffer: bdp100, LossPPM: c.ppm, Seed: 5}
		s := congtest.NewSim(p, make3(t, nil, 1))
		s.Run(10 * time.Second)
		d := s.Delivered()
		s.Run(20 * time.Second)
		capacity := uint64(20*rate100) / 1_000_000 * uint64(1_000_000-c.ppm)
		share := (s.Delivered() - d) * 1000 / capacity
		t.Logf("loss %d ppm: %d ‰ of capacity", c.ppm, share)
		if share < c.want {
			t.Errorf("loss %d ppm: %d ‰ of capacity, want %d", c.ppm, share, c.want)
		}
	}
}

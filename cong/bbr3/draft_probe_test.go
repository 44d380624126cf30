package bbr3

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// The rest of appendix A of draft-ietf-ccwg-bbr-06: ends of UP and DOWN, and aggregated acknowledgements in each phase.

// noProbeRTT keeps PROBE_RTT out of what is looked at.
var noProbeRTT = plugins.Params{"probe_rtt_interval_ms": "3600000"}

// A.6: UP ends when more than 2 % is lost, even if the application is the limit; what was in flight says nothing then, and the bound
// stays as it was (HandleInflightTooHigh).
func TestUpLossAppLimited(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: 20 * time.Millisecond}, make3(t, noProbeRTT, 1))
	until(t, s, up, 10*time.Second)
	s.Backlog = 0
	s.Run(40 * time.Millisecond) // what was in flight with the window full has been acknowledged
	limited, ended := false, cong.Decision{}
	s.OnSample = func(in *cong.Sample, d *cong.Decision) {
		if d != nil && modeOf(d) != up && ended.Cwnd == 0 {
			ended = *d
			limited = in.Kind == cong.KindLost && in.Has(cong.FlagAppLimited)
		}
	}
	s.Path.LossEvery = 20
	for range 20 {
		s.Backlog += 100 * mss
		s.Run(20 * time.Millisecond)
	}
	if modeOf(&ended) != down || !limited || longTermOf(&ended) != 0 {
		t.Errorf("UP ended by a loss while the application was the limit: %v; %s", limited, Describe(ended.Aux, &ended))
	}
}

// A.8: DOWN paces at 0.9, and ends in CRUISE when what is in flight is at most one BDP, and leaves headroom below the bound.
func TestDownToCruise(t *testing.T) {
	const buffer = bdp100 / 10
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100, Buffer: buffer}, make3(t, noProbeRTT, 1))
	until(t, s, up, 10*time.Second)
	until(t, s, down, 3*time.Second)
	if d := s.Decision(); pacingGainOf(&d) != 90 || longTermOf(&d) == 0 {
		t.Fatalf("%s", Describe(d.Aux, &d))
	}
	var last, at uint32
	s.OnSample = func(in *cong.Sample, d *cong.Decision) {
		if d != nil && in.Kind == cong.KindAck {
			if modeOf(d) == cruise && at == 0 {
				at = in.InFlight
			} else if at == 0 {
				last = in.InFlight
			}
		}
	}
	until(t, s, cruise, 3*time.Second)
	d := s.Decision()
	room := uint32(longTermOf(&d) * 85 / 100)
	if limit := min(room, bdp100); at > limit+mss || last < limit {
		t.Errorf("CRUISE began with %d in flight, %d before, BDP %d, bound less headroom %d", at, last, bdp100, room)
	}
}

// A.9: when the link gets 10 % slower as DOWN begins, what is in flight does not fall to the estimated BDP, and after bw_probe_wait the
// flow goes to REFILL without CRUISE.
func TestDownBounded(t *testing.T) {
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100}, make3(t, noProbeRTT, 1))
	until(t, s, up, 10*time.Second)
	until(t, s, down, 3*time.Second)
	s.Path.Rate = rate100 * 9 / 10
	changes := watch(s)
	start := s.Now().Sub(congtest.Start)
	s.Run(3500 * time.Millisecond)
	c := *changes
	if len(c) < 3 || c[1].to != down || c[2].to != refill {
		t.Fatalf("modes %+v", c)
	}
	if d := c[2].at - start; d < 2*time.Second || d > 3*time.Second+2*rtt100 {
		t.Errorf("REFILL after %v", d)
	}
}

// A.12: acknowledgements that come in bursts from the start raise the window above twice the BDP already in STARTUP, which finds the whole
// bandwidth, and no more: a burst's rate is capped by that of sending.
func TestStartupAggregation(t *testing.T) {
	const rtt = 20 * time.Millisecond
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt, AckEvery: 30 * time.Millisecond}, make3(t, noProbeRTT, 1))
	until(t, s, drain, 3*time.Second)
	d := s.Decision()
	within(t, "bandwidth", bwOf(&d), rate100, 60)
	if d.Cwnd <= 2*rate100/50 {
		t.Errorf("cwnd %d is not above twice the BDP of %d", d.Cwnd, rate100/50)
	}
}

// A.13: when acknowledgements begin to come in bursts in CRUISE, the window grows by what is aggregated, and the link stays busy.
func TestCruiseAggregation(t *testing.T) {
	const rtt = 10 * time.Millisecond
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt}, make3(t, noProbeRTT, 1))
	until(t, s, cruise, 6*time.Second)
	before := s.Decision().Cwnd
	s.Path.AckEvery = 30 * time.Millisecond
	s.Run(time.Second)
	if got := s.Decision().Cwnd; got <= before || got <= 2*rate100/100 {
		t.Errorf("cwnd %d, before %d, BDP %d", got, before, rate100/100)
	}
	d := s.Delivered()
	s.Run(3 * time.Second)
	within(t, "delivered", s.Delivered()-d, 3*rate100, 80)
}

// A.21: with inflight_longterm known, a loss in UP lowers it, to 70 % of the target at the least, and ends UP.
func TestUpLossLowersBound(t *testing.T) {
	const buffer = bdp100 / 2
	s := congtest.NewSim(congtest.Path{Rate: rate100, RTT: rtt100, Buffer: buffer}, make3(t, noProbeRTT, 1))
	var bound uint64
	for range 10 { // until a bound is known
		until(t, s, up, 10*time.Second)
		until(t, s, down, 5*time.Second)
		if d := s.Decision(); longTermOf(&d) != 0 {
			bound = longTermOf(&d)
			break
		}
		s.Path.Buffer = buffer / 5
	}
	if bound == 0 {
		t.Fatal("no bound")
	}
	until(t, s, up, 10*time.Second)
	s.Path.LossEvery = 20
	until(t, s, down, 5*rtt100)
	d := s.Decision()
	if got := longTermOf(&d); got >= bound || got < bdp100*7/10*98/100 {
		t.Errorf("inflight_longterm %d, before %d, BDP %d", got, bound, bdp100)
	}
}

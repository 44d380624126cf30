package congtest

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// fixed keeps a window and a rate, and halves nothing.
func fixed(cwnd uint32, rate uint64, flags uint32) cong.Module {
	return cong.Each(func(_ *struct{}, _ *cong.Sample, out *cong.Decision) {
		out.Cwnd, out.Ssthresh, out.Rate, out.Flags = cwnd, cwnd, rate, flags
	})
}

func within(t *testing.T, what string, got, want, permille uint64) {
	t.Helper()
	if d := max(got, want) - min(got, want); d*1000 > want*permille {
		t.Errorf("%s: %d, want %d ± %d ‰", what, got, want, permille)
	}
}

// A window below the BDP gives window/RTT and no queue; one above gives the link's rate and the rest as queue.
func TestSimThroughputAndQueue(t *testing.T) {
	const rate, mss = 12_500_000, 1000 // 100 ms: BDP 1250 segments
	p := Path{Rate: rate, RTT: 100 * time.Millisecond, MSS: mss}

	s := NewSim(p, fixed(500*mss, plugins.Unlimited, 0))
	s.Run(10 * time.Second)
	within(t, "small window", s.Delivered(), 500*mss*99, 10)

	s = NewSim(p, fixed(2000*mss, plugins.Unlimited, 0))
	s.Run(10 * time.Second)
	within(t, "large window", s.Delivered(), rate*99/10, 10)
	within(t, "queue", s.Queue(), 750*mss, 10)

	s = NewSim(p, fixed(2000*mss, rate/2, 0))
	s.Run(10 * time.Second)
	within(t, "paced", s.Delivered(), rate/2*99/10, 10)
	if s.Queue() > mss {
		t.Errorf("queue of %d bytes when paced at half the rate", s.Queue())
	}
}

// The delivery-rate sample of a full pipe is the bottleneck's rate, RTT is that of the path plus the queue.
func TestSimRateSample(t *testing.T) {
	const rate, mss = 12_500_000, 1000
	s := NewSim(Path{Rate: rate, RTT: 100 * time.Millisecond, MSS: mss}, fixed(2000*mss, plugins.Unlimited, 0))
	s.Run(5 * time.Second)
	n := 0
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		n++
		within(t, "rate", in.Rate(), rate, 2)
		within(t, "RTT", uint64(in.RTT), uint64(160*time.Millisecond), 5)
		if in.Has(cong.FlagAppLimited) || !in.Has(cong.FlagCwndLimited|cong.FlagRTTValid) {
			t.Errorf("flags %#x", in.Flags)
		}
	}
	s.Run(100 * time.Millisecond)
	if n < 1000 {
		t.Errorf("%d samples in 100 ms", n)
	}
}

func TestSimLosses(t *testing.T) {
	const mss = 1000
	// Periodic loss: each hundredth transmission, all repaired without a timeout.
	s := NewSim(Path{RTT: 10 * time.Millisecond, MSS: mss, LossEvery: 100}, fixed(50*mss, 0, 0))
	s.Run(10 * time.Second)
	within(t, "periodic", s.Stats.Lost*100, s.Stats.Sent, 20)
	if s.Stats.Timeouts != 0 || s.Delivered()/mss+s.Stats.Lost+50 < s.Stats.Sent {
		t.Errorf("%d bytes delivered, %+v", s.Delivered(), s.Stats)
	}
	// Random loss.
	s = NewSim(Path{RTT: 10 * time.Millisecond, MSS: mss, LossPPM: 50_000, Seed: 1}, fixed(50*mss, 0, 0))
	s.Run(100 * time.Second)
	within(t, "random", s.Stats.Lost*20, s.Stats.Sent, 30)
	// Drop tail: a window of 3 BDP, a buffer of 1.
	s = NewSim(Path{Rate: 1_000_000, RTT: 100 * time.Millisecond, MSS: mss, Buffer: 100 * mss}, fixed(300*mss, 0, 0))
	s.Run(10 * time.Second)
	if s.Stats.Lost < 100 || s.Stats.MaxQueue > 100*mss {
		t.Errorf("drop tail: %+v", s.Stats)
	}
	within(t, "drop tail", s.Delivered(), 9_900_000, 20)
	// Nothing arrives: timeouts, doubling.
	s = NewSim(Path{RTT: 10 * time.Millisecond, MSS: mss, LossPPM: 1_000_000}, fixed(50*mss, 0, 0))
	s.Run(10 * time.Second) // RTO 210 ms: at 0.21, 0.63, 1.47, 3.15, 6.51 s
	if s.Stats.Timeouts != 5 {
		t.Errorf("black hole: %d timeouts, want 5", s.Stats.Timeouts)
	}
}

// A policer of 1 MB/s on a faster link lets 1 MB/s through.
func TestSimPolicer(t *testing.T) {
	const mss = 1000
	p := Path{Rate: 12_500_000, RTT: 20 * time.Millisecond, MSS: mss, PolicerRate: 1_000_000, PolicerSize: 100_000}
	s := NewSim(p, fixed(60*mss, plugins.Unlimited, 0)) // 3 MB/s
	s.Run(20 * time.Second)
	if d := s.Delivered(); d > 20_100_000 || d < 15_000_000 {
		t.Errorf("%d bytes passed the policer in 20 s", d)
	}
}

func TestSimAckBursts(t *testing.T) {
	const mss = 1000
	s := NewSim(Path{Rate: 1_000_000, RTT: 20 * time.Millisecond, MSS: mss, AckEvery: 5 * time.Millisecond}, fixed(40*mss, plugins.Unlimited, 0))
	s.Run(time.Second)
	var acks int
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		acks++
		if in.Now%plugins.Time(5*time.Millisecond) != 0 || in.Acked != 5*mss {
			t.Errorf("%d bytes acknowledged at %d", in.Acked, in.Now)
		}
	}
	s.Run(time.Second)
	if acks != 200 {
		t.Errorf("%d bursts in 1 s, want 200", acks)
	}
}

// RFC 9937, 8, its first example: one loss at a window of 20 segments, ssthresh 10: one send for two acknowledgements over
// the round trip, ending at 10.
func TestSimPRR(t *testing.T) {
	const mss = 1000
	halve := cong.Each(func(_ *struct{}, in *cong.Sample, out *cong.Decision) {
		out.Flags = cong.WantsPRR
		if in.Has(cong.FlagEnter) {
			out.Ssthresh, out.Cwnd = 10*mss, 10*mss
		} else if in.Kind == cong.KindOpen {
			out.Cwnd = 20 * mss
		}
	})
	s := NewSim(Path{RTT: 100 * time.Millisecond, MSS: mss, LossEvery: 1 << 40, LossFrom: 0}, halve)
	s.Run(time.Second)
	s.Path.LossEvery, s.Path.LossFrom = 1, s.link.count // the next one is lost
	for s.link.count == s.Path.LossFrom {
		s.Run(time.Millisecond)
	}
	s.Path.LossEvery = 0
	for s.CA() != cong.CARecovery {
		s.Run(time.Millisecond / 4)
	}
	sent, worst := s.Stats.Sent, uint64(0)
	acks := 0
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		acks++
		worst = max(worst, s.Stats.Sent-sent)
	}
	for s.CA() == cong.CARecovery {
		s.Run(time.Millisecond / 4)
	}
	if n := s.Stats.Sent - sent; n < 8 || n > 11 {
		t.Errorf("%d segments sent in recovery, want about 10 for %d acknowledgements", n, acks)
	}
	if w := s.window(); w != 10*mss {
		t.Errorf("window after recovery %d, want %d", w, 10*mss)
	}
}

func TestSimAppLimitedAndIdle(t *testing.T) {
	const mss = 1000
	s := NewSim(Path{RTT: 20 * time.Millisecond, MSS: mss}, fixed(50*mss, plugins.Unlimited, 0))
	s.Backlog = 30 * mss
	var limited, restarts int
	s.OnSample = func(in *cong.Sample, _ *cong.Decision) {
		if in.Kind == cong.KindRestart {
			restarts++
		}
		if in.Kind == cong.KindAck && in.Has(cong.FlagAppLimited) {
			limited++
		}
	}
	s.Run(time.Second)
	if s.Delivered() != 30*mss || s.InFlight() != 0 || restarts != 0 {
		t.Errorf("%d bytes delivered, %d restarts", s.Delivered(), restarts)
	}
	s.Backlog = 30 * mss
	s.Run(time.Second)
	if s.Delivered() != 60*mss || restarts != 1 || limited == 0 {
		t.Errorf("after idle: %d bytes delivered, %d restarts, %d limited samples", s.Delivered(), restarts, limited)
	}
}

// The suite's check refuses what it should.
func TestCheck(t *testing.T) {
	in := cong.Sample{ID: 7, MSS: 1000, Flow: plugins.Flow{Slot: 1}}
	good := cong.Decision{Flow: in.Flow, AsOf: 7, Cwnd: 1000, Ssthresh: 2000, Rate: 1}
	if err := check(&in, &good, true); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*cong.Decision){
		"flow":          func(d *cong.Decision) { d.Flow.Gen = 1 },
		"event":         func(d *cong.Decision) { d.AsOf = 6 },
		"small cwnd":    func(d *cong.Decision) { d.Cwnd = 999 },
		"large cwnd":    func(d *cong.Decision) { d.Cwnd = 1<<30 + 1 },
		"small thresh":  func(d *cong.Decision) { d.Ssthresh = 1999 },
		"large thresh":  func(d *cong.Decision) { d.Ssthresh = 1<<30 + 1 },
		"zero rate":     func(d *cong.Decision) { d.Rate = 0 },
		"TSO goal":      func(d *cong.Decision) { d.TSOGoal = 1 << 20 },
		"unknown flags": func(d *cong.Decision) { d.Flags = 1 << 20 },
	} {
		d := good
		spoil(&d)
		if check(&in, &d, true) == nil {
			t.Errorf("%s: %+v passes", name, d)
		}
	}
}

package congtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong/congtest"
)

// Every algorithm stays live on rough paths of 100 Mbit/s: it delivers at least a share of what the path carries.

func live(t *testing.T, s *congtest.Sim, name string, rate uint64, permille uint64) {
	t.Helper()
	s.Run(5 * time.Second)
	d, timeouts := s.Delivered(), s.Stats.Timeouts
	s.Run(10 * time.Second)
	got := (s.Delivered() - d) / 10
	t.Logf("%s: %d ‰ of the rate, %d ‰ lost, %d timeouts", name, got*1000/rate, s.Stats.Lost*1000/s.Stats.Sent, s.Stats.Timeouts)
	if got*1000 < rate*permille || s.Stats.Timeouts > timeouts+5 {
		t.Errorf("%s: %d ‰ of the rate, %d timeouts", name, got*1000/rate, s.Stats.Timeouts-timeouts)
	}
}

// A buffer of 0.05 to 1 BDP. Reno halves, so that a sawtooth over a buffer of b BDP uses at least 0.75 of the path (b = 0); what the
// delay-based and the model-based leave is less than that.
func TestShallowBuffers(t *testing.T) {
	const rate, rtt = 12_500_000, 20 * time.Millisecond
	for _, a := range algorithms {
		for _, percent := range []uint64{5, 10, 20, 50, 100} {
			m, _ := a.new(nil, 1)
			s := congtest.NewSim(congtest.Path{Rate: rate, RTT: rtt, Buffer: rate / 50 * percent / 100}, m)
			live(t, s, fmt.Sprintf("%s, %d %% of a BDP", a.name, percent), rate, 700)
		}
	}
}

// Acknowledgements that come together each 5 ms, as Wi-Fi does.
func TestAggregatedAcks(t *testing.T) {
	const rate, rtt = 12_500_000, 20 * time.Millisecond
	for _, a := range algorithms {
		m, _ := a.new(nil, 1)
		s := congtest.NewSim(congtest.Path{Rate: rate, RTT: rtt, Buffer: rate / 50, AckEvery: 5 * time.Millisecond}, m)
		live(t, s, a.name, rate, 700)
	}
}

// A policer of a tenth of the link's rate, with a bucket of 50 ms of it: what is sent above it is dropped, without a queue that would tell.
// The longest bursts that any of them makes after idling on the bucket cost it some of its rate.
func TestPolicers(t *testing.T) {
	const rate, policed = 12_500_000, 1_250_000
	for _, a := range algorithms {
		m, _ := a.new(nil, 1)
		s := congtest.NewSim(congtest.Path{Rate: rate, RTT: 40 * time.Millisecond, Buffer: rate / 25, PolicerRate: policed, PolicerSize: policed / 20}, m)
		live(t, s, a.name, policed, 600)
		if share := s.Stats.Lost * 1000 / s.Stats.Sent; share > 250 {
			t.Errorf("%s: %d ‰ lost", a.name, share)
		}
	}
}

// Ten times the rate and back: within 10 s after each step most of the new rate is used.
func TestRateSteps(t *testing.T) {
	const rate, rtt = 12_500_000, 20 * time.Millisecond
	for _, a := range algorithms {
		m, _ := a.new(nil, 1)
		s := congtest.NewSim(congtest.Path{Rate: rate / 10, RTT: rtt, Buffer: rate / 50}, m)
		s.Run(5 * time.Second)
		s.Path.Rate = rate
		s.Run(5 * time.Second)
		live(t, s, a.name+" up", rate, 700)
		s.Path.Rate = rate / 10
		s.Run(5 * time.Second)
		live(t, s, a.name+" down", rate/10, 700)
	}
}

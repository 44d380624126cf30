package cdg

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/cong/reno"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// HyStart by delay: the round's minimum RTT after 8 samples above 9/8 of the least.
func TestHystartDelay(t *testing.T) {
	for _, c := range []struct {
		detect string
		rtt    time.Duration
		want   bool
	}{
		{"2", 112 * time.Millisecond, false},
		{"2", 113 * time.Millisecond, true},
		{"0", 200 * time.Millisecond, false},
		{"1", 200 * time.Millisecond, false},
	} {
		h := hand(t, plugins.Params{"hystart_detect": c.detect, "backoff_factor": "1"})
		h.Cwnd = 20 * mss
		h.Send(cong.KindOpen)
		h.RTT = 100 * time.Millisecond
		h.InFlight = 20 * mss
		for range 10 {
			h.Now = h.Now.Add(10 * time.Millisecond) // too far apart for a train
			h.Ack(h.Cwnd/10, cong.FlagRTTValid|cong.FlagSacked)
		}
		h.RTT = c.rtt
		for range 40 {
			h.Now = h.Now.Add(10 * time.Millisecond)
			h.Ack(h.Cwnd/20, cong.FlagRTTValid|cong.FlagSacked)
		}
		if got := h.Ssthresh != cong.InfiniteSsthresh; got != c.want {
			t.Errorf("detect %s, RTT %v: slow start left: %v", c.detect, c.rtt, got)
		}
	}
}

// HyStart by trains: acknowledgements less than 3 ms apart for more than half the least RTT; all of it if paced.
func TestHystartTrain(t *testing.T) {
	for _, c := range []struct {
		gap    time.Duration
		length time.Duration
		flags  uint16
		want   bool
	}{
		{time.Millisecond, 50 * time.Millisecond, 0, false},
		{time.Millisecond, 51 * time.Millisecond, 0, true},
		{2999 * time.Microsecond, 60 * time.Millisecond, 0, true},
		{3 * time.Millisecond, 90 * time.Millisecond, 0, false},
		{time.Millisecond, 101 * time.Millisecond, cong.FlagPaced, false},
		{time.Millisecond, 102 * time.Millisecond, cong.FlagPaced, true},
	} {
		var h hystart
		h.delayMin = 100_000
		now := plugins.Time(time.Second)
		got := h.longTrain(&cong.Sample{Now: now, Flags: c.flags}, true)
		for at := c.gap; at <= c.length; at += c.gap {
			got = h.longTrain(&cong.Sample{Now: now.Add(at), Flags: c.flags}, true)
		}
		if got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Queueing delay: well below that of a loss-based sender in a deep buffer, with the link kept busy (facts P13).
func TestKeepsQueueShort(t *testing.T) {
	p := congtest.Path{Rate: 2_500_000, RTT: 40 * time.Millisecond, Buffer: 1_000_000} // 10 BDP
	mean := func(m cong.Module) (queue, delivered uint64) {
		s := congtest.NewSim(p, m)
		s.Run(20 * time.Second)
		d := s.Delivered()
		for range 4000 {
			s.Run(10 * time.Millisecond)
			queue += s.Queue()
		}
		return queue / 4000, s.Delivered() - d
	}
	m, err := reno.New(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	lossBased, _ := mean(m)
	for seed := range uint64(3) {
		queue, delivered := mean(newModule(t, nil, seed))
		t.Logf("seed %d: mean queue %d bytes against %d, %d ‰ of the link", seed, queue, lossBased, delivered/100_000)
		if queue > lossBased/4 {
			t.Errorf("seed %d: a mean queue of %d bytes, a loss-based sender's is %d", seed, queue, lossBased)
		}
		if delivered < 85*1_000_000 {
			t.Errorf("seed %d: %d bytes of 100 000 000 delivered", seed, delivered)
		}
	}
}

// Slow start ends before the buffer overflows where the rise of delay shows in time: a buffer of 4 BDP.
func TestHystartBeforeLoss(t *testing.T) {
	p := congtest.Path{Rate: 12_500_000, RTT: 50 * time.Millisecond, Buffer: 2_500_000}
	for seed := range uint64(5) {
		s := congtest.NewSim(p, newModule(t, plugins.Params{"backoff_factor": "1"}, seed))
		s.Run(10 * time.Second)
		if d := s.Decision(); d.Ssthresh == cong.InfiniteSsthresh || s.Stats.Lost != 0 {
			t.Errorf("seed %d: ssthresh %d, %d lost", seed, d.Ssthresh, s.Stats.Lost)
		}
	}
}

// Slots keep their gradients apart, and a slot's next flow starts without any.
func TestRingsAreApart(t *testing.T) {
	m, _ := configure(nil, 0)
	for slot := range uint32(50) {
		r := m.ring(slot)
		if len(r) != 8 {
			t.Fatalf("slot %d: %d gradients", slot, len(r))
		}
		for i := range r {
			if r[i] != (gradient{}) {
				t.Fatalf("slot %d has gradients of another", slot)
			}
			r[i].min = int64(slot) + 1
		}
	}
	for slot := range uint32(50) {
		if r := m.ring(slot); r[0].min != int64(slot)+1 || r[7].min != int64(slot)+1 {
			t.Errorf("slot %d lost its gradients", slot)
		}
	}
	s := &state{}
	m.fresh(s, &cong.Sample{Flow: plugins.Flow{Slot: 7}}, &cong.Decision{})
	if r := m.ring(7); r[0].min != 0 || m.ring(8)[0].min != 9 {
		t.Error("fresh clears the wrong gradients")
	}
}

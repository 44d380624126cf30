package plugtest

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// few is the bound on retransmissions where nothing forces more: 1.2 times what was lost, and 3.
func few(dropped int) int { return dropped*12/10 + 3 }

func random(rate float64) func(*path, int, int) bool {
	return func(p *path, _, _ int) bool { return p.rng.Float64() < rate }
}

// first loses the first copies of packets that match.
func first(match func(pkt int) bool) func(*path, int, int) bool {
	return func(_ *path, pkt, copy int) bool { return copy == 1 && match(pkt) }
}

// held delays everything that would leave within a stall of the path.
func held(from, to time.Duration) func(*path, int, int) time.Duration {
	return func(p *path, _, _ int) time.Duration {
		at := time.Duration(p.now - 1e9)
		if at >= from && at < to {
			return to - at
		}
		return 0
	}
}

// behind delays every k-th packet by n packets' times.
func behind(k, n int) func(*path, int, int) time.Duration {
	return func(_ *path, pkt, copy int) time.Duration {
		if pkt%k == k-1 && copy == 1 {
			return time.Duration(n) * pktTime
		}
		return 0
	}
}

var scenarios = []scenario{
	{name: "no loss", packets: 3000, window: 100},
	{name: "0.1 % loss", packets: 10000, window: 100, loss: random(0.001), maxResent: few},
	{name: "1 % loss", packets: 5000, window: 100, loss: random(0.01), maxResent: few},
	{name: "5 % loss", packets: 5000, window: 100, loss: random(0.05), maxResent: few},
	{name: "10 % loss", packets: 5000, window: 100, loss: random(0.1), maxResent: few, maxTimeouts: 2},
	{name: "1 % loss, long queue", packets: 10000, window: 2000, loss: random(0.01), maxResent: few},
	{name: "burst of 10", packets: 2000, window: 100, loss: first(func(i int) bool { return i >= 500 && i < 510 }), maxResent: few},
	{name: "burst of half a window", packets: 2000, window: 100, loss: first(func(i int) bool { return i >= 500 && i < 550 }), maxResent: few},
	{name: "last packet", packets: 500, window: 100, loss: first(func(i int) bool { return i == 499 }), maxResent: few},
	{name: "last flight", packets: 500, window: 100, loss: first(func(i int) bool { return i >= 400 }), maxResent: few, maxTimeouts: 1},
	{name: "lost retransmission", packets: 1000, window: 100,
		loss: func(_ *path, pkt, copy int) bool { return pkt == 300 && copy <= 2 }, maxResent: few},
	// The last acknowledgements may be lost, too: then probes and a timeout ask for them.
	{name: "half of the acknowledgements", packets: 3000, window: 100, ackLoss: 0.5, maxResent: few, maxTimeouts: 2},
	{name: "1 % loss, half of the acknowledgements", packets: 3000, window: 100, loss: random(0.01), ackLoss: 0.5, maxResent: few, maxTimeouts: 2},
	{name: "duplication", packets: 3000, window: 100, dup: 0.1},
	{name: "reordering by 1", packets: 3000, window: 100, late: behind(10, 1)},
	{name: "reordering by 3", packets: 3000, window: 100, late: behind(10, 3), maxResent: func(int) int { return 3 }, undone: true},
	{name: "reordering by 30", packets: 3000, window: 100, late: behind(50, 30), maxResent: func(int) int { return 3 }, undone: true},
	{name: "stall of 1 s", packets: 2000, window: 100, late: held(100*time.Millisecond, 1100*time.Millisecond),
		maxResent: func(int) int { return 6 }, maxTimeouts: 3, undone: true},
	{name: "stall of 1 s, no timestamps", packets: 2000, window: 100, late: held(100*time.Millisecond, 1100*time.Millisecond), noTS: true,
		maxResent: func(int) int { return 6 }, maxTimeouts: 3, undone: true},
	{name: "1 % loss, no timestamps", packets: 5000, window: 100, loss: random(0.01), noTS: true, maxResent: few},
	{name: "no SACK", packets: 3000, window: 100, noSACK: true},
	{name: "1 % loss, no SACK", packets: 3000, window: 30, loss: random(0.01), noSACK: true,
		maxResent: func(dropped int) int { return 2*dropped + 3 }, maxTimeouts: 3},
	{name: "1 % loss, module replaced", packets: 5000, window: 200, loss: random(0.01), swap: 300, maxResent: few},
	{name: "10 % loss, module replaced", packets: 3000, window: 100, loss: random(0.1), swap: 97,
		maxResent: few, maxTimeouts: 4},
	{name: "module replaced, no SACK", packets: 2000, window: 50, noSACK: true, swap: 111},
}

// rtxScenarios lets the module repair real losses: everything arrives, with few retransmissions, and no reduction stands where nothing
// was lost.
func rtxScenarios(t *testing.T, newModule rtx.New) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			p := newPath(t, newModule, s)
			p.run()
			t.Logf("%v: %d dropped, %d resent, %d timeouts, %d recoveries, %d undone", time.Duration(p.now-1e9), p.dropped, p.resent, p.timeouts,
				p.enters, p.undos)
			most := 0
			if s.maxResent != nil {
				most = s.maxResent(p.dropped)
			}
			if p.resent > most {
				t.Errorf("%d packets were dropped and %d sent again, at most %d were meant", p.dropped, p.resent, most)
			}
			if p.timeouts > s.maxTimeouts {
				t.Errorf("%d timeouts, at most %d were meant", p.timeouts, s.maxTimeouts)
			}
			if s.undone && p.undos < p.enters {
				t.Errorf("%d reductions, but only %d undone, and nothing was lost", p.enters, p.undos)
			}
			if st := &p.st; st.Timer != rtx.TimerNone || st.TimerAt() != plugins.Never || st.InFlight|st.LostOut|st.SackedOut != 0 {
				t.Errorf("all is acknowledged, but the status is %+v", *st)
			}
			if want := uint64(s.packets * pktSize); p.st.Delivered != want {
				t.Errorf("%d bytes delivered, want %d", p.st.Delivered, want)
			}
		})
	}
}

package sim

import (
	"flag"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

var full = flag.Bool("full", false, "run the long cases of the congestion-control tests as well")

// The congestion controls against published figures and closed forms (facts, section 8).

// segment is a full frame of the scenarios: 1448 bytes of payload with timestamps, 1514 of frame.
const (
	segPayload = 1448
	segFrame   = 1514
)

// TestDCTCP: Alizadeh et al., SIGCOMM 2010, 3.3: with W = C·RTT + K segments alpha is √(2/W), and the queue of one flow stays between K
// and (W+1)·alpha/2 below it. Here acknowledgements come for two segments, so that the queue is a few frames off.
func TestDCTCP(t *testing.T) {
	t.Parallel()
	const k = 60
	r := run(t, load(t, "dctcp"), Options{})
	plausible(t, r)
	f, l := &r.Report.Flows[0], &r.Report.Links[0]
	least, most, sum, n := int64(math.MaxInt64), int64(0), int64(0), int64(0)
	for _, p := range r.Points {
		if p.TimeNS < 300e6 {
			continue
		}
		least, most = min(least, p.QueueBytes), max(most, p.QueueBytes)
		sum += p.QueueBytes
		n++
	}
	w := 1e9/8/1000/segFrame + k
	alpha := math.Sqrt(2 / w)
	low := k - (w+1)*alpha/2
	t.Logf("queue %d … %d frames, mean %d, want about %.0f … %d; %d marked, used to %d/1000", least/segFrame, most/segFrame, sum/n/segFrame, low, k, l.Marked, l.UtilPerMille)
	const burst = 4 // frames: two acknowledgements' worth
	if float64(least/segFrame) < low-burst || most/segFrame > k+burst {
		t.Errorf("queue from %d to %d frames", least/segFrame, most/segFrame)
	}
	if f.Dropped != 0 || f.Retransmits != 0 || l.Marked == 0 || l.UtilPerMille < 980 {
		t.Errorf("%d dropped, %d sent again, %d marked, used to %d/1000", f.Dropped, f.Retransmits, l.Marked, l.UtilPerMille)
	}
	golden(t, "dctcp", r)
}

// bulk is a scenario of n bulk flows over a link with the given keys of link.a_to_b, RTT and duration, sampled each 10 ms.
func bulk(t *testing.T, n int, cc Use, link string, rtt, duration time.Duration) *Scenario {
	t.Helper()
	text := fmt.Sprintf("duration = %q\nsample = \"10ms\"\n[link.both]\ndelay = %q\n[link.a_to_b]\n%s\n", duration.String(), (rtt / 2).String(), link)
	for range n {
		text += "[[flow]]\nkind = \"bulk\"\n"
	}
	s, err := Parse("cong.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Override(plugins.Cong, cc); err != nil {
		t.Fatal(err)
	}
	return s
}

// every lists each n-th frame, up to last.
func every(n, last uint64) (frames []uint64) {
	for f := n; f <= last; f += n {
		frames = append(frames, f)
	}
	return frames
}

// delivered returns the payload that flow i delivered between two times.
func delivered(r *Result, i int, from, to time.Duration) int64 {
	var a, b int64
	for _, p := range r.Points {
		if p.Flow != i {
			continue
		}
		if p.TimeNS <= int64(from) {
			a = p.DeliveredBytes
		}
		if p.TimeNS <= int64(to) {
			b = p.DeliveredBytes
		}
	}
	return b - a
}

// meanWindow is the average window in segments between two times, where nothing queues: what is delivered in a round trip.
func meanWindow(r *Result, rtt, from, to time.Duration) float64 {
	return float64(delivered(r, 0, from, to)) / segPayload * rtt.Seconds() / (to - from).Seconds()
}

func near(t *testing.T, what string, got, want, percent float64) {
	t.Helper()
	t.Logf("%s: %.4g, want %.4g ± %g %%", what, got, want, percent)
	if math.Abs(got-want) > want*percent/100 {
		t.Errorf("%s: %.4g, want %.4g ± %g %%", what, got, want, percent)
	}
}

// TestCongCubicCurve: after one loss the window follows W(t) = C(t-K)³ + W_max (RFC 9438, 4.2) to 2 % of W_max, for 1.5 K.
func TestCongCubicCurve(t *testing.T) {
	t.Parallel()
	const rtt = 100 * time.Millisecond
	s := bulk(t, 1, Use{Use: "cubic"}, "", rtt, 13*time.Second)
	s.Link.AtoB.Loss.Frames = []uint64{700}
	r := run(t, s, Options{})
	var start int64
	var wMax, k, worst float64
	for i, p := range r.Points {
		w := float64(p.CwndBytes) / segPayload
		switch {
		case start == 0 && i > 0 && p.Lost > 0 && p.State == "open":
			start, wMax = p.TimeNS, w/0.7
			k = math.Cbrt(wMax * 0.3 / 0.4)
		case start != 0:
			at := float64(p.TimeNS-start)/1e9 - k
			if at > k/2 {
				break
			}
			worst = max(worst, math.Abs(w-(0.4*at*at*at+wMax))/wMax)
		}
	}
	t.Logf("W_max %.0f, K %.2f s, at most %.2f %% off", wMax, k, worst*100)
	if wMax < 300 || worst > 0.02 {
		t.Errorf("W_max %.0f, K %.2f s, up to %.2f %% off", wMax, k, worst*100)
	}
}

// TestCongCubicResponse: the average window with every 1/p-th packet lost (RFC 9438, tables 1 and 2), to 20 %.
//
// At 1 %, and with 10 ms up to 0.1 ‰, the Reno-friendly region decides: √(alpha·(1+beta)/(2·(1-beta)·p)), which with alpha = 3(1-beta)/(1+beta)
// is Reno's √(3/2p), the table's 12. That is of a sawtooth alone. With what TestCongRenoResponse says of recovery, and a window from
// 0.7·W to W in 0.3·W/alpha round trips,
//
//	1/p = 0.7·W + 0.3·W/alpha·0.85·W + W/2   in   1 + 0.3·W/alpha + 1/2 round trips
//
// an average of 11.1 at 1 % is right, where W is 13, of 37.6 at 0.1 %, and of 121 at 0.01 %. That is held to 10 %.
func TestCongCubicResponse(t *testing.T) {
	for _, c := range []struct {
		p        float64
		rtt      time.Duration
		want     float64
		friendly bool // decides
		long     bool
	}{
		{1e-2, 100 * time.Millisecond, 12, true, false}, {1e-3, 100 * time.Millisecond, 38, false, false}, {1e-4, 100 * time.Millisecond, 187, false, false},
		{1e-5, 100 * time.Millisecond, 1054, false, true}, {1e-6, 100 * time.Millisecond, 5926, false, true},
		{1e-2, 10 * time.Millisecond, 12, true, false}, {1e-3, 10 * time.Millisecond, 38, true, false}, {1e-4, 10 * time.Millisecond, 120, true, false},
		{1e-5, 10 * time.Millisecond, 379, false, true},
	} {
		t.Run(fmt.Sprintf("%g/%v", c.p, c.rtt), func(t *testing.T) {
			got := response(t, "cubic", c.p, c.rtt, c.want, 20, c.long)
			if c.friendly {
				const growth = 0.3 * 17 / 9 // round trips per segment of W
				peak := (-1.2 + math.Sqrt(1.2*1.2+4*0.85*growth/c.p)) / (2 * 0.85 * growth)
				near(t, "average window, the model with recovery", got, 1/c.p/(1.5+growth*peak), 10)
			}
		})
	}
}

// TestCongRenoResponse: the average window with periodic loss, with bytes counted (RFC 3465), to 10 %. Mathis et al. 1997 have
// C = window·√p = √(3/2) = 1.22 for a sawtooth between W/2 and W alone: W²·3/8 segments in W/2 round trips. Where W is small, two things
// that they leave out count: a round trip of recovery, in which W/2 segments leave (RFC 9937), and the rest of the round trip in which
// the loss is found, half a round trip and W/2 segments on average. Together
//
//	1/p = W/2 + Σ(W/2 … W-1) + W/2 = 3W²/8 + 3W/4   in   1 + W/2 + 1/2 round trips
//
// which for large W is Mathis' formula, is 3.5 % below it at 0.1 %, and gives C = 1.09 at 1 %, where W is 15. Both are held, Mathis'
// where the other is within half of the tolerance of it. What is measured at 1 % is 9 % below the model. No acknowledgement is left out of the
// window's growth, in a trace; 4 % are whole segments (a period of 100 of them turns at 15, and begins with 7), 3 % pacing at 1.2
// windows per round trip, which keeps what the window allows back for a millisecond or two, and the rest the receiver, which
// waits for every second segment.
func TestCongRenoResponse(t *testing.T) {
	for _, p := range []float64{1e-2, 3e-3, 1e-3, 1e-4, 1e-5} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			peak := (-0.75 + math.Sqrt(0.75*0.75+1.5/p)) / 0.75
			exact, mathis := 1/p/(peak/2+1.5), math.Sqrt(1.5/p)
			got := response(t, "reno", p, 20*time.Millisecond, exact, 10, p < 1e-4)
			t.Logf("C = %.3f, the model with recovery has %.3f", got*math.Sqrt(p), exact*math.Sqrt(p))
			if exact > 0.95*mathis {
				near(t, "average window, Mathis", got, mathis, 10)
			}
		})
	}
}

// response compares the average window over 12 periods of loss with want, after 4 in which the start is forgotten. Periods of 100 segments
// are few round trips long, which do not end with what is measured: it takes 60 of them for the rest to be less than a percent.
func response(t *testing.T, cc string, p float64, rtt time.Duration, want, percent float64, long bool) float64 {
	if long && !*full {
		t.Skip("long: make test-cong runs it")
	}
	t.Parallel()
	before, measured := time.Duration(4), time.Duration(12)
	if p > 5e-3 {
		measured = 60
	}
	period := time.Duration(float64(rtt) / p / want)
	s := bulk(t, 1, Use{Use: cc}, "", rtt, (before+measured)*period)
	s.Link.AtoB.Loss.Frames = every(uint64(1/p), uint64(2*float64(before+measured)/p))
	r := run(t, s, Options{})
	got := meanWindow(r, rtt, before*period, (before+measured)*period)
	near(t, "average window", got, want, percent)
	return got
}

// TestCongRenoPFTK: with independent loss, the throughput is what RFC 5348's equation says (b = 1, t_RTO = 4R), to 25 %.
func TestCongRenoPFTK(t *testing.T) {
	const rtt = 0.1
	for _, p := range []float64{0.001, 0.01, 0.03} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			const from, to, seeds = 20 * time.Second, 140 * time.Second, 3
			got := 0.0
			for seed := range uint64(seeds) {
				s := bulk(t, 1, Use{Use: "reno"}, fmt.Sprintf("loss.random = \"%g%%\"", p*100), 100*time.Millisecond, to)
				s.Seed = seed + 1
				got += float64(delivered(run(t, s, Options{}), 0, from, to)) / (to - from).Seconds() / seeds
			}
			want := segPayload / (rtt*math.Sqrt(2*p/3) + 4*rtt*3*math.Sqrt(3*p/8)*p*(1+32*p*p))
			near(t, "bytes/s", got, want, 25)
		})
	}
}

// TestCongHyStart: with a buffer of one BDP slow start is conservative before the sender sees the first loss, so that the window grows
// by a quarter of what is acknowledged (RFC 9406, 4.2), and at most half as much is sent again as without HyStart++ (facts P15). The
// drop itself is earlier: the queue fills within one round trip, and HyStart++ goes by the least RTT of each.
func TestCongHyStart(t *testing.T) {
	t.Parallel()
	again, growth := map[string]int64{}, map[string]float64{}
	for _, hystart := range []string{"true", "false"} {
		s := bulk(t, 1, Use{Use: "cubic", Params: map[string]string{"hystart": hystart}}, "rate = \"100Mbit/s\"\nqueue = \"1250kB\"",
			100*time.Millisecond, 4*time.Second)
		r := run(t, s, Options{})
		again[hystart] = r.Report.Flows[0].Retransmits
		i := 0
		for r.Points[i].Lost == 0 {
			i++
		}
		loss := r.Points[i-1].TimeNS
		var from, to int64 // windows of 50 ms before, and then
		for _, p := range r.Points {
			if p.TimeNS <= loss-50e6 {
				from = p.CwndBytes
			}
			if p.TimeNS <= loss {
				to = p.CwndBytes
			}
		}
		growth[hystart] = float64(to-from) / (0.05 * 100e6 / 8 * segPayload / segFrame) // the link is full
	}
	t.Logf("sent again and growth per byte acknowledged before the first loss: %v, %.2v", again, growth)
	if growth["true"] > 0.3 || growth["false"] < 0.9 {
		t.Errorf("before the first loss the window grew by %.2v per byte acknowledged", growth)
	}
	if again["false"] == 0 || again["true"] > again["false"]/2 {
		t.Errorf("%v sent again", again)
	}
}

// TestCongRandomLoss: the published picture (facts P1): 100 Mbit/s, 100 ms. Payload after 10 s as a share of the link's, less what is
// lost: BBR 95 % up to 1 % loss and 90 % up to 5 %; CUBIC below 10 % of the link at 1 %. With -full the
// picture is drawn: testdata/random-loss.svg.
//
// BBRv3 cannot have 95 % at 1 %: "the steady-state (non-bandwidth-probing) BBR response to a … round trip with X% packet loss is to reduce
// the sending rate by X%", to (1-p)^N after N round trips, until REFILL and UP restore it (draft-ietf-ccwg-bbr-06, 5.3.3.8.3). With 100 ms
// it probes each 20 to 30 round trips, of which UP and REFILL take 5 at the full rate, and PROBE_RTT costs 2 % (5.3.4.1): at the best
// (5 + Σ 0.99^i, i < 20)/25·0.98 = 0.91. The pacing margin counts as well, since what is measured was sent 1 % below the estimate: at
// the worst (5 + Σ 0.98^i, i < 30)/35·0.98 = 0.78. Above loss_thresh (2 %) each probe says
// that too much is in flight, whatever the amount: inflight_longterm falls by 30 % a cycle.
func TestCongRandomLoss(t *testing.T) {
	const capacity = 100e6 / 8 * segPayload / segFrame
	type bound struct {
		percent     float64
		least, most float64 // of capacity·(1-p)
		long        bool
	}
	shares := map[string][]lossPoint{}
	t.Run("runs", func(t *testing.T) {
		for cc, list := range map[string][]bound{
			"bbr": {{0, 0.95, 1, true}, {0.1, 0.95, 1, true}, {1, 0.95, 1, false}, {2, 0.90, 1, true}, {5, 0.90, 1, false}, {10, 0, 1, true},
				{15, 0, 1, true}, {20, 0, 1, true}},
			"cubic": {{0, 0.95, 1.01, true}, {0.1, 0, 0.5, false}, {1, 0, 0.10, false}, {2, 0, 0.10, true}, {5, 0, 0.05, false}, {10, 0, 0.05, true},
				{15, 0, 0.05, true}, {20, 0, 0.05, true}},
			"bbr3": {{0, 0.94, 1, true}, {0.1, 0.85, 1, true}, {1, 0.78, 0.92, false}, {2, 0, 0.95, true}, {5, 0, 0.2, true}, {10, 0, 0.1, true},
				{15, 0, 0.1, true}, {20, 0, 0.1, true}},
		} {
			shares[cc] = make([]lossPoint, len(list))
			for i, c := range list {
				at := &shares[cc][i]
				t.Run(fmt.Sprintf("%s/%g%%", cc, c.percent), func(t *testing.T) {
					if c.long && !*full {
						t.Skip("long: make test-cong runs it")
					}
					t.Parallel()
					measured := 10 * time.Second
					if c.percent >= 10 {
						measured = 50 * time.Second // as published
					}
					s := bulk(t, 1, Use{Use: cc}, fmt.Sprintf("rate = \"100Mbit/s\"\nqueue = \"1250kB\"\nloss.random = \"%g%%\"", c.percent),
						100*time.Millisecond, 10*time.Second+measured)
					rate := float64(delivered(run(t, s, Options{}), 0, 10*time.Second, 10*time.Second+measured)) / measured.Seconds()
					*at = lossPoint{c.percent, rate * 8 / 1e6}
					got := rate / (capacity * (1 - c.percent/100))
					t.Logf("%s, %g %% lost: %.1f %% of the capacity", cc, c.percent, got*100)
					if got < c.least || got > c.most {
						t.Errorf("%.1f %% of the capacity, want %g … %g %%", got*100, c.least*100, c.most*100)
					}
				})
			}
		}
	})
	if *full && !t.Failed() {
		goldenFile(t, "random-loss.svg", lossPlot(t, shares))
	}
}

// TestCongStandingQueue: with a buffer of 10 BDP, BBR's queue is at most 1 BDP on average, and CUBIC fills it.
func TestCongStandingQueue(t *testing.T) {
	const bdp = 250_000
	for _, cc := range []string{"bbr", "bbr3", "cubic"} {
		t.Run(cc, func(t *testing.T) {
			t.Parallel()
			s := bulk(t, 1, Use{Use: cc}, "rate = \"100Mbit/s\"\nqueue = \"2500kB\"", 20*time.Millisecond, 15*time.Second)
			sum, n, most := int64(0), int64(0), int64(0)
			for _, p := range run(t, s, Options{}).Points {
				if p.TimeNS > 3e9 {
					sum += p.QueueBytes
					n++
					most = max(most, p.QueueBytes)
				}
			}
			t.Logf("%s: queue of %.2f BDP on average, %.2f at most", cc, float64(sum)/float64(n)/bdp, float64(most)/bdp)
			if cc == "cubic" && most < 95*bdp/10 || cc != "cubic" && sum/n > bdp {
				t.Errorf("queue of %d bytes on average, %d at most", sum/n, most)
			}
		})
	}
}

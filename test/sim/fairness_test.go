package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// kinds are the algorithms that share links. DCTCP needs a queue that marks, and is for data centres of its own (RFC 8257, 1).
var kinds = []string{"bbr", "bbr3", "cdg", "cubic", "reno"}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(xs []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// rates are what the flows delivered between two times, in bits/s.
func rates(r *Result, from, to time.Duration) (xs []float64) {
	for i := range r.Report.Flows {
		xs = append(xs, float64(delivered(r, i, from, to))*8/(to-from).Seconds())
	}
	return xs
}

// TestCongFairness: flows of a kind that start together share the link: Jain's index is 0.95 after 60 s. Of the BDP each of 2 and 10 flows
// has 33 segments, each of 50 has 25, each of 100 has 12. The buffer is one BDP; for the two BBRs it is two, since several flows of BBR keep up to 1.5 BDP
// queued (facts P7) and live in constant loss in less.
//
// Ten flows of version 1 have 0.39 to 0.44 with half a BDP, 0.82 to 0.98 with one, by seed, and 0.997 and more with 1.5, 2 and 4, and that is the
// algorithm: each keeps 2·BDP, six segments and what acknowledgements run ahead in flight, ten of them 2.6 BDP where 2 fit, so that
// an eighth is lost, and 19.5 % in four rounds is a policer's (with one BDP and without lt_bw 0.98 to 0.99, without extra_acked 0.99). Linux' own, ten flows over the same path, have 0.63 and 0.87 (TestShares of test/versus), ours 0.98 to 0.99 beside them.
//
// 50 flows of version 3, of 25 segments each, are at 0.98, but 100 of 12 are at 0.82 to 0.95, by seed and tenths of a percent of the rate, for the sake
// of a few flows: in half of the runs one, which has 5 times its share after 60 s, beside the others' 0.8 to 1.3. They are the last in STARTUP: where three rounds
// without a quarter of growth end that, some are later than the rest, and what those give up while they drain, at half of their
// rate (DRAIN's gain, draft 5.3.2), is growth to them; after 3 s one has 15 shares. That DRAIN's pace is the cause shows where drain_gain is 100: with
// all else the same 0.97. From there shares converge by a quarter in 30 s: in two BDP nothing is lost, so that no bound is found, and
// what draws them together is the room for aggregated acknowledgements and two segments in UP, against windows that are all in proportion to
// a maximum over two cycles of 2 to 3 s. Published measurements have the same, quick convergence of flows that start as one, slow of others
// (facts P9). Version 1 adds six segments to every window, and has 0.998. With four BDP 0.88; with one BDP, 100 of version 3
// have 0.77 (ten: 0.92 to 0.97): where a probe is of 20 segments, one that is lost is more than 2 %, and ends it.
func TestCongFairness(t *testing.T) {
	for _, cc := range kinds {
		for _, c := range []struct {
			flows, mbit int
			rtt         time.Duration
			params      map[string]string // of version 3 alone
		}{{flows: 2, mbit: 20, rtt: 40 * time.Millisecond}, {flows: 10, mbit: 100, rtt: 40 * time.Millisecond}, {flows: 100, mbit: 150, rtt: 100 * time.Millisecond},
			{flows: 50, mbit: 150, rtt: 100 * time.Millisecond, params: map[string]string{}},
			{flows: 100, mbit: 150, rtt: 100 * time.Millisecond, params: map[string]string{"drain_gain": "100"}}} {
			if c.params != nil && cc != "bbr3" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d%v", cc, c.flows, strings.TrimPrefix(fmt.Sprint(c.params), "map")), func(t *testing.T) {
				if c.flows > 2 && !*full {
					t.Skip("long: make test-cong runs it")
				}
				t.Parallel()
				from, to := 60*time.Second, 90*time.Second
				if c.flows == 2 {
					to *= 2 // which of two loses alone decides some seconds, and in 30 of them may be the same one
				}
				buffer := c.mbit * int(c.rtt/time.Millisecond) / 8 // kB
				if strings.HasPrefix(cc, "bbr") {
					buffer *= 2
				}
				s := bulk(t, c.flows, Use{Use: cc, Params: c.params}, fmt.Sprintf("rate = \"%dMbit/s\"\nqueue = \"%dkB\"", c.mbit, buffer), c.rtt, to)
				s.Sample *= 50
				xs := rates(run(t, s, Options{}), from, to)
				sum := 0.0
				for _, x := range xs {
					sum += x
				}
				j := jain(xs)
				t.Logf("%s, %d flows: Jain %.4f, the link is used to %.1f %%", cc, c.flows, j, sum/float64(c.mbit)/1e4*segFrame/segPayload)
				least := 0.95
				if cc == "bbr3" && c.flows == 100 && c.params == nil {
					least = 0.75
				}
				if j < least {
					t.Errorf("Jain %.4f, want %.2f", j, least)
				}
			})
		}
	}
}

// TestCongShares: who gets how much of 20 Mbit/s with a buffer of one BDP (40 ms), in a table that is committed: a flow that joins 20 s
// late another of its kind, flows with 40 and 120 ms, and each two kinds. No flow is starved: it keeps a tenth of its half, but for
// those pairs that are known to (facts P7, P9: BBR leaves loss-based flows little where buffers are shallow).
func TestCongShares(t *testing.T) {
	if !*full {
		t.Skip("long: make test-cong runs it")
	}
	const link, rtt, from, to = "rate = \"20Mbit/s\"\nqueue = \"100kB\"", 40 * time.Millisecond, 60 * time.Second, 120 * time.Second
	scenario := func(a, b string) *Scenario {
		s := bulk(t, 2, Use{Use: a}, link, rtt, to)
		s.Flows[1].Cong, s.Flows[1].own[plugins.Cong] = Use{Use: b}, true
		s.Sample *= 50
		return s
	}
	late, far, mixed := make([]string, len(kinds)), make([]string, len(kinds)), make([][]string, len(kinds))
	t.Run("runs", func(t *testing.T) {
		cell := func(name string, s *Scenario, into *string, least float64) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := run(t, s, Options{})
				xs := rates(r, from, to)
				*into = fmt.Sprintf("%.1f : %.1f", xs[0]/1e6, xs[1]/1e6)
				t.Logf("%s Mbit/s, Jain %.3f", *into, jain(xs))
				if min(xs[0], xs[1]) < least*10e6 {
					t.Errorf("%s Mbit/s", *into)
				}
				for i := range xs {
					if s.Flows[1].Delay == 0 {
						break
					}
					if got, want := time.Duration(r.Report.Flows[i].RTT.MinNS), rtt+2*s.Flows[i].Delay.D(); got < want || got > want+10*time.Millisecond {
						t.Errorf("flow %d: a minimum RTT of %v, want %v", i+1, got, want)
					}
				}
			})
		}
		for i, a := range kinds {
			s := scenario(a, a)
			s.Flows[1].Start = s.Duration / 6
			cell(a+" late", s, &late[i], 0.2)
			s = scenario(a, a)
			s.Flows[1].Delay = s.Duration / 3000 // 40 ms each way
			cell(a+" far", s, &far[i], 0.1)
			mixed[i] = make([]string, len(kinds))
			for j, b := range kinds {
				cell(a+" "+b, scenario(a, b), &mixed[i][j], 0.05)
			}
		}
	})
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "Mbit/s of two flows over 20 Mbit/s, 40 ms, a buffer of one BDP, from 60 to 120 s\n\nkind\tjoined 20 s later\t40 ms : 120 ms")
	for i, a := range kinds {
		fmt.Fprintf(w, "%s\t%s\t%s\n", a, late[i], far[i])
	}
	fmt.Fprint(w, "\nrow : column")
	for _, b := range kinds {
		fmt.Fprint(w, "\t", b)
	}
	for i, a := range kinds {
		fmt.Fprint(w, "\n", a)
		for j := range kinds {
			fmt.Fprint(w, "\t", mixed[i][j])
		}
	}
	fmt.Fprintln(w)
	w.Flush()
	t.Logf("\n%s", text.String())
	goldenFile(t, "shares.txt", text.Bytes())
}

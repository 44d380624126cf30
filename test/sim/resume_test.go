package sim

import (
	"testing"
	"time"
)

// TestCongResume: each algorithm takes over a live flow of CUBIC: after 3 round trips it is at 80 % of the rate that the flow had, without a
// timeout and without a burst: in the first of them no more is in flight than the window of the moment of the swap and what has arrived since.
func TestCongResume(t *testing.T) {
	for _, cc := range []string{"bbr", "bbr3", "cdg", "cubic", "dctcp", "reno"} {
		t.Run(cc, func(t *testing.T) {
			t.Parallel()
			const at, rtt, second = 5 * time.Second, 40 * time.Millisecond, time.Second
			link := "rate = \"20Mbit/s\"\nqueue = \"100kB\"\n[[event]]\nat = \"5s\"\nswap = \"cong " + cc + "\"\nparams = {}\n"
			s := bulk(t, 1, Use{Use: "cubic"}, link, rtt, at+2*second)
			s.Sample /= 10 // each millisecond
			r := run(t, s, Options{})
			var window, flight, then int64
			slowest := rtt // with the queue that CUBIC left
			for _, p := range r.Points {
				switch when := time.Duration(p.TimeNS); {
				case when <= at:
					window, slowest, then = p.CwndBytes, time.Duration(p.SRTTNS), p.DeliveredBytes
				case when <= at+slowest:
					flight = max(flight, p.InFlightBytes-(p.DeliveredBytes-then))
				}
			}
			before := delivered(r, 0, at-second, at)
			after := delivered(r, 0, at+3*slowest, at+3*slowest+second)
			f := &r.Report.Flows[0]
			t.Logf("%d bytes/s before, %d after; window %d, in flight then up to %d", before, after, window, flight)
			if f.Cong != cc || after < before*8/10 || flight > window+segPayload || f.Timeouts != 0 {
				t.Errorf("%s: %d bytes/s before, %d after; window %d, in flight then up to %d; %d timeouts", f.Cong, before, after, window, flight, f.Timeouts)
			}
		})
	}
}

package congtest_test

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/bbr"
	"github.com/fastpath-tcp/fastpath/cong/bbr3"
	"github.com/fastpath-tcp/fastpath/cong/cdg"
	"github.com/fastpath-tcp/fastpath/cong/congtest"
	"github.com/fastpath-tcp/fastpath/cong/cubic"
	"github.com/fastpath-tcp/fastpath/cong/dctcp"
	"github.com/fastpath-tcp/fastpath/cong/reno"
)

var algorithms = []struct {
	name string
	new  cong.New
}{{"bbr", bbr.New}, {"bbr3", bbr3.New}, {"cdg", cdg.New}, {"cubic", cubic.New}, {"dctcp", dctcp.New}, {"reno", reno.New}}

// Any algorithm takes over from any other: within 3 round trips the flow runs at 80 % of the rate that it had under the
// first (20 Mbit/s, 20 ms, 2 BDP of buffer; after slow start, so that this is the rate that it would have had).
func TestSwapMatrix(t *testing.T) {
	p := congtest.Path{Rate: 2_500_000, RTT: 20 * time.Millisecond, Buffer: 100_000}
	for _, from := range algorithms {
		for _, to := range algorithms {
			t.Run(from.name+"-"+to.name, func(t *testing.T) {
				var with, without uint64
				for i := range 4 {
					a, _ := from.new(nil, 1)
					b, _ := to.new(nil, 2)
					s := congtest.NewSim(p, a)
					s.Run(5*time.Second + time.Duration(i)*313*time.Millisecond)
					d := s.Delivered()
					s.Run(time.Second)
					without += s.Delivered() - d
					congtest.TakeOver(t, s, b)
					d = s.Delivered()
					s.Run(time.Second)
					with += s.Delivered() - d
				}
				t.Logf("%d bytes/s before, %d after", without/4, with/4)
				if with < without*8/10 {
					t.Errorf("%d bytes/s before, %d after", without/4, with/4)
				}
			})
		}
	}
}

// CDG must not take the queue that BBR's probing made for its own: whatever it draws, 3 round trips after the take-over it is
// at 80 % of the rate, in whichever phase BBR was.
func TestSwapToDelayBased(t *testing.T) {
	p := congtest.Path{Rate: 2_500_000, RTT: 100 * time.Millisecond, Buffer: 250_000}
	for seed := range uint64(12) {
		a, _ := bbr.New(nil, 1)
		b, _ := cdg.New(nil, seed)
		s := congtest.NewSim(p, a)
		s.Run(30*p.RTT + time.Duration(seed)*p.RTT*313/1000)
		congtest.TakeOver(t, s, b)
		d := s.Delivered()
		s.Run(p.RTT)
		if got := s.Delivered() - d; got < 250_000*8/10 {
			t.Errorf("seed %d: %d bytes in a round trip of 250 000", seed, got)
		}
	}
}

// The same in slow start: a flow that is still looking for its rate goes on doing so.
func TestSwapInSlowStart(t *testing.T) {
	p := congtest.Path{Rate: 125_000_000, RTT: 50 * time.Millisecond, Buffer: 6_250_000}
	for _, from := range algorithms {
		if from.name == "cdg" {
			continue // may leave slow start at any time
		}
		for _, to := range algorithms {
			t.Run(from.name+"-"+to.name, func(t *testing.T) {
				a, _ := from.new(nil, 1)
				a2, _ := from.new(nil, 1)
				b, _ := to.new(nil, 3)
				s, ref := congtest.NewSim(p, a), congtest.NewSim(p, a2)
				s.Run(170 * time.Millisecond)
				ref.Run(170 * time.Millisecond)
				congtest.TakeOver(t, s, b)
				ref.Run(3 * p.RTT)
				d, r := s.Delivered(), ref.Delivered()
				s.Run(p.RTT)
				ref.Run(p.RTT)
				d, r = s.Delivered()-d, ref.Delivered()-r
				t.Logf("%d bytes in a round trip with, %d without a take-over", d, r)
				if d < r*8/10 {
					t.Errorf("%d bytes in a round trip with, %d without a take-over", d, r)
				}
			})
		}
	}
}

package cubic

import (
	"math/bits"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Time on the curve is counted in ticks of 2^-12 s, so that its third power fits into 63 bits for 512 s on either side.
const (
	tickBits       = 12
	ticksPerSecond = 1 << tickBits
	maxTicks       = 1<<21 - 1
)

// ticks converts a duration, rounded down. 2^12/10^9 as a fraction of 2^64 is 75557863725914.3.
func ticks(d time.Duration) uint64 {
	hi, _ := bits.Mul64(uint64(max(d, 0)), 75557863725915)
	return hi
}

// curve is one flow's W_cubic(t) = C(t-K)³ + W_max (RFC 9438, 4.2) and its Reno-friendly estimate. Windows are bytes.
type curve struct {
	wMax      uint32
	cwndPrior uint32 // the window before the last reduction
	wEst      uint32 // what Reno would have by now
	running   bool   // in congestion avoidance, epoch and k are valid
	k         uint64 // ticks
	epoch     plugins.Time
	last      plugins.Time // last sample
	acc       uint64       // growth below one byte, times the window
	accEst    uint64       // growth of wEst below one byte, times the window and alpha's denominator
}

// pause takes the time since the last sample out of the epoch: the window was not used.
func (c *curve) pause(now plugins.Time) {
	if c.running {
		c.epoch += plugins.Time(max(now.Sub(c.last), 0))
	}
	c.last = now
}

// start begins a stage of congestion avoidance with a window of cwnd (RFC 9438, 4.2; 4.8 and 4.10 for wMax = 0).
func (m *module) start(c *curve, now plugins.Time, cwnd, mss uint32) {
	c.running = true
	c.epoch, c.wEst = now, cwnd
	c.acc, c.accEst, c.k = 0, 0, 0
	if c.wMax <= cwnd {
		c.wMax = cwnd
		c.cwndPrior = max(c.cwndPrior, cwnd)
		return
	}
	// K = cbrt((W_max-cwnd)/C) seconds. In ticks K³ is 2^36 times that, and C is m.curve/2^20.
	num, den := uint64(c.wMax-cwnd)<<20, uint64(mss)*m.curve
	c.k = maxTicks
	if q := num / den; q < 1<<27 {
		c.k = min(cbrt(q<<36+cong.MulDiv(num%den, 1<<36, den)), maxTicks)
	}
}

// at returns W_cubic at t ticks of the epoch.
func (m *module) at(c *curve, t uint64, mss uint32) uint64 {
	d := max(t, c.k) - min(t, c.k)
	d = min(d, maxTicks)
	// C·d³ in bytes: C has 20 fractional bits, d³ three times tickBits.
	hi, lo := bits.Mul64(d*d*d, m.curve*uint64(mss))
	delta := hi<<(64-20-3*tickBits) | lo>>(20+3*tickBits)
	if t >= c.k {
		return uint64(c.wMax) + delta
	}
	return max(uint64(c.wMax), delta) - delta
}

// avoid is congestion avoidance (RFC 9438, 4.2 to 4.5) for acked bytes.
func (m *module) avoid(s *state, in *cong.Sample, out *cong.Decision, acked, mss uint32) {
	c := &s.curve
	if !c.running {
		m.start(c, in.Now, out.Cwnd, mss)
	}
	t := ticks(in.Now.Sub(c.epoch))
	if m.friendly {
		m.estimate(c, out.Cwnd, acked, mss)
		if m.at(c, t, mss) < uint64(c.wEst) {
			out.Cwnd = max(out.Cwnd, c.wEst) // Reno-friendly region
			c.acc = 0
			return
		}
	}
	// RFC 9438, 4.4: where the curve will be a round trip from now, but at most half as much again.
	w := uint64(out.Cwnd)
	target := min(max(m.at(c, t+ticks(in.SRTT), mss), w), w+w/2)
	c.acc += (target - w) * uint64(min(acked, window.Max))
	if c.acc >= w {
		inc := c.acc / w
		c.acc -= inc * w
		out.Cwnd = uint32(min(w+inc, window.Max))
	}
}

// estimate follows Reno's window: alpha segments per window acknowledged, one from the prior window on (RFC 9438, 4.3).
func (m *module) estimate(c *curve, cwnd, acked, mss uint32) {
	alpha := m.alphaNum
	if c.wEst >= c.cwndPrior {
		alpha = m.alphaDen
	}
	c.accEst += uint64(min(acked, window.Max)) * alpha * uint64(mss)
	if full := uint64(cwnd) * m.alphaDen; c.accEst >= full {
		n := c.accEst / full
		c.accEst -= n * full
		c.wEst = uint32(min(uint64(c.wEst)+n, window.Max))
	}
}

// cbrt is the cube root, rounded down, one bit of the result per turn.
func cbrt(x uint64) uint64 {
	var r uint64
	for s := 63; s >= 0; s -= 3 {
		r *= 2
		b := 3*r*(r+1) + 1
		if x>>s >= b {
			x -= b << s
			r++
		}
	}
	return r
}

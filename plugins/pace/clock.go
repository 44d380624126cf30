package pace

import (
	"math/bits"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Clock is a flow's virtual pacing timer (F7): the time at which its next bytes may leave. It moves only when something is sent, or when
// the rate changes, and is apart from the clock that tells the present. The zero value is a flow that has sent nothing. 16 bytes.
type Clock struct {
	wstamp plugins.Time // earliest departure of the next piece
	frac   uint32       // part of a nanosecond beyond wstamp, in 1/2^32: what rounding left over does not become a rate error
	segs   uint32       // data segments sent, counted up to the line's FreeSegs
}

// latest bounds the virtual timer, so that sums stay within int64: 146 years.
const latest = plugins.Never / 2

// Depart is the earliest departure of the flow's next piece: max(virtual timer, now).
func (c *Clock) Depart(_ *Line, now plugins.Time) plugins.Time { return max(c.wstamp, now) }

// Refused reports whether the next departure lies further ahead of now than the line's horizon.
func (c *Clock) Refused(l *Line, now plugins.Time) bool {
	return c.wstamp-now > plugins.Time(l.Horizon) && c.wstamp > now
}

// Sent records that a piece of so many payload bytes is sent and returns its departure time. The timer moves to the departure plus the
// piece's duration at the line's rate; lateness, that is how far the present is ahead of the timer, is forgiven up to the line's
// credit fraction of that duration (F8).
func (c *Clock) Sent(l *Line, now plugins.Time, bytes int) plugins.Time {
	depart := max(c.wstamp, now)
	if c.segs < l.FreeSegs {
		c.segs++ // as in Linux, the last of the free segments is the first whose duration counts
	}
	if c.segs < l.FreeSegs || l.Rate == plugins.Unlimited || l.Rate == 0 || bytes <= 0 {
		if depart > c.wstamp {
			c.wstamp, c.frac = depart, 0
		}
		return depart
	}
	whole, frac := duration(uint64(bytes), l.Rate)
	base := depart
	if late := depart - c.wstamp; late > 0 {
		share, shareFrac := scale(whole, frac, min(l.Credit, CreditOne))
		if share >= late || share == late-1 && uint64(shareFrac)+uint64(c.frac) >= 1<<32 {
			base = c.wstamp // all of the lateness is forgiven: the timer goes on as if the piece had left in time
		} else {
			whole, frac = subtract(whole, frac, share, shareFrac)
			c.frac = 0
		}
	}
	f := uint64(c.frac) + uint64(frac)
	c.frac = uint32(f)
	c.wstamp = min(base+whole+plugins.Time(f>>32), latest)
	return depart
}

// Rerate tells the clock that the rate is new bytes per second and no longer old, neither 0: bytes that have been sent ahead of the line stay
// owed, and take their time at the new rate from now on.
func (c *Clock) Rerate(old, rate uint64, now plugins.Time) {
	ahead := c.wstamp - now
	if ahead < 0 || rate == old || old == plugins.Unlimited {
		return
	}
	if rate == plugins.Unlimited {
		c.wstamp, c.frac = now, 0
		return
	}
	hi, lo := bits.Mul64(uint64(ahead), old)
	if hi >= rate {
		c.wstamp, c.frac = latest, 0
		return
	}
	q, r := bits.Div64(hi, lo, rate)
	rest, _ := bits.Div64(r>>32, r<<32, rate) // r < rate, so that this is below 2^32
	part := uint64(1<<64 - 1)
	if hi, lo = bits.Mul64(uint64(c.frac), old); hi < rate {
		part, _ = bits.Div64(hi, lo, rate)
	}
	rest += part & (1<<32 - 1)
	q, carry := bits.Add64(q, part>>32+rest>>32, 0)
	if carry != 0 || q >= uint64(latest) {
		c.wstamp, c.frac = latest, 0
		return
	}
	c.wstamp, c.frac = min(now+plugins.Time(q), latest), uint32(rest)
}

// duration is how long bytes take at rate bytes per second: whole nanoseconds, at most latest, and 1/2^32 of a nanosecond.
func duration(bytes, rate uint64) (whole plugins.Time, frac uint32) {
	hi, lo := bits.Mul64(bytes, uint64(time.Second))
	if hi >= rate { // beyond 2^64 ns
		return latest, 0
	}
	q, r := bits.Div64(hi, lo, rate)
	if q >= uint64(latest) {
		return latest, 0
	}
	f, _ := bits.Div64(r>>32, r<<32, rate) // r < rate, so that this is below 2^32
	return plugins.Time(q), uint32(f)
}

// scale multiplies whole + frac/2^32 by credit/CreditOne.
func scale(whole plugins.Time, frac, credit uint32) (plugins.Time, uint32) {
	hi, lo := bits.Mul64(uint64(whole), uint64(credit)) // below 2^79
	rest := lo % CreditOne << 16                        // what the division leaves, in 1/2^32
	f := rest + uint64(frac)*uint64(credit)/CreditOne
	return plugins.Time(hi<<48|lo/CreditOne) + plugins.Time(f>>32), uint32(f)
}

// subtract takes b + bf/2^32 off a + af/2^32.
func subtract(a plugins.Time, af uint32, b plugins.Time, bf uint32) (plugins.Time, uint32) {
	if bf > af {
		a--
	}
	return a - b, af - bf
}

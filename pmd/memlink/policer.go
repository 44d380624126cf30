package memlink

import (
	"math/bits"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// policer is a token bucket that drops what it has no tokens for. Tokens are bit·ns/s, so that no rate leaves a remainder.
type policer struct {
	rate uint64 // bits/s; 0: lets everything pass
	full uint64 // most tokens
	have uint64
	last plugins.Time // when have was reckoned
}

// perByte is how many tokens a byte takes.
const perByte = 8 * uint64(time.Second)

// set changes the bucket; one whose rate and size stay as they are keeps its tokens.
func (t *policer) set(p *Path) {
	full := uint64(p.PolicerBurst) * perByte
	if t.rate != p.PolicerRate || t.full != full {
		*t = policer{rate: p.PolicerRate, full: full, have: full}
	}
}

// pass takes the tokens of a frame of n bytes and reports whether there were enough.
func (t *policer) pass(n int, now plugins.Time) bool {
	if t.rate == 0 {
		return true
	}
	if d := now - t.last; d > 0 {
		hi, more := bits.Mul64(uint64(d), t.rate)
		if hi != 0 || more > t.full-t.have {
			more = t.full - t.have
		}
		t.have, t.last = t.have+more, now
	}
	want := uint64(n) * perByte
	if want > t.have {
		return false
	}
	t.have -= want
	return true
}

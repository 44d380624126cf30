package cong

import "math/bits"

// MulDiv returns a*b/c with a 128-bit intermediate, rounded down, saturating at the largest uint64. c must not be 0.
func MulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

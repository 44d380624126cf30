package cdg

import (
	"math/bits"
)

const (
	expBits = 24 // negExp is 0 from an argument of 2^24 on; the exact value is below 2^-24 there
	expUnit = 1_000_000
)

// powers[i] is exp(-2^i/expUnit) as a fraction of 2^64, computed in integers.
var powers = func() (p [expBits]uint64) {
	p[0] = expOfUnit()
	for i := 1; i < expBits; i++ {
		p[i], _ = bits.Mul64(p[i-1], p[i-1])
	}
	return p
}()

// expOfUnit is exp(-x), x = 1/expUnit, as a fraction of 2^64, by its series 1 - x + x²/2 - x³/6. The next term is below 2^-80.
func expOfUnit() uint64 {
	x, _ := bits.Div64(1, 0, expUnit) // 2^64/expUnit
	x2, _ := bits.Mul64(x, x)
	x3, _ := bits.Mul64(x2, x)
	return -(x - x2/2 + x3/6)
}

// negExp is exp(-ux/1e6) as a fraction of 2^32.
func negExp(ux uint64) uint32 {
	if ux>>expBits != 0 {
		return 0
	}
	res := ^uint64(0)
	for ; ux != 0; ux &= ux - 1 { // e^-(x+y) = e^-x · e^-y, for each bit of ux
		res, _ = bits.Mul64(res, powers[bits.TrailingZeros64(ux)])
	}
	return uint32(res >> 32)
}

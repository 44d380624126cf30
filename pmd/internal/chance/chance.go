// Package chance draws seeded random faults for the links and middlewares of package pmd, in integers only.
package chance

import (
	"math/bits"
	"math/rand/v2"
)

// PPB is a probability in parts per billion.
type PPB uint32

// Probabilities.
const (
	Percent PPB = 10_000_000
	Always  PPB = 1_000_000_000
)

// RNG is a generator. Streams of the same seed are independent.
type RNG struct{ pcg rand.PCG }

// New returns stream number stream of a seed.
func New(seed, stream uint64) RNG { return RNG{*rand.NewPCG(seed, stream)} }

// Below draws from 0 … n-1.
func (r *RNG) Below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.pcg.Uint64(), n)
	return hi
}

// Hit reports true with probability p. It draws only if p is neither 0 nor certain.
func (r *RNG) Hit(p PPB) bool {
	if p == 0 || p >= Always {
		return p != 0
	}
	return PPB(r.Below(uint64(Always))) < p
}

// Corrupt inverts a burst of 1 to longest bits (at most 15) of frame, behind its first from bytes: the burst's first and last bits,
// and those between at random. The Internet checksum detects all of these. It reports whether there was room.
func Corrupt(frame []byte, from, longest int, r *RNG) bool {
	if len(frame) <= from {
		return false
	}
	room := (len(frame) - from) * 8
	n := min(1+int(r.Below(uint64(longest))), room)
	at := from*8 + int(r.Below(uint64(room-n+1)))
	between := r.pcg.Uint64()
	for i := range n {
		if i == 0 || i == n-1 || between>>i&1 != 0 {
			frame[(at+i)/8] ^= 0x80 >> ((at + i) % 8)
		}
	}
	return true
}

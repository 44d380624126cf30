// Package rng is the random source of the congestion-control modules: splitmix64, seeded per flow, so that the same module
// seed and the same flow give the same draws on every machine.
package rng

import "github.com/fastpath-tcp/fastpath/plugins"

// Rand is a splitmix64 generator.
type Rand uint64

// New returns the generator of flow f in a module instance with the given seed.
func New(seed uint64, f plugins.Flow) Rand {
	r := Rand(seed)
	return Rand(r.Uint64() ^ (uint64(f.Gen)<<32 | uint64(f.Slot)))
}

// Uint64 returns the next 64 bits.
func (r *Rand) Uint64() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint32 returns the next 32 bits.
func (r *Rand) Uint32() uint32 { return uint32(r.Uint64() >> 32) }

// N returns a number in [0, n).
func (r *Rand) N(n uint32) uint32 { return uint32(uint64(r.Uint32()) * uint64(n) >> 32) }

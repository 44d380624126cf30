package tcp

import "math/bits"

// Key is a secret for the keyed hash.
type Key struct{ K0, K1 uint64 }

// siphash is SipHash-2-4 (Aumasson, Bernstein 2012) of whole words. Initial sequence numbers (RFC 6528), source ports (RFC 6056),
// timestamp offsets and the flow table use it, so that a peer can neither guess nor collide them.
func (k Key) siphash(words ...uint64) uint64 {
	v0, v1 := k.K0^0x736f6d6570736575, k.K1^0x646f72616e646f6d
	v2, v3 := k.K0^0x6c7967656e657261, k.K1^0x7465646279746573
	for _, w := range words {
		v3 ^= w
		v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
		v0 ^= w
	}
	w := uint64(len(words)*8) << 56
	v3 ^= w
	v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
	v0 ^= w
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

func sipround(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

// quick is a cheaper keyed mix for the flow table: one multiplication per word.
func (k Key) quick(t *Tuple) uint32 {
	a, b, c, d, e := t.words()
	hi, lo := bits.Mul64(a^b^k.K0, c^d<<1^k.K1)
	hi2, lo2 := bits.Mul64(b^d^e*0x9e3779b97f4a7c15^k.K1, lo^hi^k.K0)
	return uint32((hi2 ^ lo2) >> 16)
}

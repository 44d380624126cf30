// Package seq is arithmetic on 32-bit TCP sequence numbers, modulo 2^32 (RFC 9293, 3.4).
package seq

// Before reports whether a precedes b. It is right for distances below 2^31.
func Before(a, b uint32) bool { return int32(a-b) < 0 }

// BeforeEq reports whether a precedes b or equals it.
func BeforeEq(a, b uint32) bool { return int32(a-b) <= 0 }

// After reports whether a follows b.
func After(a, b uint32) bool { return int32(a-b) > 0 }

// AfterEq reports whether a follows b or equals it.
func AfterEq(a, b uint32) bool { return int32(a-b) >= 0 }

// Max returns the later of a and b.
func Max(a, b uint32) uint32 {
	if After(a, b) {
		return a
	}
	return b
}

// Min returns the earlier of a and b.
func Min(a, b uint32) uint32 {
	if Before(a, b) {
		return a
	}
	return b
}

// In reports whether s lies in the half-open range [lo, hi).
func In(s, lo, hi uint32) bool { return s-lo < hi-lo }

// Range is the half-open range of sequence numbers [Start, End).
type Range struct{ Start, End uint32 }

// Len is the number of sequence numbers in r.
func (r Range) Len() uint32 { return r.End - r.Start }

// Empty reports whether r holds nothing.
func (r Range) Empty() bool { return r.Start == r.End }

package wire

import "golang.org/x/sys/cpu"

// vectorMin is the length in bytes from which the vector code is faster than the loop in Go.
const vectorMin = 256

var useVector = cpu.X86.HasAVX2

// sumVector returns the little-endian one's complement sum of b, unfolded. len(b) is a multiple of 32 below 2^32 and not 0.
//
//go:noescape
func sumVector(b []byte) uint64

// sumCopyVector is sumVector of src, and copies src to dst, which has the same length.
//
//go:noescape
func sumCopyVector(dst, src []byte) uint64

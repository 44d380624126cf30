package pmdtest

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// A test frame: Ethernet header with etherType, then the run's id, the sequence number, the frame's length, then bytes that
// follow from sequence number and position.
const (
	etherType  = 0x88B5
	ethHeader  = 14
	headerSize = ethHeader + 4 + 4 + 2
	minFrame   = 60 // Ethernet without its FCS
)

type header struct {
	run, seq uint32
}

func fill(b *pmd.Buf, dst, src []byte, h header, size int) {
	b.SetLen(size)
	f := b.Bytes()
	copy(f, dst)
	copy(f[6:], src)
	binary.BigEndian.PutUint16(f[12:], etherType)
	binary.BigEndian.PutUint32(f[14:], h.run)
	binary.BigEndian.PutUint32(f[18:], h.seq)
	binary.BigEndian.PutUint16(f[22:], uint16(size))
	for i := headerSize; i < size; i++ {
		f[i] = pattern(h.seq, i)
	}
}

func pattern(seq uint32, i int) byte { return byte(seq*31 + uint32(i)*7 + uint32(i>>8)) }

// parse returns the header of a test frame; ok is false for foreign frames.
func parse(f []byte) (h header, size int, ok bool) {
	if len(f) < headerSize || binary.BigEndian.Uint16(f[12:]) != etherType {
		return header{}, 0, false
	}
	h = header{binary.BigEndian.Uint32(f[14:]), binary.BigEndian.Uint32(f[18:])}
	return h, int(binary.BigEndian.Uint16(f[22:])), true
}

// exact reports whether f holds the bytes that fill wrote.
func exact(f, dst, src []byte, h header, size int) bool {
	if len(f) != size || string(f[:6]) != string(dst) || string(f[6:12]) != string(src) {
		return false
	}
	for i := headerSize; i < size; i++ {
		if f[i] != pattern(h.seq, i) {
			return false
		}
	}
	return true
}

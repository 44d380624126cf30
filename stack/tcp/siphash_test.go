package tcp

import (
	"encoding/binary"
	"testing"
)

// Vectors of the reference implementation of SipHash-2-4: key 00 01 … 0f, message 00 01 … of the given length.
func TestSiphash(t *testing.T) {
	key := Key{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	for n, want := range map[int][8]byte{
		0: {0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72},
		1: {0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93},
		2: {0xdb, 0x9b, 0xc2, 0x57, 0x7f, 0xcc, 0x2a, 0x3f},
		3: {0x94, 0xaf, 0x49, 0xf6, 0xc6, 0x50, 0xad, 0xb8},
		4: {0xce, 0x7c, 0xf2, 0x72, 0x2f, 0x51, 0x27, 0x71},
	} {
		msg := make([]byte, 8*n)
		words := make([]uint64, n)
		for i := range msg {
			msg[i] = byte(i)
		}
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(msg[8*i:])
		}
		if got := key.siphash(words...); got != binary.LittleEndian.Uint64(want[:]) {
			t.Errorf("%d words: %x, want %x", n, got, want)
		}
	}
}

// The table's hash depends on every part of the tuple, and on the key.
func TestQuickHash(t *testing.T) {
	k := Key{0x243f6a8885a308d3, 0x13198a2e03707344}
	a := testTuple(1)
	seen := map[uint32]string{k.quick(&a): "a"}
	for name, f := range map[string]func(*Tuple){
		"local": func(t *Tuple) { t.Local[15]++ }, "remote": func(t *Tuple) { t.Remote[12]++ },
		"local port": func(t *Tuple) { t.LocalPort++ }, "remote port": func(t *Tuple) { t.RemotePort++ },
		"swapped": func(t *Tuple) { t.Local, t.Remote = t.Remote, t.Local },
	} {
		b := a
		f(&b)
		h := k.quick(&b)
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
	if other := (Key{0x243f6a8885a308d3, 0x13198a2e03707345}); other.quick(&a) == k.quick(&a) {
		t.Error("the key does not matter")
	}
}

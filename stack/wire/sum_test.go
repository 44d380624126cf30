package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// sumRef is RFC 1071 word by word.
func sumRef(b []byte, s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	for i := 0; i < len(b); i += 2 {
		w := uint64(b[i]) << 8
		if i+1 < len(b) {
			w |= uint64(b[i+1])
		}
		s += w
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// checkSum compares all ways to sum b, starting at s and at an odd address.
func checkSum(t testing.TB, b []byte, s uint64) {
	t.Helper()
	want := sumRef(b, s)
	if got := Fold(Sum(b, s)); got != want {
		t.Fatalf("Sum of %d bytes = %#04x, want %#04x", len(b), got, want)
	}
	if got := Fold(sumGeneric(b, s)); got != want {
		t.Fatalf("sumGeneric of %d bytes = %#04x, want %#04x", len(b), got, want)
	}
	dst := make([]byte, len(b)+2)
	dst[len(b)], dst[len(b)+1] = 0xa5, 0x5a
	if got := Fold(SumCopy(dst, b, s)); got != want {
		t.Fatalf("SumCopy of %d bytes = %#04x, want %#04x", len(b), got, want)
	}
	if !bytes.Equal(dst[:len(b)], b) || dst[len(b)] != 0xa5 || dst[len(b)+1] != 0x5a {
		t.Fatalf("SumCopy of %d bytes copied wrongly", len(b))
	}
	if n := len(b) / 3 &^ 1; Fold(Sum(b[n:], Sum(b[:n], s))) != want {
		t.Fatalf("Sum of %d bytes in two pieces differs", len(b))
	}
}

func TestSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	buf := make([]byte, 70_000)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	for n := range 600 {
		checkSum(t, buf[n%7:][:n], rng.Uint64())
	}
	for range 300 {
		off, n := rng.IntN(100), rng.IntN(69_000)
		checkSum(t, buf[off:off+n], rng.Uint64()>>rng.IntN(64))
	}
	for _, v := range []byte{0, 0xff} { // carries everywhere, and the two zeros of one's complement
		for i := range buf {
			buf[i] = v
		}
		for _, n := range []int{0, 1, 2, 31, 32, 127, 128, 129, 1448, 65535} {
			for _, s := range []uint64{0, 1, 0xffff, 1<<64 - 1} {
				checkSum(t, buf[:n], s)
			}
		}
	}
	// RFC 1071, 3: the example.
	if got := Fold(Sum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0)); got != ^uint16(0xddf2) {
		t.Fatalf("RFC 1071's example gives %#04x", got)
	}
}

func TestPseudoSum(t *testing.T) {
	for _, c := range [][2]string{{"192.0.2.1", "255.255.255.254"}, {"2001:db8::1", "fe80::ffff:ffff"}} {
		src, dst := netip.MustParseAddr(c[0]), netip.MustParseAddr(c[1])
		b := append(append([]byte(nil), src.AsSlice()...), dst.AsSlice()...)
		b = append(b, 0, 0, 0x12, 0x34, 0, 0, 0, 6)
		if got, want := Fold(PseudoSum(AddrFrom(src), AddrFrom(dst), 6, 0x1234)), sumRef(b, 0); got != want {
			t.Errorf("%v: %#04x, want %#04x", c, got, want)
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("a checksum over some bytes"), uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, s uint64) {
		checkSum(t, b, s)
		checkSum(t, bytes.Repeat(b, 20), s)
	})
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{20, 64, 128, 256, 1448, 65536} {
		buf, dst := make([]byte, n), make([]byte, n)
		for name, f := range map[string]func(){
			"sum":         func() { Sum(buf, 0) },
			"sum-generic": func() { sumGeneric(buf, 0) },
			"copy+sum":    func() { copy(dst, buf); sumGeneric(dst, 0) },
			"sumcopy":     func() { SumCopy(dst, buf, 0) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f()
				}
			})
		}
	}
}

// BenchmarkSumCold walks through 64 MiB.
func BenchmarkSumCold(b *testing.B) {
	const seg, span = 1448, 64 << 20
	src, dst := make([]byte, span), make([]byte, span)
	for name, f := range map[string]func(off int){
		"sum":      func(off int) { Sum(src[off:off+seg], 0) },
		"copy+sum": func(off int) { copy(dst[off:off+seg], src[off:]); Sum(dst[off:off+seg], 0) },
		"sumcopy":  func(off int) { SumCopy(dst[off:], src[off:off+seg], 0) },
		"copy":     func(off int) { copy(dst[off:off+seg], src[off:]) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(seg)
			for off := 0; b.Loop(); {
				f(off)
				if off += 1536; off > span-seg {
					off = 0
				}
			}
		})
	}
}

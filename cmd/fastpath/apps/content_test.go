package apps

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"
)

// slowContent computes the content as its documentation defines it, byte by byte.
func slowContent(seed uint64, off, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		word := (uint64(off) + uint64(i)) / 8
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], mix(word%blockWords)^mix(mix(seed)+word/blockWords))
		b[i] = w[(uint64(off)+uint64(i))%8]
	}
	return b
}

func TestContentReader(t *testing.T) {
	for _, size := range []int64{0, 1, 7, 8, 63, 64, 65, 65535, 65536, 65537, 200_001} {
		if err := iotest.TestReader(ContentReader(4, size), slowContent(4, 0, size)); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestContentDiffers(t *testing.T) {
	read := func(seed uint64, off int64) string {
		b := make([]byte, 64<<10)
		if _, err := ContentReader(seed, 1<<40).ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	seen := map[string]bool{}
	for seed := range uint64(20) {
		for block := range int64(20) {
			seen[read(seed, block<<16)] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d different blocks of 400", len(seen))
	}
}

// TestContentFixed: the content never changes, because hashes of it are written down elsewhere.
func TestContentFixed(t *testing.T) {
	const want = "b006cc8809c8f64f28dd39aa3e49880c9df1f627499b7096411d1937ef909d14" // computed by a script of another language
	if got := ContentSHA256(1, 1<<20); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// splitmix64's first outputs from seed 0, from its authors' reference code.
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := mix(uint64(i)); got != want {
			t.Errorf("output %d: %#x, want %#x", i, got, want)
		}
	}
}

func FuzzContent(f *testing.F) {
	f.Add(uint64(1), int64(65530), uint16(20), int64(1<<20))
	f.Add(uint64(0), int64(3), uint16(1), int64(4))
	f.Add(uint64(7), int64(MaxContent-100), uint16(200), int64(MaxContent))
	f.Fuzz(func(t *testing.T, seed uint64, off int64, n uint16, size int64) {
		if off < 0 || size < 0 {
			return
		}
		b := make([]byte, n)
		got, err := ContentReader(seed, size).ReadAt(b, off)
		want := max(0, min(int64(n), size-off))
		if int64(got) != want || (got < len(b)) != (err == io.EOF) {
			t.Fatalf("%d of %d bytes, %v", got, n, err)
		}
		if !bytes.Equal(b[:got], slowContent(seed, off, want)) {
			t.Fatal("wrong bytes")
		}
	})
}

func BenchmarkContent(b *testing.B) {
	for name, off := range map[string]int64{"aligned": 0, "unaligned": 5} {
		b.Run(name, func(b *testing.B) {
			c, buf := ContentReader(1, MaxContent), make([]byte, bufSize)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				if _, err := c.ReadAt(buf, off); err != nil {
					b.Fatal(err)
				}
				off += bufSize
			}
		})
	}
}

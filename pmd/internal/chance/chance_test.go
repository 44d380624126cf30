package chance

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"testing"
)

func checksum(p []byte) uint16 {
	var sum uint32
	for ; len(p) > 1; p = p[2:] {
		sum += uint32(binary.BigEndian.Uint16(p))
	}
	if len(p) == 1 {
		sum += uint32(p[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// TestCorruptionIsDetectable wants the Internet checksum to catch every burst that the link makes.
func TestCorruptionIsDetectable(t *testing.T) {
	rng := New(5, 1)
	r := &rng
	longest := map[int]int{}
	for i := range 200_000 {
		size := 60 + i%200
		frame := make([]byte, size)
		for j := range frame {
			frame[j] = byte(r.Below(256))
		}
		if i%3 == 0 {
			clear(frame) // all zeros and all ones are the checksum's weak spot
		}
		binary.BigEndian.PutUint16(frame[20:], 0)
		binary.BigEndian.PutUint16(frame[20:], checksum(frame[14:]))
		old := bytes.Clone(frame)
		most := 1 + i%15
		if !Corrupt(frame, 14, most, r) {
			t.Fatal("not corrupted")
		}
		first, last := -1, -1
		for j := range frame {
			if d := frame[j] ^ old[j]; d != 0 {
				if first < 0 {
					first = j*8 + bits.LeadingZeros8(d)
				}
				last = j*8 + 7 - bits.TrailingZeros8(d)
			}
		}
		if n := last - first + 1; first < 14*8 || n > most {
			t.Fatalf("bits %d to %d changed, want at most %d from bit 112", first, last, most)
		} else {
			longest[most] = max(longest[most], n)
		}
		if checksum(frame[14:]) == 0 {
			t.Fatalf("the checksum misses the burst from bit %d to %d", first, last)
		}
	}
	for most, n := range longest {
		if n != most {
			t.Errorf("longest burst of %d bits, want %d", n, most)
		}
	}
	if Corrupt(make([]byte, 14), 14, 1, r) {
		t.Error("a frame without a payload was corrupted")
	}
}

func TestHit(t *testing.T) {
	r := New(1, 1)
	for _, p := range []PPB{0, 1, Percent, 50 * Percent, Always - 1, Always} {
		n := 0
		for range 100_000 {
			if r.Hit(p) {
				n++
			}
		}
		want := int(uint64(p) * 100_000 / uint64(Always))
		if d := n - want; d*d > 25*(want+4) {
			t.Errorf("%d ppb: %d hits of 100000, want about %d", p, n, want)
		}
	}
}

func TestStreams(t *testing.T) {
	a, b, c := New(1, 1), New(1, 1), New(1, 2)
	same, other := true, true
	for range 10 {
		x := a.Below(1 << 60)
		same = same && x == b.Below(1<<60)
		other = other && x == c.Below(1<<60)
	}
	if !same || other {
		t.Errorf("the same stream is equal: %v; another stream is: %v", same, other)
	}
}

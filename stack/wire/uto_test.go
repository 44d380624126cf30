package wire

import (
	"testing"
	"time"
)

// RFC 5482, 3.3: seconds as far as they reach, then minutes; nothing that is sent is 0 (3.4).
func TestUserTimeout(t *testing.T) {
	for _, c := range []struct{ in, out time.Duration }{
		{0, time.Second}, {time.Millisecond, time.Second}, {1500 * time.Millisecond, 2 * time.Second},
		{32767 * time.Second, 32767 * time.Second}, {32768 * time.Second, 547 * time.Minute}, {1 << 62, 32767 * time.Minute},
	} {
		if got := UserTimeoutOf(UserTimeout(c.in)); got != c.out {
			t.Errorf("%v becomes %v, want %v", c.in, got, c.out)
		}
	}
	for _, v := range []uint16{0, 1 << 15} {
		if d := UserTimeoutOf(v); d != 0 {
			t.Errorf("%#x is %v, but it is reserved", v, d)
		}
	}
}

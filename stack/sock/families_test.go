package sock_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// RFC 8305, in the form of package net: where the first family leads nowhere the second is tried beside it after a delay, and at once if the
// first fails; the first one's error is told.
func TestDialFamilies(t *testing.T) {
	s := pairOf(t, 1)
	a := netip.MustParseAddr
	d := sock.Dialer{Stack: s[0], Timeout: 20 * time.Second, FallbackDelay: 50 * time.Millisecond, Resolver: names{
		"silent6": {a("fd00::77"), a("10.0.0.2")}, "refuses6": {a("fd00::2"), a("10.0.0.2")}, "both": {a("fd00::2"), a("10.0.0.2")},
		"silent4": {a("10.0.0.77"), a("fd00::2")}, "nowhere": {a("fd00::2"), a("10.0.0.2")},
	}}
	ln4 := must(sock.Listen(s[1], "tcp4", "10.0.0.2:80"))
	defer ln4.Close()
	ln6 := must(sock.Listen(s[1], "tcp6", "[fd00::2]:81"))
	defer ln6.Close()
	both := must(sock.Listen(s[1], "tcp", ":82"))
	defer both.Close()
	for _, c := range []struct {
		address, want string
		most          time.Duration // an address that does not answer would take three seconds to fail, and TCP minutes
	}{
		{"silent6:80", "10.0.0.2:80", 2 * time.Second},
		{"refuses6:80", "10.0.0.2:80", 2 * time.Second},
		{"silent4:81", "[fd00::2]:81", 2 * time.Second},
		{"both:82", "[fd00::2]:82", 2 * time.Second},
	} {
		start := time.Now()
		conn, err := d.Dial("tcp", c.address)
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		if got := conn.RemoteAddr().String(); got != c.want || time.Since(start) > c.most {
			t.Errorf("%s: connected to %s after %v, want %s", c.address, got, time.Since(start), c.want)
		}
		conn.Close()
	}
	// Both refuse.
	conn, err := d.Dial("tcp", "nowhere:99")
	if conn != nil || !errors.Is(err, syscall.ECONNREFUSED) || err.Error() != "dial tcp [fd00::2]:99: connect: connection refused" {
		t.Errorf("nowhere: %v, %v", conn, err)
	}
	// Without the race the silent address has its whole share of the time.
	d.FallbackDelay = -1
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if conn, err := d.DialContext(ctx, "tcp", "silent6:80"); err == nil {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
	h := sock.Host{Stacks: s[:1], Dialer: d}
	h.Dialer.FallbackDelay = time.Millisecond
	conn, err = h.Dial("tcp", "silent6:80")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

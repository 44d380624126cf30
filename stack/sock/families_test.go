package sock_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/filter"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// RFC 8305, in the form of package net: where the first family leads nowhere the second is tried beside it after a delay, and at once if the
// first fails; the first one's error is told.
func TestDialFamilies(t *testing.T) {
	s := pairOf(t, 1)
	a := netip.MustParseAddr
	silent := func(addr string, port uint16) filter.Rule {
		to := netip.PrefixFrom(a(addr), a(addr).BitLen())
		return filter.Rule{Action: filter.Deny, Destinations: []netip.Prefix{to}, DestPorts: []filter.Ports{{Min: port, Max: port}}}
	}
	s[1].SetFilter(must(filter.Compile([]filter.Rule{silent("10.0.0.2", 81), silent("fd00::2", 83)}, filter.Allow)))
	// What is not raced, or waits for the delay although the first has failed, takes minutes.
	const long, short = 10 * time.Minute, 50 * time.Millisecond
	d := sock.Dialer{Stack: s[0], Timeout: long, Resolver: names{
		"six": {a("fd00::2"), a("10.0.0.2")}, "four": {a("10.0.0.2"), a("fd00::2")},
	}}
	for _, l := range [][2]string{{"tcp4", "10.0.0.2:80"}, {"tcp6", "[fd00::2]:81"}, {"tcp", ":82"}, {"tcp4", "10.0.0.2:83"}} {
		defer must(sock.Listen(s[1], l[0], l[1])).Close()
	}
	for _, c := range []struct {
		address, want string
		delay         time.Duration
	}{
		{"six:83", "10.0.0.2:83", short},   // silence
		{"six:80", "10.0.0.2:80", long},    // a refusal
		{"four:81", "[fd00::2]:81", short}, // silence
		{"six:82", "[fd00::2]:82", long},   // both answer
	} {
		d.FallbackDelay = c.delay
		start := time.Now()
		conn, err := d.Dial("tcp", c.address)
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		if got := conn.RemoteAddr().String(); got != c.want || time.Since(start) > time.Minute {
			t.Errorf("%s: connected to %s after %v, want %s", c.address, got, time.Since(start), c.want)
		}
		conn.Close()
	}
	// Both refuse.
	conn, err := d.Dial("tcp", "six:99")
	if conn != nil || !errors.Is(err, syscall.ECONNREFUSED) || err.Error() != "dial tcp [fd00::2]:99: connect: connection refused" {
		t.Errorf("both refuse: %v, %v", conn, err)
	}
	// Without the race the silent address has its whole share of the time.
	d.FallbackDelay = -1
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if conn, err := d.DialContext(ctx, "tcp", "six:83"); err == nil {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
	h := sock.Host{Stacks: s[:1], Dialer: d}
	h.Dialer.FallbackDelay = time.Millisecond
	conn, err = h.Dial("tcp", "six:83")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

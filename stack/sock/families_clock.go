package sock

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// attempt connects to one address.
type attempt func(ctx context.Context, ap netip.AddrPort) (net.Conn, error)

// serially tries addresses in turn, each with its share of the time. The first error is told, since the first address is the most relevant one.
func serially(ctx context.Context, aps []netip.AddrPort, dial attempt) (net.Conn, error) {
	var first error
	for i, ap := range aps {
		part, cancel := share(ctx, len(aps)-i)
		c, err := dial(part, ap)
		cancel()
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// defaultFallback is how long the second family waits for the first by default, as in package net. RFC 8305, 5 recommends 250 ms between attempts.
const defaultFallback = 300 * time.Millisecond

// happily tries the addresses of both families at once, as package net does: those of the first one's family, and if they have not led to a
// connection after delay, or have all failed, those of the other beside them (RFC 8305 in net's form: one race of two families, in the
// resolver's order). A delay below 0 means in turn.
func happily(ctx context.Context, aps []netip.AddrPort, delay time.Duration, dial attempt) (net.Conn, error) {
	var second []netip.AddrPort
	first := make([]netip.AddrPort, 0, len(aps))
	for _, ap := range aps {
		if ap.Addr().Is4() == aps[0].Addr().Is4() {
			first = append(first, ap)
		} else {
			second = append(second, ap)
		}
	}
	if delay < 0 || len(second) == 0 {
		return serially(ctx, aps, dial)
	}
	if delay == 0 {
		delay = defaultFallback
	}
	type result struct {
		c     net.Conn
		err   error
		first bool
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the loser gives up
	results := make(chan result)
	ended := make(chan struct{})
	defer close(ended)
	start := func(aps []netip.AddrPort, isFirst bool) {
		c, err := serially(ctx, aps, dial)
		select {
		case results <- result{c, err, isFirst}:
		case <-ended:
			if err == nil {
				c.Close() // nobody wants it any more
			}
		}
	}
	go start(first, true)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	running, waiting := 1, true // waiting: the second family has not started
	var told error
	for {
		select {
		case <-timer.C:
			waiting = false
			running++
			go start(second, false)
		case r := <-results:
			if r.err == nil {
				return r.c, nil
			}
			if r.first {
				told = r.err
			}
			running--
			if waiting {
				timer.Reset(0)
			} else if running == 0 {
				return nil, told
			}
		}
	}
}

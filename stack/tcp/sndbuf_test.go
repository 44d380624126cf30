package tcp

import (
	"net/netip"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// The application may write two windows ahead, and three for a congestion control that goes on sending past losses.
func TestSendBufferWindows(t *testing.T) {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{}, Env{Arena: mem.NewHeapArena(budget), Budget: budget, Link: oneLink{}, Wake: func(*Waiter) {}, Kicked: func() {}}, 1e9)
	c := e.newConn(&Tuple{Local: wire.AddrFrom(netip.MustParseAddr("10.0.0.1")), Remote: wire.AddrFrom(netip.MustParseAddr("10.0.0.2"))})
	const window = 1 << 20
	c.maxFlight = window
	for windows, wantsPRR := range map[int]bool{2: true, 3: false} {
		c.wantsPRR = wantsPRR
		c.setCwnd(window)
		if got := c.SendBuffer(); got != windows*window {
			t.Errorf("%d bytes may be written ahead with a window of %d, want %d windows", got, window, windows)
		}
	}
}

// With a large window, what is unsent is bounded, and nothing else: whatever the peer has SACKed behind a hole, the writer goes on.
func TestSendBufferUnsent(t *testing.T) {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{}, Env{Arena: mem.NewHeapArena(budget), Budget: budget, Link: oneLink{}, Wake: func(*Waiter) {}, Kicked: func() {}}, 1e9)
	c := e.newConn(&Tuple{Local: wire.AddrFrom(netip.MustParseAddr("10.0.0.1")), Remote: wire.AddrFrom(netip.MustParseAddr("10.0.0.2"))})
	const window = 2 * writeAhead
	c.maxFlight = window
	c.state = Established
	c.snd.Init(e.env.Arena)
	for range 10 {
		sent := c.snd.Tail()
		c.sndNxt = c.sndUna + uint32(sent)
		c.setCwnd(window)
		for n := 1; n > 0; {
			n = c.snd.Append(make([]byte, 1<<20), c.sndLimit.Load())
		}
		if got := c.snd.Tail() - sent; got != writeAhead {
			t.Errorf("%d bytes are unsent behind %d that are outstanding", got, sent)
		}
	}
	if c.snd.Tail() <= 3*window {
		t.Errorf("only %d bytes were written", c.snd.Tail())
	}
	c.state = Closed
}

// What a window allows and a deferral holds back is used: else a flow that fills its window but for that would not grow.
func TestDeferredCwndIsUsed(t *testing.T) {
	for _, short := range []bool{false, true} {
		c := &Conn{mss: 1000, cwnd: 10_000, ssthresh: 5000, out: &outstanding{}}
		if c.validateCwnd(short); c.cwndLimited != short {
			t.Errorf("deferred %v: limited %v", short, c.cwndLimited)
		}
	}
}

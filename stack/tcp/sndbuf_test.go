package tcp

import (
	"net/netip"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// The application may write two windows ahead, and what was SACKed on top: a hole that takes several round trips to be filled, since its
// retransmission was lost as well, does not stop a flow whose window is open.
func TestSendBufferAndHoles(t *testing.T) {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{}, Env{Arena: mem.NewHeapArena(budget), Budget: budget, Link: oneLink{}, Wake: func(*Waiter) {}, Kicked: func() {}}, 1e9)
	c := e.newConn(&Tuple{Local: wire.AddrFrom(netip.MustParseAddr("10.0.0.1")), Remote: wire.AddrFrom(netip.MustParseAddr("10.0.0.2"))})
	const window = 1 << 20
	c.maxFlight = window
	c.setCwnd(window)
	if got := c.SendBuffer(); got != 2*window {
		t.Errorf("%d bytes may be written ahead with a window of %d", got, window)
	}
	c.out = new(outstanding)
	c.out.log.sacked = 3 * window
	c.setCwnd(window)
	if got := c.SendBuffer(); got != 5*window {
		t.Errorf("%d bytes may be written ahead with a window of %d and three SACKed", got, window)
	}
}

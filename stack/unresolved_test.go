package stack_test

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// A reset to a peer whose link address has been forgotten waits for it (RFC 1122, 2.3.2.2): nothing would send it again.
func TestResetWaitsForLinkAddress(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{})
	p.Idle(300e9) // longer than an unused entry lives
	if n := p.Stats().L3.RxFrames; n > 4 {
		t.Fatalf("%d frames before the test", n)
	}
	f := p.Flow(5000, 81)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("R. 0:0(0) ack 1 win 0")
	if s := p.Stats(); s.TCP.OutRsts != 1 || s.Neigh.Requests == 0 {
		t.Errorf("%d resets, %d requests for the address", s.TCP.OutRsts, s.Neigh.Requests)
	}
}

package tcp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// The initial sequence number (RFC 6528, 3) follows a clock of 64 ns (RFC 9293, MUST-8), from a place that depends on addresses, ports and
// a secret (MUST-9).
func TestISN(t *testing.T) {
	isn := func(after time.Duration, seed uint64, port uint16) uint32 {
		p := tcptest.New(t, tcptest.Config{Start: tcptest.Start + plugins.Time(after), Stack: stack.Config{Seed: seed}})
		p.Listen(1)
		f := p.Flow(port, 80)
		f.Send("S 0:0(0) win 60000 <mss 1460>")
		n := f.Expect("S. 0:0(0) ack 1").Seq
		f.Send("R 1:1(0)")
		return n
	}
	first := isn(0, 1, 5000)
	if n := isn(6400*time.Nanosecond, 1, 5000) - first; n != 100 {
		t.Errorf("%d numbers further after 6.4 µs, want 100", n)
	}
	if n := isn(0, 1, 5001) - first; n+1<<16 < 1<<17 {
		t.Errorf("another port is %d further", int32(n))
	}
	if n := isn(0, 2, 5000) - first; n+1<<16 < 1<<17 {
		t.Errorf("another secret is %d further", int32(n))
	}
}

// One can listen on a port from which connections are opening, and open connections go on when somebody listens there, and when nobody
// does any more (RFC 9293, MUST-41 and MUST-42).
func TestListenBesideConnections(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	open := func(port uint16) *tcptest.Flow {
		c, err := p.Stack.ConnectAs(netip.AddrPortFrom(tcptest.StackAddr, 80), netip.AddrPortFrom(tcptest.PeerAddr, port), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := p.Flow(port, 80)
		f.Conn = c
		f.Expect("S 0:0(0)")
		return f
	}
	established, opening := open(7000), open(7001)
	established.Send("S. 0:0(0) ack 1 win 60000 <mss 1460>")
	established.Expect(". 1:1(0) ack 1")
	l := p.Listen(1)
	f := p.Passive(l, 7002, "mss 1460", 60000)
	opening.Send("S. 0:0(0) ack 1 win 60000 <mss 1460>")
	opening.Expect(". 1:1(0) ack 1")
	p.Stack.CloseListener(l)
	for _, f := range []*tcptest.Flow{established, opening, f} {
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1")
		f.Abort()
		f.Expect("R. 11:11(0) ack 1")
	}
}

package tcp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// What an application sets of TTL and DiffServ field is on every segment of the connection, its SYN too (RFC 9293, MUST-48 and MUST-49),
// and may change while it lasts. The bits of ECN are not the application's.
func TestDiffServ(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		p := tcptest.New(t, tcptest.Config{IPv6: v6})
		peer := tcptest.PeerAddr
		if v6 {
			peer = tcptest.PeerAddr6
		}
		field := func(want, ttl uint8) {
			t.Helper()
			frames := p.Pending()
			var pk wire.Packet
			if len(frames) != 1 || wire.Parse(frames[0].Data, &pk, false) != wire.DropNone {
				t.Fatalf("%d frames", len(frames))
			}
			if pk.TOS != want || pk.TTL != ttl {
				t.Errorf("DiffServ field %#x, TTL %d; want %#x, %d", pk.TOS, pk.TTL, want, ttl)
			}
		}
		c, err := p.Stack.ConnectAs(netip.AddrPort{}, netip.AddrPortFrom(peer, 80), &tcp.Setup{Tuning: &tcp.Tuning{TOS: 0xb9, TTL: 7}})
		if err != nil {
			t.Fatal(err)
		}
		f := p.Flow(80, c.Tuple.LocalPort)
		f.Conn = c
		field(0xb8, 7)
		f.Expect("S 0:0(0)")
		f.Send("S. 0:0(0) ack 1 win 10000 <mss 1000>")
		field(0xb8, 7)
		f.Expect(". 1:1(0) ack 1")
		f.Write(10)
		field(0xb8, 7)
		f.Expect("P. 1:11(10) ack 1")
		f.Send(". 1:1(0) ack 11")
		f.Conn.Tune(func(t *tcp.Tuning) { t.TOS, t.TTL = 0x28, 0 })
		f.Write(10)
		field(0x28, 64)
		f.Expect("P. 11:21(10) ack 1")
		f.Send("R 1:1(0)")
	}
}

// SYN-ACKs have what the listener's connections begin with, cookies too.
func TestDiffServOfListener(t *testing.T) {
	for _, mode := range []tcp.SynCookies{tcp.CookiesOff, tcp.CookiesAlways} {
		p := newPeer(t, tcp.Config{SynCookies: mode})
		l, err := p.Stack.ListenAs(netip.AddrPortFrom(tcptest.StackAddr, 80), 1, false, &tcp.Setup{Tuning: &tcp.Tuning{TOS: 0x88, TTL: 200}})
		if err != nil {
			t.Fatal(err)
		}
		f := p.Flow(5000, 80)
		f.Send("S 0:0(0) win 60000 <mss 1000>")
		var pk wire.Packet
		if fr := p.Pending(); len(fr) != 1 || wire.Parse(fr[0].Data, &pk, false) != wire.DropNone || pk.TOS != 0x88 || pk.TTL != 200 {
			t.Errorf("%v: %d frames, DiffServ field %#x, TTL %d", mode, len(fr), pk.TOS, pk.TTL)
		}
		f.Expect("S. 0:0(0) ack 1")
		f.Send(". 1:1(0) ack 1")
		f.Accept(l)
		f.Abort()
		f.Expect("R. 1:1(0) ack 1")
	}
}

// RFC 9293, 3.8.3 (MUST-20, MUST-22): the third retransmission lets IP doubt the next hop, which is then asked, 5 s later, whether it is
// still there. Without that it would count as reachable for at least 15 s.
func TestNegativeAdvice(t *testing.T) {
	for _, opening := range []bool{false, true} {
		p, f := farPeer(t, tcp.Config{}, "")
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1")
		f.Send(". 1:1(0) ack 11") // progress: the next hop is reachable
		p.Idle(3 * time.Second)   // the stack announces its own address
		before := p.Stats().Neigh.Requests
		asked := func() uint64 { p.Take(); return p.Stats().Neigh.Requests - before }
		third := 7 * time.Second // after the SYN
		if opening {
			f.Abort()
			f.Expect("R. 11:11(0) ack 1")
			f = p.Connect()
		} else {
			third = 1750 * ms
			f.Write(10)
		}
		p.Idle(third + 4900*ms)
		if n := asked(); n != 0 {
			t.Errorf("opening %v: %d requests too soon", opening, n)
		}
		p.Idle(1200 * ms)
		if n := asked(); n == 0 {
			t.Errorf("opening %v: the next hop is not doubted", opening)
		}
		f.Abort()
		p.Take()
	}
}

// An application can learn of a soft error while the connection lives (RFC 9293, MUST-47); progress clears it.
func TestSoftError(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1")
		if e := f.Info().SoftErr; e != tcp.OK {
			t.Errorf("%v before any", e)
		}
		f.ICMP(wire.ICMPUnreachable, wire.ICMPHostUnreachable, 0, 1, 60)
		if e := f.Info().SoftErr; e != tcp.Unreachable {
			t.Errorf("%v, want %v", e, tcp.Unreachable)
		}
		f.Send(". 1:1(0) ack 11")
		if e := f.Info().SoftErr; e != tcp.OK {
			t.Errorf("%v after progress", e)
		}
		f.Abort()
		f.Expect("R. 11:11(0) ack 1")
	})
}

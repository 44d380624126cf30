package tcp_test

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// A connection over IPv6 from its first segment to its last: the segment size leaves room for 40 bytes of header (RFC 9293, 3.7.1), and
// every segment of it has one flow label (RFC 6437, 3), the one after TIME-WAIT began too.
func TestIPv6Connection(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 65535 <mss 1440,sackOK>")
	label := flowLabel(t, p)
	f.Expect("S. 0:0(0) ack 1 <mss 1440,sackOK>")
	f.Send(". 1:1(0) ack 1")
	f.Accept(l)
	f.Write(3000)
	if got := flowLabel(t, p); got != label || label == 0 {
		t.Errorf("flow label %#x, in the SYN-ACK %#x", got, label)
	}
	f.Expect(". 1:1441(1440) ack 1")
	f.Expect(". 1441:2881(1440) ack 1")
	f.Expect("P. 2881:3001(120) ack 1")
	f.Send("P. 1:501(500) ack 3001")
	f.Expect(". 3001:3001(0) ack 501")
	f.WantRead(500)
	f.CloseWrite()
	f.Expect("F. 3001:3001(0) ack 501")
	f.Send("F. 501:501(0) ack 3002")
	if got := flowLabel(t, p); got != label {
		t.Errorf("flow label %#x in TIME-WAIT, %#x before", got, label)
	}
	f.Expect(". 3002:3002(0) ack 502")
	f.WantReadErr(io.EOF)
	f.Send("F. 501:501(0) ack 3002") // its answer comes from the TIME-WAIT record
	f.Expect(". 3002:3002(0) ack 502")
}

func flowLabel(t *testing.T, p *tcptest.Peer) uint32 {
	t.Helper()
	f := p.Pending()
	if len(f) == 0 {
		t.Fatal("nothing was sent")
	}
	var pk wire.Packet
	if d := wire.Parse(f[0].Data, &pk, false); d != wire.DropNone {
		t.Fatal(d)
	}
	return pk.Flow
}

// A peer that does not say how much it takes gets 1220 bytes over IPv6 (RFC 9293, MUST-15).
func TestIPv6DefaultMSS(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 65535")
	f.Expect("S. 0:0(0) ack 1 <mss 1440>")
	f.Send(". 1:1(0) ack 1")
	f.Accept(l)
	f.Write(1221)
	f.Expect(". 1:1221(1220) ack 1")
	f.Expect("P. 1221:1222(1) ack 1")
}

func TestIPv6Reset(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true})
	f := p.Flow(5000, 81)
	f.Send("S 0:0(0) win 65535 <mss 1440>")
	f.Expect("R. 0:0(0) ack 1")
}

// Nobody listens there, says the peer's host: an opening connection ends, an open one goes on (RFC 1122, 4.2.3.9; RFC 4443, 3.1).
func TestIPv6PortUnreachable(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true})
	f := p.Connect()
	syn := p.Pending()[0].Data
	f.Expect("S 0:0(0)")
	quote := func(frame []byte) []byte {
		src, dst := wire.AddrFrom(tcptest.PeerAddr6), wire.AddrFrom(tcptest.StackAddr6)
		b := make([]byte, wire.EthLen+wire.IPv6Len+2000)
		n := wire.PutICMP6Error(b[wire.EthLen+wire.IPv6Len:], src, dst, wire.ICMP6Unreachable, wire.ICMP6PortUnreachable, 0, frame[wire.EthLen:])
		peer, stack := p.MACs()
		wire.PutEthernet(b, stack, peer, wire.EtherTypeIPv6)
		wire.PutIPv6(b[wire.EthLen:], src, dst, wire.ProtoICMPv6, 0, 64, 0, n)
		return b[:wire.EthLen+wire.IPv6Len+n]
	}
	p.SendFrame(quote(syn))
	if e := f.Conn.Err(); e != tcp.Refused {
		t.Fatalf("the connection ended with %v", e)
	}
	l := p.Listen(1)
	g := p.Passive(l, 5000, "mss 1440", 65535)
	g.Write(100)
	data := p.Pending()[0].Data
	g.Expect("P. 1:101(100) ack 1")
	p.SendFrame(quote(data))
	g.WantState("ESTAB")
	g.Send(". 1:1(0) ack 101")
}

// A next hop that does not answer ends the connections that wait for it to open (RFC 4861, 7.2.2).
func TestHostUnreachable(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		p := tcptest.New(t, tcptest.Config{IPv6: ipv6, Silent: true})
		f := p.Connect()
		p.Idle(2900 * time.Millisecond)
		if f.Conn.Up() {
			t.Fatalf("ended too early with %v", f.Conn.Err())
		}
		p.Idle(200 * time.Millisecond)
		if e := f.Conn.Err(); e != tcp.Unreachable {
			t.Fatalf("the connection ended with %v", e)
		}
	}
}

// Who listens for all hears both families; who listens for one, that one; and both may be on one port (RFC 3493, 5.3).
func TestListenFamilies(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		p := tcptest.New(t, tcptest.Config{IPv6: ipv6})
		try := func(want string) {
			t.Helper()
			f := p.Flow(5000, 80)
			f.Send("S 0:0(0) win 65535 <mss 1440>")
			p.T.Helper()
			if want == "R." {
				f.Expect("R. 0:0(0) ack 1")
				return
			}
			f.Expect("S. 0:0(0) ack 1")
			f.Send("R 1:1(0)")
		}
		any4, any6 := netip.MustParseAddrPort("0.0.0.0:80"), netip.MustParseAddrPort("[::]:80")
		l4, err := p.Stack.Listen(any4, 1)
		if err != nil {
			t.Fatal(err)
		}
		if ipv6 {
			try("R.")
		} else {
			try("S.")
		}
		if _, err := p.Stack.Listen(any6, 1); err != tcp.PortInUse {
			t.Errorf("[::]:80 beside 0.0.0.0:80: %v", err)
		}
		l6, err := p.Stack.ListenOnly6(any6, 1)
		if err != nil {
			t.Fatalf("[::]:80 for IPv6 alone beside 0.0.0.0:80: %v", err)
		}
		try("S.")
		p.Stack.CloseListener(l4)
		if ipv6 {
			try("S.")
		} else {
			try("R.")
		}
		p.Stack.CloseListener(l6)
		if _, err := p.Stack.Listen(any6, 1); err != nil {
			t.Fatal(err)
		}
		try("S.")
	}
}

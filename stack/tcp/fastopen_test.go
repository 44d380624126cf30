package tcp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// fastConnect starts an active open by Fast Open to the peer's port 80.
func fastConnect(p *tcptest.Peer) *tcptest.Flow {
	p.T.Helper()
	c, err := p.Stack.ConnectAs(netip.AddrPort{}, netip.AddrPortFrom(tcptest.PeerAddr, 80), &tcp.Setup{FastOpen: true})
	if err != nil {
		p.T.Fatal(err)
	}
	f := p.Flow(80, c.Tuple.LocalPort)
	f.Conn = c
	return f
}

// learnCookie makes the stack have a cookie of the peer.
func learnCookie(p *tcptest.Peer) {
	p.T.Helper()
	f := fastConnect(p)
	if f.Conn.Up() {
		p.T.Error("up without a cookie")
	}
	f.Expect("S 0:0(0) <mss 1460,sackOK,ts * *,ws 14,FO>") // RFC 7413, 4.1.1: asks for one
	f.Send("S. 0:0(0) ack 1 win 65535 <mss 1400,FO 0102030405060708>")
	f.Expect(". 1:1(0) ack 1 <>")
	f.Abort()
	f.Expect("R. 1:1(0) ack 1")
}

// RFC 7413, 4.1.3: with a cookie the first write goes with the SYN, as much of it as the MSS that the server announced then allows.
func TestFastOpenClient(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	learnCookie(p)
	f := fastConnect(p)
	p.Quiet(time.Second) // the SYN waits for data
	if !f.Conn.Up() || f.Conn.Done() {
		t.Fatal("not ready for a write")
	}
	f.Write(2000)
	f.Expect("S 0:1368(1368) win 64240 <mss 1460,sackOK,ts * *,ws 14,FO 0102030405060708>") // 1400 less 32 of options
	f.Send("S. 0:0(0) ack 1369 win 65535 <mss 1460>")
	f.Expect("P. 1369:2001(632) ack 1 <>")
	f.Send("P. 1:11(10) ack 2001")
	f.Expect(". 2001:2001(0) ack 11")
	f.WantRead(10)
	i := f.Info()
	if s := p.Stats().TCP; !i.FastOpen || i.BytesAcked != 2000 || s.FastOpenActive != 1 || s.FastOpenActiveFails != 0 {
		t.Errorf("%v, %d bytes acknowledged, %d and %d", i.FastOpen, i.BytesAcked, s.FastOpenActive, s.FastOpenActiveFails)
	}
	f.Write(10)
	f.Expect("P. 2001:2011(10) ack 11")
}

// RFC 7413, 4.1.3: what the SYN-ACK does not acknowledge is sent again as if it had never been; a new cookie takes the old one's place.
func TestFastOpenNotTaken(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	learnCookie(p)
	f := fastConnect(p)
	f.Write(100)
	f.Expect("S 0:100(100)")
	f.Send("S. 0:0(0) ack 1 win 65535 <mss 1460,FO aabbccdd>")
	f.Expect("P. 1:101(100) ack 1 <>")
	if s := p.Stats().TCP; f.Info().FastOpen || s.FastOpenActive != 0 || s.FastOpenActiveFails != 1 || s.RetransSegs != 0 {
		t.Errorf("%v, %d and %d, %d retransmissions", f.Info().FastOpen, s.FastOpenActive, s.FastOpenActiveFails, s.RetransSegs)
	}
	g := fastConnect(p)
	g.Write(10)
	g.Expect("S 0:10(10) <mss 1460,sackOK,ts * *,ws 14,FO aabbccdd>")
	g.Send("S. 0:0(0) ack 6 <mss 1460>") // a part of it
	g.Expect("P. 6:11(5) ack 1")
	h := fastConnect(p)
	h.Write(10)
	h.Expect("S 0:10(10)")
	h.Send("S. 0:0(0) ack 12 <mss 1460>") // more than was sent
	h.Expect("R 12:12(0)")
}

// RFC 7413, 4.1.3.1: a SYN that is sent again has neither data nor cookie. When that happens twice in a row the path counts as a black
// hole for a minute, and no Fast Open is tried.
func TestFastOpenBlackhole(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	learnCookie(p)
	lose := func() {
		f := fastConnect(p)
		f.Write(100)
		f.Expect("S 0:100(100)")
		f.ExpectAfter(time.Second, exact, "S 0:0(0) win 64240 <mss 1460,sackOK,ts * *,ws 14>")
		f.Send("S. 0:0(0) ack 1 <mss 1460>")
		f.Expect("P. 1:101(100) ack 1 <>")
		f.Send(". 1:1(0) ack 101")
	}
	lose()
	// The SYN-ACK of the first may still come, and takes the data.
	f := fastConnect(p)
	f.Write(100)
	f.Expect("S 0:100(100)")
	f.ExpectAfter(time.Second, exact, "S 0:0(0)")
	f.Send("S. 0:0(0) ack 101 <mss 1460>")
	f.Expect(". 101:101(0) ack 1")
	g := fastConnect(p)
	g.Expect("S 0:0(0) <mss 1460,sackOK,ts * *,ws 14>")
	g.Send("S. 0:0(0) ack 1 <mss 1460>")
	g.Expect(". 1:1(0) ack 1")
	p.Idle(61 * time.Second)
	p.Take()
	h := fastConnect(p)
	h.Write(100)
	p.Until(2*time.Second, func() bool { return len(p.Pending()) > 0 })
	h.Expect("S 0:100(100)")
	h.Send("S. 0:0(0) ack 101 <mss 1460>")
	h.Expect(". 101:101(0) ack 1")
	lose() // one in a row
	k := fastConnect(p)
	k.Write(10)
	k.Expect("S 0:10(10)")
}

// What else an application may do before the first write: read, end its stream, close.
func TestFastOpenWithoutWrite(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	learnCookie(p)
	f := fastConnect(p)
	f.WantReadErr(tcp.ErrWouldBlock)
	f.Expect("S 0:0(0) <mss 1460,sackOK,ts * *,ws 14,FO 0102030405060708>")
	f.Send("S. 0:0(0) ack 1 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
	g := fastConnect(p)
	g.CloseWrite()
	g.Expect("S 0:0(0)")
	g.Send("S. 0:0(0) ack 1 <mss 1460>")
	g.Expect("F. 1:1(0) ack 1")
	h := fastConnect(p)
	h.Close()
	h.WantState("")
	k := fastConnect(p) // written and closed: it is delivered
	k.Write(10)
	k.Close()
	k.Expect("S 0:10(10)")
	k.Send("S. 0:0(0) ack 11 <mss 1460>")
	k.Expect("F. 11:11(0) ack 1")
	r := fastConnect(p)
	r.Write(10)
	r.Expect("S 0:10(10)")
	r.Send("R. 0:0(0) ack 11")
	r.WantReadErr(tcp.Refused)
}

// fastCookie asks the stack for its cookie.
func fastCookie(p *tcptest.Peer, port uint16) string {
	p.T.Helper()
	f := p.Flow(port, 80)
	f.Send("S 0:0(0) win 65535 <mss 1460,FO>")
	seg := f.Expect("S. 0:0(0) ack 1")
	var o wire.Options
	if !wire.ParseOptions(seg.Opts, &o) || o.Set&wire.OptFastOpen == 0 || o.NCookie != 8 {
		p.T.Fatalf("no cookie: %+v", o)
	}
	f.Send("R 1:1(0)")
	return fmt.Sprintf("%x", o.Cookie[:8])
}

// RFC 7413, 4.2.2: a SYN with a good cookie opens a connection: its data is read, and answered, before the handshake is over.
func TestFastOpenServer(t *testing.T) {
	p := newPeer(t, tcp.Config{FastOpenQueue: 10})
	l := p.Listen(10)
	cookie := fastCookie(p, 4999)
	f := p.Flow(5000, 80)
	f.Send("S 0:10(10) win 65535 <mss 1460,FO " + cookie + ">")
	f.Expect("S. 0:0(0) ack 11 win 64240 <mss 1460>")
	f.Accept(l)
	f.WantRead(10)
	f.WantState("SYN-RECV")
	f.Write(2000)
	f.Expect(". 1:1461(1460) ack 11 <>")
	f.Expect("P. 1461:2001(540) ack 11 <>")
	f.Send("S 0:10(10) win 65535 <mss 1460,FO " + cookie + ">") // the SYN-ACK was lost
	f.Expect("S. 0:0(0) ack 11 <mss 1460>")
	f.Send(". 11:11(0) ack 2001")
	f.WantState("ESTAB")
	f.Send("P. 11:21(10) ack 2001")
	f.Expect(". 2001:2001(0) ack 21")
	f.WantRead(10)
	p.Quiet(10 * time.Second) // no SYN-ACK again
	if s := p.Stats().TCP; !f.Info().FastOpen || s.FastOpenPassive != 1 || s.FastOpenCookies != 1 || s.FastOpenPassiveFails != 0 || s.PassiveOpens != 1 {
		t.Errorf("%+v", s)
	}
}

// RFC 7413, 4.2.2: a SYN without a good cookie is one like others; its data is not taken, and the SYN-ACK brings a cookie.
func TestFastOpenBadCookie(t *testing.T) {
	p := newPeer(t, tcp.Config{FastOpenQueue: 10})
	l := p.Listen(10)
	good := fastCookie(p, 4999)
	for i, bad := range []string{"0000000000000000", "00000000", good[:8]} {
		f := p.Flow(uint16(5000+i), 80)
		f.Send("S 0:10(10) win 65535 <mss 1460,FO " + bad + ">")
		f.Expect("S. 0:0(0) ack 1 <mss 1460,FO " + good + ">")
		f.WantState("SYN-RECV")
		f.Send("P. 1:11(10) ack 1")
		f.Expect(". 1:1(0) ack 11")
		f.Accept(l)
		f.WantRead(10)
	}
	f := p.Flow(6000, 80) // data without the option
	f.Send("S 0:10(10) win 65535 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1 <mss 1460>")
	if s := p.Stats().TCP; s.FastOpenPassiveFails != 3 || s.FastOpenPassive != 0 {
		t.Errorf("%d bad cookies", s.FastOpenPassiveFails)
	}
	q := newPeer(t, tcp.Config{}) // no Fast Open
	q.Listen(1)
	g := q.Flow(5000, 80)
	g.Send("S 0:0(0) win 65535 <mss 1460,FO>")
	g.Expect("S. 0:0(0) ack 1 <mss 1460>")
}

// The key changes every hour; a cookie of the last period is good and is replaced, one of that before is not (RFC 7413, 4.1.2).
func TestFastOpenKeyRotation(t *testing.T) {
	p := newPeer(t, tcp.Config{FastOpenQueue: 10})
	l := p.Listen(10)
	old := fastCookie(p, 4999)
	p.Idle(time.Hour)
	fresh := fastCookie(p, 4998)
	if fresh == old {
		t.Fatal("the cookie did not change")
	}
	f := p.Flow(5000, 80)
	f.Send("S 0:10(10) win 65535 <mss 1460,FO " + old + ">")
	f.Expect("S. 0:0(0) ack 11 <mss 1460,FO " + fresh + ">")
	f.Send(". 11:11(0) ack 1")
	f.Accept(l)
	f.WantRead(10)
	f.Abort()
	f.Expect("R. 1:1(0) ack 11")
	p.Idle(time.Hour)
	fastCookie(p, 4997)
	g := p.Flow(5001, 80)
	g.Send("S 0:10(10) win 65535 <mss 1460,FO " + old + ">")
	g.Expect("S. 0:0(0) ack 1")
}

// RFC 7413, 5.1: a bounded number of connections is open before their handshake is over; one that is reset keeps its place for a time.
func TestFastOpenLimit(t *testing.T) {
	p := newPeer(t, tcp.Config{FastOpenQueue: 2, SynAckRetries: 2})
	l := p.Listen(10)
	cookie := fastCookie(p, 4999)
	open := func(port uint16, ack int) *tcptest.Flow {
		t.Helper()
		f := p.Flow(port, 80)
		f.Send("S 0:10(10) win 65535 <mss 1460,FO " + cookie + ">")
		f.Expect(fmt.Sprintf("S. 0:0(0) ack %d <mss 1460>", ack))
		return f
	}
	a := open(5000, 11)
	open(5001, 11).Send("R 11:11(0)")
	open(5002, 1) // as many as may be
	a.Send(". 11:11(0) ack 1")
	a.Accept(l)
	b := open(5003, 11)
	open(5004, 1)
	if s := p.Stats().TCP; s.FastOpenOverflows != 2 {
		t.Errorf("%d overflows", s.FastOpenOverflows)
	}
	// One whose handshake does not end is given up.
	for _, d := range []time.Duration{1, 2} {
		p.Idle(d * time.Second)
		p.Take()
	}
	b.WantState("SYN-RECV")
	p.Idle(5 * time.Second)
	p.Take()
	b.WantState("")
	p.Idle(53 * time.Second) // the reset one's place is free again, too
	p.Take()
	p.Flow(5005, 80).Send("S 0:0(0) <mss 1460>") // for the link address
	p.Take()
	open(5006, 11)
	open(5007, 11)
	open(5008, 1)
	p.Stack.CloseListener(l) // resets what nobody has accepted
	p.Take()
}

// With ECN: the option of AccECN gives way to the cookie.
func TestFastOpenAccECN(t *testing.T) {
	p := newPeer(t, tcp.Config{FastOpenQueue: 2, ECN: tcp.ECNAccurate})
	l := p.Listen(10)
	f := p.Flow(5000, 80)
	f.Send("SAEW 0:0(0) win 65535 <mss 1460,sackOK,ts * *,ws 7,FO>")
	syn := f.Expect("S.W 0:0(0) ack 1")
	var o wire.Options
	wire.ParseOptions(syn.Opts, &o)
	if o.Set&wire.OptFastOpen == 0 || o.Set&wire.OptAccECN != 0 {
		t.Errorf("options %x", o.Set)
	}
	f.Send("R 1:1(0)")
	g := p.Flow(5001, 80)
	g.Send(fmt.Sprintf("SAEW 0:10(10) win 65535 <mss 1460,FO %x>", o.Cookie[:8]))
	g.Expect("S.W 0:0(0) ack 11 <mss 1460,accecn 1 0 1>")
	g.Accept(l)
	g.Write(10)
	g.Expect("[ect0]P.AE 1:11(10) ack 11")
	g.Send(".W 11:11(0) ack 11")
}

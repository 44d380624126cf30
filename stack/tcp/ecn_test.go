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

// ecnServer opens a connection to a stack in mode m by the given SYN, and wants the flags in the SYN-ACK and the IP-ECN field of data.
func ecnServer(t *testing.T, m tcp.ECN, syn, synAck, ack, data string) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p := newPeer(t, tcp.Config{ECN: m})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send(syn + " 0:0(0) win 65535 <mss 1460>")
	f.Expect("[noecn]" + synAck + " 0:0(0) ack 1")
	f.Send(ack + " 1:1(0) ack 1 win 65535")
	f.Accept(l)
	f.Write(10)
	f.Expect(data + " 1:11(10) ack 1")
	f.Send(ack + " 1:1(0) ack 11 win 65535")
	return p, f
}

// RFC 3168, 6.1.1: what a server answers, by mode; data is ECT(0) only after a negotiation (6.1.4).
func TestECNServer(t *testing.T) {
	for _, tc := range []struct {
		m                 tcp.ECN
		syn, synAck, data string
	}{
		{tcp.ECNDefault, "S", "S.", "[noecn]P."},
		{tcp.ECNDefault, "SEW", "S.E", "[ect0]P."},
		{tcp.ECNPassive, "SEW", "S.E", "[ect0]P."},
		{tcp.ECNPassive, "SE", "S.", "[noecn]P."},
		{tcp.ECNPassive, "SW", "S.", "[noecn]P."},
		{tcp.ECNPassive, "SAEW", "S.E", "[ect0]P."}, // AccECN is answered by classic ECN (RFC 9768, table 2)
		{tcp.ECNOn, "SEW", "S.E", "[ect0]P."},
		{tcp.ECNOff, "SEW", "S.", "[noecn]P."},
		{tcp.ECNAccurate, "SEW", "S.E", "[ect0]P."},
		{tcp.ECNAccurate, "S", "S.", "[noecn]P."},
	} {
		t.Run(fmt.Sprintf("mode %d, %s", tc.m, tc.syn), func(t *testing.T) {
			_, f := ecnServer(t, tc.m, tc.syn, tc.synAck, ".", tc.data)
			if i := f.Info(); i.ECN != (tc.data == "[ect0]P.") || i.AccECN || i.ECNSeen {
				t.Errorf("%v %v %v", i.ECN, i.AccECN, i.ECNSeen)
			}
		})
	}
}

// RFC 3168, 6.1.3: a receiver echoes a mark at once and on all acknowledgements, until CWR comes.
func TestECNReceiver(t *testing.T) {
	p, f := ecnServer(t, tcp.ECNPassive, "SEW", "S.E", ".", "[ect0]P.")
	at := 1
	send := func(ecn, flags, want string) {
		t.Helper()
		f.Send(fmt.Sprintf("%s%s %d:%d(10) ack 11", ecn, flags, at, at+10))
		at += 10
		f.Expect(fmt.Sprintf("[noecn]%s 11:11(0) ack %d", want, at))
	}
	send("[ect0]", "P.", ".")
	send("[ce]", "P.", ".E")
	if !f.Info().CEState { // DCTCP.CE of RFC 8257, 3.2
		t.Error("no mark on the last data")
	}
	send("[ect0]", "P.", ".E")
	if f.Info().CEState {
		t.Error("a mark on the last data")
	}
	send("[noecn]", "P.", ".E")
	f.Write(10) // data echoes as well
	f.Expect(fmt.Sprintf("[ect0]P.E 11:21(10) ack %d", at))
	f.Send(fmt.Sprintf(". %d:%d(0) ack 21", at, at))
	f.Send(fmt.Sprintf("[ect0]P.W %d:%d(10) ack 21", at, at+10))
	at += 10
	f.Expect(fmt.Sprintf(". 21:21(0) ack %d", at))             // at once: the peer's window may be small
	f.Send(fmt.Sprintf("[ce]P.W %d:%d(10) ack 21", at, at+10)) // a new mark on the very segment
	f.Expect(fmt.Sprintf(".E 21:21(0) ack %d", at+10))
	if i, s := f.Info(), p.Stats().TCP; !i.ECNSeen || s.CEIn != 2 || s.EcnOpens != 1 || s.AccEcnOpens != 0 {
		t.Errorf("seen %v, %d marks, %d connections", i.ECNSeen, s.CEIn, s.EcnOpens)
	}
}

// A mark does not wait for the delayed acknowledgement even when acknowledgements ride on data.
func TestECNMarkAtOnce(t *testing.T) {
	p, f := ecnServer(t, tcp.ECNPassive, "SEW", "S.E", ".", "[ect0]P.")
	for i := range 20 { // until the phase of quick acknowledgements is over
		f.Send(fmt.Sprintf("[ect0]P. %d:%d(10) ack 11", 1+10*i, 11+10*i))
		p.Take()
	}
	f.Send("[ect0]P. 201:211(10) ack 11")
	f.ExpectAfter(20*ms, 20*ms, ". 11:11(0) ack 211")
	f.Send("[ect0]P. 211:221(10) ack 11")
	p.Done()
	f.Send("[ce]P. 221:231(10) ack 11")
	f.Expect(".E 11:11(0) ack 231")
}

// RFC 3168, 6.1.2: the sender reduces its window once per window of data, as for a loss, and says CWR with the next new data.
// Retransmissions are not ECT (6.1.5).
func TestECNSender(t *testing.T) {
	p, f := ecnServer(t, tcp.ECNPassive, "SEW", "S.E", ".", "[ect0]P.")
	const mss = 1460
	f.Write(60 * mss)
	next := 11
	take := func(n int, first string) {
		t.Helper()
		for i := range n {
			flags := "."
			switch {
			case i == 0:
				flags = first
			case i == n/2-1, i == n-1:
				flags = "P."
			}
			f.Expect(fmt.Sprintf("[ect0]%s %d:%d(1460) ack 1", flags, next, next+mss))
			next += mss
		}
	}
	cwnd := f.Info().Cwnd
	take(int(cwnd/mss), ".")
	p.Idle(10 * ms)
	una := 11
	ack := func(flags string, n int) {
		una += n * mss
		f.Send(fmt.Sprintf("%s 1:1(0) ack %d win 65535", flags, una))
	}
	first := true
	collect := func() {
		t.Helper()
		for _, fr := range p.Take() {
			seg, _ := p.Parse(fr.Data)
			if cwr := seg.Flags&wire.CWR != 0; cwr != first {
				t.Errorf("CWR is %v on %d", cwr, seg.Seq-f.IRS)
			}
			first = false
			next += len(seg.Payload)
		}
	}
	ack(".E", 2)
	i := f.Info()
	if i.CAState != "cwr" || i.Ssthresh < cwnd/2-mss || i.Ssthresh > cwnd/2 {
		t.Errorf("state %s, ssthresh %d, the window was %d", i.CAState, i.Ssthresh, cwnd)
	}
	end := next
	collect()
	for una+2*mss <= end { // the rest of the window: no further reduction
		ack(".E", 2)
		collect()
	}
	if first {
		t.Error("nothing was sent with CWR")
	}
	if s := p.Stats().TCP; s.EcnReductions != 1 || s.Recoveries != 0 {
		t.Errorf("%d reductions, %d recoveries", s.EcnReductions, s.Recoveries)
	}
	if w := f.Info().Cwnd; w > i.Ssthresh+mss {
		t.Errorf("the window is %d, ssthresh %d", w, i.Ssthresh)
	}
	// What is beyond that window is acknowledged without ECE: the reduction is over. The next ECE is another.
	una = next - mss
	f.Send(fmt.Sprintf(". 1:1(0) ack %d win 65535", una))
	if s := f.Info().CAState; s != "open" {
		t.Errorf("state %s", s)
	}
	for range p.Take() {
		next += mss
	}
	ack(".E", 1)
	p.Take()
	if s := p.Stats().TCP; s.EcnReductions != 2 {
		t.Errorf("%d reductions, want 2", s.EcnReductions)
	}
	// A timeout sends the head again, Not-ECT.
	f.ExpectAfter(300*ms, 250*ms, fmt.Sprintf("[noecn]. %d:%d(1460) ack 1", una, una+mss))
	p.Take()
}

// RFC 3168, 6.1.1: what a client makes of SYN-ACKs.
func TestECNClient(t *testing.T) {
	for _, tc := range []struct {
		m           tcp.ECN
		syn, synAck string
		ack, data   string
	}{
		{tcp.ECNOn, "SEW", "S.E", ".", "[ect0]P."},
		{tcp.ECNOn, "SEW", "S.", ".", "[noecn]P."},
		{tcp.ECNOn, "SEW", "S.EW", ".", "[noecn]P."}, // a server that reflects flags
		{tcp.ECNPassive, "S", "S.E", ".", "[noecn]P."},
		{tcp.ECNOff, "S", "S.E", ".", "[noecn]P."},
		{tcp.ECNAccurate, "SAEW", "S.E", ".", "[ect0]P."},
		{tcp.ECNAccurate, "SAEW", "S.", ".", "[noecn]P."},
		{tcp.ECNAccurate, "SAEW", "S.AEW", ".", "[noecn]P."},        // broken (RFC 9768, table 2)
		{tcp.ECNAccurate, "SAEW", "S.W", ".W", "[ect0]P.AE"},        // 010: AccECN; the ACK says Not-ECT, data 5
		{tcp.ECNAccurate, "SAEW", "S.AE", ".W", "[ect0]P.AE"},       // 101, reserved: AccECN
		{tcp.ECNAccurate, "SAEW", "S.EW", ".W", "[noecn]P.AE"},      // 011: our SYN came as ECT(1): the path mangles
		{tcp.ECNAccurate, "SAEW", "S.A", ".W", "[noecn]P.AE"},       // 100: as ECT(0)
		{tcp.ECNAccurate, "SAEW", "S.AW", ".W", "[noecn]P.AE"},      // 110: as CE
		{tcp.ECNAccurate, "SAEW", "[ect1]S.W", ".EW", "[ect0]P.AE"}, // the SYN-ACK came as ECT(1), as which it may have been sent
		{tcp.ECNAccurate, "SAEW", "[ect0]S.W", ".A", "[ect0]P.AE"},
		{tcp.ECNAccurate, "SAEW", "[ce]S.W", ".AW", "[ect0]P.AW"}, // the counter begins at 6
	} {
		t.Run(fmt.Sprintf("mode %d, %s", tc.m, tc.synAck), func(t *testing.T) {
			p := newPeer(t, tcp.Config{ECN: tc.m})
			f := p.Connect()
			f.Expect("[noecn]" + tc.syn + " 0:0(0)")
			f.Send(tc.synAck + " 0:0(0) ack 1 win 65535 <mss 1460>")
			f.Expect("[noecn]" + tc.ack + " 1:1(0) ack 1 <>")
			f.Write(10)
			f.Expect(tc.data + " 1:11(10) ack 1 <>")
		})
	}
}

// RFC 3168, 6.1.1.1, and RFC 9768, 3.1.4.1: a SYN that asks for ECN and is not answered is sent again without. After two such opens to
// a peer in a row it is not asked for an hour.
func TestECNFallback(t *testing.T) {
	for _, tc := range []struct {
		m    tcp.ECN
		syns []string
	}{
		{tcp.ECNOn, []string{"SEW", "S", "S"}},
		{tcp.ECNAccurate, []string{"SAEW", "SAEW", "S", "S"}},
	} {
		p := newPeer(t, tcp.Config{ECN: tc.m})
		hole := func() *tcptest.Flow {
			f := p.Connect()
			for i, syn := range tc.syns {
				if i == 0 {
					f.Expect(syn + " 0:0(0)")
				} else {
					f.ExpectAfter(time.Second<<(i-1), exact, syn+" 0:0(0)")
				}
			}
			f.Send("S. 0:0(0) ack 1 <mss 1460>")
			f.Expect(". 1:1(0) ack 1 <>")
			return f
		}
		hole()
		hole()
		f := p.Connect()
		f.Expect("S 0:0(0)")
		f.Send("S. 0:0(0) ack 1 <mss 1460>")
		f.Expect(". 1:1(0) ack 1")
		if s := p.Stats().TCP; s.EcnFallbacks != 2 {
			t.Errorf("%d fallbacks, want 2", s.EcnFallbacks)
		}
		p.Idle(61 * time.Minute)
		p.Take()
		f = p.Connect()
		p.Until(5*time.Second, func() bool { return f.State() == "SYN-SENT" && len(p.Pending()) > 0 })
		f.Expect(tc.syns[0] + " 0:0(0)")
		f.Send("S. 0:0(0) ack 1 <mss 1460>") // it answers: nothing is held against it any more
		f.Expect(". 1:1(0) ack 1")
		hole()
		f = p.Connect()
		f.Expect(tc.syns[0] + " 0:0(0)")
		f.Abort()
	}
}

// A client that has sent a SYN that did not ask must not use classic ECN (RFC 3168, 6.1.1).
func TestECNLateAnswer(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNOn})
	f := p.Connect()
	f.Expect("SEW 0:0(0)")
	f.ExpectAfter(time.Second, exact, "S 0:0(0)")
	f.Send("S.E 0:0(0) ack 1 <mss 1460>") // the answer to the first
	f.Expect(". 1:1(0) ack 1")
	f.Write(10)
	f.Expect("[noecn]P. 1:11(10) ack 1")
	// And a server whose client has sent one does not either.
	q := newPeer(t, tcp.Config{})
	l := q.Listen(1)
	g := q.Flow(5000, 80)
	g.Send("SEW 0:0(0) <mss 1460>")
	g.Expect("S.E 0:0(0) ack 1")
	g.Send("S 0:0(0) <mss 1460>")
	g.Expect("S.E 0:0(0) ack 1")
	g.Send(". 1:1(0) ack 1")
	g.Accept(l)
	g.Write(10)
	g.Expect("[noecn]P. 1:11(10) ack 1")
}

// The mode of one connection goes before the stack's.
func TestECNOfOneConnection(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNOff})
	c, err := p.Stack.ConnectAs(netip.AddrPort{}, netip.AddrPortFrom(tcptest.PeerAddr, 80), &tcp.Setup{ECN: tcp.ECNOn})
	if err != nil {
		t.Fatal(err)
	}
	f := p.Flow(80, c.Tuple.LocalPort)
	f.Conn = c
	f.Expect("SEW 0:0(0)")
	f.Send("S.E 0:0(0) ack 1 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
	l, err := p.Stack.ListenAs(netip.AddrPortFrom(tcptest.StackAddr, 80), 1, false, &tcp.Setup{ECN: tcp.ECNPassive})
	if err != nil {
		t.Fatal(err)
	}
	g := p.Flow(5000, 80)
	g.Send("SEW 0:0(0) <mss 1460>")
	g.Expect("S.E 0:0(0) ack 1")
	g.Send(". 1:1(0) ack 1")
	g.Accept(l)
}

// Two ends that ask each other at the same time answer each other (RFC 3168, 6.1.1; RFC 9293, 3.5).
func TestECNSimultaneousOpen(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNOn})
	f := p.Connect()
	f.Expect("SEW 0:0(0)")
	f.Send("SEW 0:0(0) <mss 1460>")
	f.Expect("S.E 0:0(0) ack 1")
	f.Send("S.E 0:0(0) ack 1 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
	f.Write(10)
	f.Expect("[ect0]P. 1:11(10) ack 1")
}

// A cookie keeps ECN in the timestamp; which variant it was, the acknowledgement shows (RFC 9768, 5.1).
func TestECNCookie(t *testing.T) {
	for _, tc := range []struct{ syn, synAck, ack, data string }{
		{"SEW", "S.E", ".", "[ect0]P."},
		{"SAEW", "S.W", ".W", "[ect0]P.AE"},
		{"S", "S.", ".", "[noecn]P."},
	} {
		p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate, SynCookies: tcp.CookiesAlways})
		l := p.Listen(1)
		f := p.Flow(5000, 80)
		f.TS = true
		f.Send(tc.syn + " 0:0(0) <mss 1460,sackOK,ts * *,ws 7>")
		f.Expect(tc.synAck + " 0:0(0) ack 1")
		f.Send(tc.ack + " 1:1(0) ack 1")
		f.Accept(l)
		f.Write(10)
		f.Expect(tc.data + " 1:11(10) ack 1")
	}
}

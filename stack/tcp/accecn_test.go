package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// aceFlags writes an ACE field as scripts do.
func aceFlags(v int) (s string) {
	for i, c := range []string{"E", "W", "A"} {
		if v>>i&1 != 0 {
			s += c
		}
	}
	return s
}

// aceOf is the ACE field of a segment.
func aceOf(t *wire.TCP) int { return int(t.Flags >> 6 & 7) }

// RFC 9768, table 2: the server answers with the IP-ECN field of the SYN; and table 4: what it makes of the last ACK of the handshake.
// Its SYN-ACK is Not-ECT: if the client says otherwise the path changes the field, and data is not marked.
func TestAccECNServer(t *testing.T) {
	for _, tc := range []struct{ syn, synAck, ack, data string }{
		{"SAEW", "S.W", ".W", "[ect0]P.AE"},
		{"[ect1]SAEW", "S.EW", ".W", "[ect0]P.AE"},
		{"[ect0]SAEW", "S.A", ".W", "[ect0]P.AE"},
		{"[ce]SAEW", "S.AW", ".W", "[ect0]P.AE"}, // a mark on the SYN is not counted (3.2.1)
		{"SA", "S.W", ".W", "[ect0]P.AE"},        // 3.1.2: what is not known counts as 111
		{"SE", "S.W", ".W", "[ect0]P.AE"},
		{"SW", "S.W", ".W", "[ect0]P.AE"},
		{"SAE", "S.W", ".W", "[ect0]P.AE"},
		{"SAEW", "S.W", ".", "[noecn]P.AE"}, // 000: cleared on the path
		{"SAEW", "S.W", ".E", "[ect0]P.AE"},
		{"SAEW", "S.W", ".EW", "[noecn]P.AE"},
		{"SAEW", "S.W", ".A", "[noecn]P.AE"},
		{"SAEW", "S.W", ".AE", "[ect0]P.AE"},
		{"SAEW", "S.W", ".AW", "[noecn]P.AE"},
		{"SAEW", "S.W", ".AEW", "[ect0]P.AE"},
	} {
		t.Run(tc.syn+" "+tc.ack, func(t *testing.T) {
			_, f := ecnServer(t, tcp.ECNAccurate, tc.syn, tc.synAck, tc.ack, tc.data)
			if i := f.Info(); !i.ECN || !i.AccECN {
				t.Error("no AccECN")
			}
		})
	}
}

// accServer opens an AccECN connection whose peer sends options if opts says so.
func accServer(t *testing.T, opts bool) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("SAEW 0:0(0) win 65535 <mss 1460,sackOK>")
	f.Expect("S.W 0:0(0) ack 1 <mss 1460,sackOK,accecn 1 0 1>")
	if opts {
		f.Send(".W 1:1(0) ack 1 <accecn 1 0 1>")
	} else {
		f.Send(".W 1:1(0) ack 1")
	}
	f.Accept(l)
	return p, f
}

// RFC 9768, 3.2.1 and 3.2.3: the receiver counts marked segments in the ACE field and bytes in the option, which goes on bare
// acknowledgements and on data that has room for it, if the peer has sent one.
func TestAccECNReceiver(t *testing.T) {
	_, f := accServer(t, true)
	at, ces := 1, 0
	bytes := [4]int{wire.ECT1: 1, wire.ECT0: 1}
	send := func(cp, n int) {
		t.Helper()
		f.Send(fmt.Sprintf("%sP.AE %d:%d(%d) ack 1 <accecn 1 0>", [4]string{"[noecn]", "[ect1]", "[ect0]", "[ce]"}[cp], at, at+n, n))
		at += n
		bytes[cp] += n
		if cp == wire.CE {
			ces++
		}
		opt := fmt.Sprintf("accecn %d %d %d", bytes[wire.ECT0], bytes[wire.CE], bytes[wire.ECT1])
		f.Expect(fmt.Sprintf("[noecn].%s 1:1(0) ack %d <%s>", aceFlags((5+ces)%8), at, opt))
		if i := f.Info(); i.CEState != (cp == wire.CE) { // DCTCP.CE of RFC 8257, 3.2
			t.Errorf("the last data was marked: %v", i.CEState)
		}
	}
	for _, cp := range []int{wire.ECT0, wire.CE, wire.CE, wire.ECT0, wire.NotECT, wire.CE, wire.CE, wire.CE, wire.ECT1} {
		send(cp, 100)
	}
	if i := f.Info(); int(i.CEIn) != ces || !i.ECNSeen || i.ECNBytesIn != [4]uint32{wire.NotECT: 100, wire.ECT1: 100, wire.ECT0: 200, wire.CE: 500} {
		t.Errorf("%d marks, want %d; bytes %v", i.CEIn, ces, i.ECNBytesIn)
	}
	f.Write(10)
	f.Expect(fmt.Sprintf("[ect0]P.%s 1:11(10) ack %d <accecn 201 500 101>", aceFlags((5+ces)%8), at))
	f.Send(fmt.Sprintf(".AE %d:%d(0) ack 11", at, at))
	f.Write(1460) // no room for the option
	f.Expect(fmt.Sprintf("[ect0]P.%s 11:1471(1460) ack %d <>", aceFlags((5+ces)%8), at))
}

// RFC 9768, 3.2.3.3 and A.2.1: what a full segment has no room for, marks and how few they were of many, is said before it.
func TestAccECNBeforeFullSegments(t *testing.T) {
	for _, c := range []struct {
		segments int
		marked   bool // the first one
	}{{7, false}, {8, false}, {1, true}, {8, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p, f := accServer(t, true)
			f.SendBatch("[ect0].AE 1:1441(1440) ack 1 <accecn 1 0 1>", "[ect0].AE 1441:2881(1440) ack 1 <accecn 1 0 1>") // so long are its segments
			f.Expect(".AE 1:1(0) ack 2881 <accecn 2881 0 1>")
			at, ce, ace := 2881, 0, "AE"
			var batch [][]byte
			for i := range c.segments {
				field := "ect0"
				if i == 0 && c.marked {
					field, ce, ace = "ce", 1440, "AW"
				}
				batch = append(batch, f.Build(fmt.Sprintf("[%s].AE %d:%d(1440) ack 1 <accecn 1 0 1>", field, at, at+1440)))
				at += 1440
			}
			if _, err := f.Conn.TryWrite(tcptest.Bytes(0, 1460)); err != nil { // what it acknowledges comes in the same turn
				t.Fatal(err)
			}
			p.SendFrames(batch...)
			if c.marked || c.segments > 7 {
				f.Expect(fmt.Sprintf(".%s 1:1(0) ack %d <accecn %d %d 1>", ace, at, at-ce, ce))
			}
			f.Expect(fmt.Sprintf("[ect0]P.%s 1:1461(1460) ack %d <>", ace, at))
			p.Done()
		})
	}
}

// Where SACK blocks leave no room, the last of three makes some for the counters that have changed (RFC 9768, 3.2.3.3); two stay.
func TestAccECNBesideSACK(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("SAEW 0:0(0) win 10000 <mss 1460,sackOK>")
	f.Expect("S.W 0:0(0) ack 1 <mss 1460,sackOK,accecn 1 0 1>")
	f.Send(".W 1:1(0) ack 1 win 10000 <accecn 1 0 1>")
	f.Accept(l)
	for i, want := range []string{
		"accecn 11 0 1,sack 11:21", "accecn 21 0 1,sack 31:41 11:21", "accecn 31 0 1,sack 51:61 31:41 11:21", "accecn 41 0 1,sack 71:81 51:61 31:41",
	} {
		f.Send(fmt.Sprintf("[ect0]P.AE %d:%d(10) ack 1", 11+20*i, 21+20*i))
		f.Expect(".AE 1:1(0) ack 1 <" + want + ">")
	}
	// Beside timestamps even that would not be room enough: then the blocks stay.
	f = p.Flow(5001, 80)
	f.Send("SAEW 0:0(0) win 10000 <mss 1460,sackOK,ts 100 0>")
	f.Expect("S.W 0:0(0) ack 1 <mss 1460,sackOK,ts * 100,accecn 1 0 1>")
	f.Send(".W 1:1(0) ack 1 win 10000 <ts 100 0,accecn 1 0 1>")
	f.Accept(l)
	for i, want := range []string{"accecn 11 0 1,sack 11:21", "sack 31:41 11:21", "sack 51:61 31:41 11:21"} {
		f.Send(fmt.Sprintf("[ect0]P.AE %d:%d(10) ack 1 <ts 100 0>", 11+20*i, 21+20*i))
		f.Expect(".AE 1:1(0) ack 1 <ts * 100," + want + ">")
	}
}

// Without options from the peer none are sent but the one in the SYN-ACK: they may not get through (RFC 9768, 3.2.3.2).
func TestAccECNNoOptions(t *testing.T) {
	_, f := accServer(t, false)
	f.Send("[ce]P.AE 1:11(10) ack 1")
	f.Expect(".AW 1:1(0) ack 11 <>")
}

// RFC 9768, 3.2.2.5.1: no acknowledgement brings more marks than the ACE field can say, however many come in one burst.
func TestAccECNBurst(t *testing.T) {
	for _, n := range []int{1, 5, 6, 7, 20, 60} {
		p, f := accServer(t, true)
		var batch []string
		for i := range n {
			batch = append(batch, fmt.Sprintf("[ce].AE %d:%d(100) ack 1 <accecn 1 0>", 1+100*i, 101+100*i))
		}
		f.SendBatch(batch...)
		last, sum := 5, 0
		frames := p.Take()
		for _, fr := range frames {
			seg, _ := p.Parse(fr.Data)
			sum += (aceOf(&seg) - last) & 7
			last = aceOf(&seg)
		}
		if sum != n || len(frames) > n/6+1 {
			t.Errorf("%d marks in one burst: %d reported by %d acknowledgements", n, sum, len(frames))
		}
		f.WantRead(100 * n)
	}
}

// accSender opens an AccECN connection with a window of n full segments in flight.
func accSender(t *testing.T, n int) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p, f := accServer(t, true)
	f.Write(n * 1460)
	for i := range n {
		flags := "."
		if i == n/2-1 || i == n-1 {
			flags = "P."
		}
		f.Expect(fmt.Sprintf("[ect0]%sAE %d:%d(1460) ack 1", flags, 1+1460*i, 1461+1460*i))
	}
	p.Idle(ms)
	return p, f
}

// RFC 9768, 3.2.2: a step of the ACE field is a mark; the window is reduced once per window of data, and CWR is not said.
func TestAccECNSender(t *testing.T) {
	p, f := accSender(t, 10)
	f.Send(".AW 1:1(0) ack 2921") // 6
	i := f.Info()
	if i.CAState != "cwr" || i.CEOut != 1 {
		t.Errorf("state %s, %d marks", i.CAState, i.CEOut)
	}
	f.Write(1460)
	f.Expect("[ect0]P.AE 14601:16061(1460) ack 1") // neither CWR nor another counter
	f.Send(".AEW 1:1(0) ack 8761")                 // 7
	f.Send(".E 1:1(0) ack 14601")                  // 1: round once
	p.Take()
	if s := p.Stats().TCP; s.EcnReductions != 1 || f.Info().CEOut != 4 || s.ECEIn != 3 {
		t.Errorf("%d reductions, %d marks, %d reports", s.EcnReductions, f.Info().CEOut, s.ECEIn)
	}
	f.Send(".E 1:1(0) ack 16061") // what was in flight then has been acknowledged
	if i := f.Info(); i.CAState != "open" || p.Stats().TCP.EcnReductions != 1 {
		t.Errorf("state %s, %d reductions", i.CAState, p.Stats().TCP.EcnReductions)
	}
}

// RFC 9768, A.2.1: if more than seven segments are acknowledged at once, the field may have gone round; it is taken to have, unless the
// bytes in the option rule that out.
func TestAccECNWrap(t *testing.T) {
	for _, tc := range []struct {
		ack  string
		want uint32
	}{
		{".AE 1:1(0) ack 10221", 0},                         // 7 segments, no step
		{".A 1:1(0) ack 10221", 7},                          // 7 steps
		{".AE 1:1(0) ack 14601", 8},                         // 10 segments: round once, to be safe
		{".AE 1:1(0) ack 14601 <accecn 14601 0>", 0},        // no byte was marked
		{".AE 1:1(0) ack 14601 <accecn 2921 11680>", 8},     // eight segments were
		{".AW 1:1(0) ack 14601 <accecn 13141 1460>", 1},     // one was
		{".AW 1:1(0) ack 14601 <accecn 1461 13140>", 9},     // nine
		{".AEW 1:1(0) ack 2921", 2},                         // fewer than seven segments
		{".AW 1:1(0) ack 14601 <accecn 13141 1460 1>", 1},   // with the third counter
		{".AE 1:1(0) ack 14601 <accecn 14601 16777215>", 0}, // a counter that runs backwards is no mark
	} {
		_, f := accSender(t, 10)
		f.Send(tc.ack)
		if i := f.Info(); i.CEOut != tc.want || (i.CAState == "cwr") != (tc.want > 0) {
			t.Errorf("%s: %d marks in state %s, want %d", tc.ack, i.CEOut, i.CAState, tc.want)
		}
	}
}

// The last ACK of the handshake says Not-ECT in place of a counter, whenever it is sent; what follows counts. An ACE field of 0 in the
// first segment of the server means that the path clears it (RFC 9768, 3.2.2.1 and 3.2.2.4).
func TestAccECNClientHandshake(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	open := func() *tcptest.Flow {
		f := p.Connect()
		f.Expect("SAEW 0:0(0)")
		f.Send("S.W 0:0(0) ack 1 <mss 1460,accecn 1 0 1>")
		f.Expect(".W 1:1(0) ack 1 <accecn 1 0 1>")
		return f
	}
	f := open()
	p.Idle(time.Second)
	f.Send("S.W 0:0(0) ack 1 <mss 1460>") // the ACK was lost
	f.Expect(".W 1:1(0) ack 1")
	f.Send("[ect0]P.AE 1:11(10) ack 1 <accecn 1 0>")
	f.Expect(".AE 1:1(0) ack 11 <accecn 11 0 1>")
	g := open()
	g.Send("[ect0]P. 1:11(10) ack 1")
	g.Expect(".AE 1:1(0) ack 11")
	g.Write(10)
	g.Expect("[noecn]P.AE 1:11(10) ack 11")
}

// RFC 9768, 3.2.3.2.2, 3.1.4.2 and 3.1.5: a SYN-ACK that is sent again has no option, and then no flags; the mode stays, and data is not marked.
func TestAccECNSynAckAgain(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("SAEW 0:0(0) <mss 1460>")
	f.Expect("S.W 0:0(0) ack 1 <mss 1460,accecn 1 0 1>")
	f.ExpectAfter(time.Second, exact, "S.W 0:0(0) ack 1 <mss 1460>")
	f.Send("[ect0]SAEW 0:0(0) <mss 1460>") // the latest SYN counts
	f.Expect("S.A 0:0(0) ack 1 <mss 1460>")
	f.ExpectAfter(2*time.Second, exact, "S. 0:0(0) ack 1 <mss 1460>")
	f.Send(".W 1:1(0) ack 1")
	f.Accept(l)
	f.Write(10)
	f.Expect("[noecn]P.AE 1:11(10) ack 1")
}

// RFC 9768, 3.1.4.2 and 3.1.5: a SYN without flags after one with them means that the path may not bear ECN; one for classic ECN cannot
// come from the same client.
func TestAccECNOtherSyn(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("[ect0]SAEW 0:0(0) <mss 1460>")
	f.Expect("S.A 0:0(0) ack 1")
	f.Send("[noecn]S 0:0(0) <mss 1460>")
	f.Expect("S.W 0:0(0) ack 1 <mss 1460>") // what it had
	f.Send(".W 1:1(0) ack 1")
	f.Accept(l)
	f.Write(10)
	f.Expect("[noecn]P.AE 1:11(10) ack 1")
	g := p.Flow(5001, 80)
	g.Send("SAEW 0:0(0) <mss 1460>")
	g.Expect("S.W 0:0(0) ack 1")
	g.Send("SEW 0:0(0) <mss 1460>")
	g.Expect("R. 1:1(0) ack 1")
	g.WantState("")
}

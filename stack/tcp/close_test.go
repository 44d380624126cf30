package tcp_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// RFC 9293, 3.6, case 1: we close first, and keep the connection in mind for a minute (MUST-13).
func TestCloseFirst(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	f.WantState("FIN-WAIT-1")
	f.Send(". 1:1(0) ack 2")
	f.WantState("FIN-WAIT-2")
	f.Send("F. 1:1(0) ack 2")
	f.Expect(". 2:2(0) ack 2")
	f.WantState("")
	if s := p.Stats().TCP; s.Conns != 0 || s.TimeWaits != 1 {
		t.Errorf("%d connections, %d in TIME-WAIT", s.Conns, s.TimeWaits)
	}
	p.Quiet(60*time.Second + ms)
	if s := p.Stats().TCP; s.TimeWaits != 0 {
		t.Errorf("%d in TIME-WAIT after a minute", s.TimeWaits)
	}
	f.Send("F. 1:1(0) ack 2")
	f.Expect("R 2:2(0)")
}

// ... the acknowledgement and the peer's FIN in one segment (RFC 9293, figure 12).
func TestCloseFirstFinAck(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	f.Send("F. 1:1(0) ack 2")
	f.Expect(". 2:2(0) ack 2")
	f.WantState("")
	p.Done()
}

// RFC 9293, 3.6, case 2: the peer closes first.
func TestCloseSecond(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("F. 1:1(0) ack 1")
	f.Expect(". 1:1(0) ack 2")
	f.WantState("CLOSE-WAIT")
	f.WantReadErr(io.EOF)
	f.Close()
	f.Expect("F. 1:1(0) ack 2")
	f.WantState("LAST-ACK")
	f.Send(". 2:2(0) ack 2")
	f.WantState("")
	if s := p.Stats().TCP; s.TimeWaits != 0 {
		t.Error("TIME-WAIT at the end that closed second")
	}
}

// RFC 9293, 3.6, case 3 and figure 13: both close at once.
func TestSimultaneousClose(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	f.Send("F. 1:1(0) ack 1")
	f.Expect(". 2:2(0) ack 2")
	f.WantState("CLOSING")
	f.Send(". 2:2(0) ack 2")
	f.WantState("")
	if s := p.Stats().TCP; s.TimeWaits != 1 {
		t.Errorf("%d in TIME-WAIT, want 1", s.TimeWaits)
	}
	p.Done()
}

// A half close of ours: the peer's data still comes in, and is delivered.
func TestHalfClose(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Write(100)
	f.Expect("P. 1:101(100) ack 1")
	f.CloseWrite()
	f.Expect("F. 101:101(0) ack 1")
	f.WantWriteErr(tcp.Shutdown) // EPIPE
	f.Send("P. 1:1001(1000) ack 102")
	f.Expect(". 102:102(0) ack 1001")
	f.WantState("FIN-WAIT-2")
	f.WantRead(1000)
	f.Send("FP. 1001:1011(10) ack 102")
	f.Expect(". 102:102(0) ack 1012")
	f.WantRead(10)
	f.WantReadErr(io.EOF)
}

// The peer's data in FIN-WAIT-1, before it has seen our FIN.
func TestDataInFinWait1(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.CloseWrite()
	f.Expect("F. 1:1(0) ack 1")
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 2:2(0) ack 1001")
	f.WantState("FIN-WAIT-1")
	f.WantRead(1000)
	f.Send(". 1001:1001(0) ack 2")
	f.WantState("FIN-WAIT-2")
}

// A FIN follows what is queued, on the last segment (F3: it joins it).
func TestFinJoinsData(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1000", 1500)
	f.Write(1800)
	f.Close()
	f.Expect("P. 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 1001 win 1500")
	f.Expect("FP. 1001:1801(800) ack 1")
	f.Send(". 1:1(0) ack 1802 win 1500")
	f.WantState("FIN-WAIT-2")
}

// RFC 9293, 3.10.4 and RFC 2525, 2.17: Close with unread data sends a reset.
func TestCloseWithUnreadData(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("P. 1:11(10) ack 1")
	f.Expect(". 1:1(0) ack 11")
	f.Close()
	f.Expect("R. 1:1(0) ack 11")
	f.WantState("")
	if s := p.Stats().TCP; s.AbortOnClose != 1 {
		t.Errorf("%d aborts on close", s.AbortOnClose)
	}
}

// ... even if it came out of order.
func TestCloseWithUnreadOutOfOrderData(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("P. 11:21(10) ack 1")
	f.Expect(". 1:1(0) ack 1")
	f.Close()
	f.Expect("R. 1:1(0) ack 1")
	f.WantState("")
}

// Data that comes after Close is answered with a reset, in FIN-WAIT-1 and FIN-WAIT-2.
func TestDataAfterClose(t *testing.T) {
	for _, acked := range []bool{false, true} {
		p, f := established(t, tcp.Config{}, "mss 1460", 10000)
		f.Close()
		f.Expect("F. 1:1(0) ack 1")
		if acked {
			f.Send(". 1:1(0) ack 2")
		}
		f.Send("P. 1:11(10) ack 1")
		f.Expect("R. 2:2(0) ack 1")
		f.WantState("")
		if s := p.Stats().TCP; s.AbortOnData != 1 {
			t.Errorf("%d aborts on data", s.AbortOnData)
		}
	}
}

// The FIN is sent again like data (RFC 9293, 3.4): here with the RTO of a connection that has an RTT sample of nearly 0.
func TestFinRetransmission(t *testing.T) {
	for _, second := range []bool{false, true} {
		_, f := established(t, tcp.Config{}, "mss 1460", 10000)
		ack := 1
		if second {
			f.Send("F. 1:1(0) ack 1")
			f.Expect(". 1:1(0) ack 2")
			ack = 2
		}
		f.Close()
		fin := fmt.Sprintf("F. 1:1(0) ack %d", ack)
		f.Expect(fin)
		for _, d := range []time.Duration{200, 400, 800} {
			f.ExpectAfter(d*ms, ms, fin)
		}
		f.Send(fmt.Sprintf(". %d:%d(0) ack 2", ack, ack))
		if second {
			f.WantState("")
		} else {
			f.WantState("FIN-WAIT-2")
		}
	}
}

// FIN-WAIT-2 of a connection that the application has closed ends after a minute; not if it is half closed.
func TestFinWait2Timeout(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	f.Send(". 1:1(0) ack 2")
	p.Quiet(30 * time.Second)
	f.Send(". 1:1(0) ack 2 win 5000") // the peer lives, but does not close
	f.WantState("FIN-WAIT-2")
	p.Quiet(30*time.Second - ms)
	f.WantState("FIN-WAIT-2")
	p.Quiet(2 * ms)
	f.WantState("")

	p, f = established(t, tcp.Config{}, "mss 1460", 10000)
	f.CloseWrite()
	f.Expect("F. 1:1(0) ack 1")
	f.Send(". 1:1(0) ack 2")
	p.Quiet(time.Hour)
	f.WantState("FIN-WAIT-2")
	f.Close() // now it runs
	p.Quiet(60*time.Second + ms)
	f.WantState("")
}

// timeWait brings a connection to TIME-WAIT: the peer's FIN was 1, ours 1.
func timeWait(t *testing.T, opts string) (*tcptest.Peer, *tcptest.Flow) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(2)
	f := p.Flow(5000, 80)
	f.TS = opts != "mss 1460"
	f.Send("S 0:0(0) win 10000 <" + opts + ">")
	f.Expect("S. 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1 win 10000")
	f.Accept(l)
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	f.Send("F. 1:1(0) ack 2")
	f.Expect(". 2:2(0) ack 2")
	f.WantState("")
	return p, f
}

// RFC 9293, 3.10.7.4, eighth, TIME-WAIT: the peer's FIN again is acknowledged and the timer starts anew.
func TestTimeWaitFin(t *testing.T) {
	p, f := timeWait(t, "mss 1460")
	p.Quiet(50 * time.Second)
	all := p.Stack.TimeWaits()
	if len(all) != 1 || all[0].State != "TIME-WAIT" || all[0].Local.Port() != 80 || all[0].Remote.Port() != 5000 ||
		all[0].Timer != "timewait" || all[0].TimerIn <= 9*time.Second || all[0].TimerIn > 10*time.Second+ms {
		t.Errorf("the records: %+v", all)
	}
	f.Send("F. 1:1(0) ack 2")
	f.Expect(". 2:2(0) ack 2")
	p.Quiet(59 * time.Second)
	if s := p.Stats().TCP; s.TimeWaits != 1 {
		t.Error("TIME-WAIT ended a minute after the first FIN")
	}
	p.Quiet(2 * time.Second)
	if s := p.Stats().TCP; s.TimeWaits != 0 || len(p.Stack.TimeWaits()) != 0 {
		t.Error("TIME-WAIT goes on a minute after the second FIN")
	}
}

// Other segments in TIME-WAIT: a plain ACK is silent, others are acknowledged, at a limited rate.
func TestTimeWaitSegments(t *testing.T) {
	p, f := timeWait(t, "mss 1460")
	p.Idle(time.Second)
	f.Send(". 2:2(0) ack 2")
	p.Done()
	f.Send("P. 2:12(10) ack 2")
	f.Expect(". 2:2(0) ack 2")
	f.Send("P. 2:12(10) ack 2")
	p.Done()
	p.Idle(time.Second)
	f.Send("S. 5:5(0) ack 2") // no new incarnation: it has ACK
	f.Expect(". 2:2(0) ack 2")
	p.Idle(time.Second)
	f.Send("S 1:1(0)") // an old SYN: below RCV.NXT
	f.Expect(". 2:2(0) ack 2")
}

// A reset ends TIME-WAIT only at the very number (RFC 5961, 3.2; RFC 1337).
func TestTimeWaitReset(t *testing.T) {
	p, f := timeWait(t, "mss 1460")
	f.Send("R 1:1(0)")
	f.Send("R 500:500(0)")
	if s := p.Stats().TCP; s.TimeWaits != 1 {
		t.Fatal("a reset elsewhere ended TIME-WAIT")
	}
	f.Send("R 2:2(0)")
	if s := p.Stats().TCP; s.TimeWaits != 0 {
		t.Error("TIME-WAIT goes on after a reset")
	}
	p.Done()
}

// RFC 6191, 2: a new SYN opens a new incarnation, whose ISN lies above the old one's numbers.
func TestTimeWaitReuse(t *testing.T) {
	for _, c := range []struct {
		name, opts, syn string
		ok              bool
	}{
		{"higher number", "mss 1460", "S 1000:1000(0) win 10000 <mss 1460>", true},
		{"the same number", "mss 1460", "S 2:2(0) win 10000 <mss 1460>", false},
		{"lower number", "mss 1460", "S 0:0(0) win 10000 <mss 1460>", false},
		{"later timestamp, lower number", "mss 1460,ts * *", "S 0:0(0) win 10000 <mss 1460,ts * 0>", true},
		{"old timestamp, higher number", "mss 1460,ts * *", "S 1000:1000(0) win 10000 <mss 1460,ts 1 0>", false},
		{"no timestamp any more, higher number", "mss 1460,ts * *", "S 1000:1000(0) win 10000 <mss 1460>", true},
		{"no timestamp any more, lower number", "mss 1460,ts * *", "S 0:0(0) win 10000 <mss 1460>", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, f := timeWait(t, c.opts)
			p.Idle(time.Second)
			old := f.IRS
			f.Send(c.syn)
			if !c.ok {
				f.Expect(". 2:2(0) ack 2")
				return
			}
			var at uint32
			fmt.Sscanf(c.syn, "S %d", &at)
			f.ISS += at
			f.Expect("S. 0:0(0) ack 1")
			if d := f.IRS - old; int32(d) <= 65535 {
				t.Errorf("the new initial sequence number lies %d above the old one", int32(d))
			}
			f.Send(". 1:1(0) ack 1")
			if s := p.Stats().TCP; s.TimeWaits != 0 || s.Conns != 1 {
				t.Errorf("%d in TIME-WAIT, %d connections", s.TimeWaits, s.Conns)
			}
		})
	}
}

// TIME-WAIT keeps timestamps: PAWS and the echo go on.
func TestTimeWaitTimestamps(t *testing.T) {
	p, f := timeWait(t, "mss 1460,ts * *")
	p.Idle(time.Second)
	f.Send("F. 1:1(0) ack 2 <ts 99999 7>")
	f.Expect(". 2:2(0) ack 2 <ts * 99999>")
}

// Data of an orphan is still delivered, with retransmission, before its FIN.
func TestOrphanSends(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 3000)
	f.Write(4000)
	f.Close()
	f.Expect(". 1:1001(1000) ack 1")
	f.Expect(". 1001:2001(1000) ack 1")
	f.Expect("P. 2001:3001(1000) ack 1")
	f.Send(". 1:1(0) ack 3001 win 3000")
	f.Expect("FP. 3001:4001(1000) ack 1")
	f.Send(". 1:1(0) ack 4002")
	f.Send("F. 1:1(0) ack 4002")
	f.Expect(". 4002:4002(0) ack 2")
	p.Done()
}

// LAST-ACK and CLOSING answer the peer's FIN when it comes again.
func TestFinAgainInLastAck(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("F. 1:1(0) ack 1")
	f.Expect(". 1:1(0) ack 2")
	f.Close()
	f.Expect("F. 1:1(0) ack 2")
	f.Send("F. 1:1(0) ack 1")
	f.Expect(". 2:2(0) ack 2")
	f.WantState("LAST-ACK")
	f.Send(". 2:2(0) ack 2")
	f.WantState("")
}

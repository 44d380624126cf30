package tcp_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// RFC 9293, 3.10.7.4, first: segments before, across and behind the window.
func TestWindowEdges(t *testing.T) {
	p, f := established(t, tcp.Config{RecvBuffer: 4000}, "mss 1000", 10000)
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1001")
	// All of it received already: acknowledged again.
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1001")
	// Its front received already: the rest counts.
	f.Send("P. 501:1501(1000) ack 1")
	f.Expect(". 1:1(0) ack 1501")
	// Its tail is beyond the window (4001): the front counts.
	f.Send("P. 1501:2501(1000) ack 1")
	f.Expect(". 1:1(0) ack 2501")
	f.Send("P. 2501:3501(1000) ack 1")
	f.Expect(". 1:1(0) ack 3501 win 500")
	f.Send("P. 3501:4501(1000) ack 1")
	f.Expect(". 1:1(0) ack 4001 win 0")
	// Behind the window.
	f.Send("P. 5001:5101(100) ack 1")
	f.Expect(". 1:1(0) ack 4001 win 0")
	// At the closed window: its acknowledgement counts, its data not (RFC 9293, 3.10.7.4).
	f.Write(10)
	f.Expect("P. 1:11(10) ack 4001 win 0")
	f.Send("P. 4001:4101(100) ack 11")
	f.Expect(". 11:11(0) ack 4001 win 0")
	if n := f.Info().SendQueue; n != 0 {
		t.Errorf("%d bytes are not acknowledged", n)
	}
	f.WantRead(4000)
	f.WantReadErr(tcp.ErrWouldBlock)
	f.Expect(". 11:11(0) ack 4001 win 4000")
	p.Done()
}

// A segment that covers the whole window and more on both sides.
func TestSegmentAcrossWindow(t *testing.T) {
	_, f := established(t, tcp.Config{RecvBuffer: 1000}, "mss 1460", 10000)
	f.Send("P. 1:501(500) ack 1")
	f.Expect(". 1:1(0) ack 501")
	f.Send("P. 1:1401(1400) ack 1")
	f.Expect(". 1:1(0) ack 1001 win 0")
	f.WantRead(1000)
	f.Expect(". 1:1(0) ack 1001 win 1000")
}

// RFC 5681, 4.2: a segment out of order is acknowledged at once, and so is one that fills a gap. Without SACK there are no blocks.
func TestOutOfOrderWithoutSACK(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("P. 101:201(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <>")
	f.Send("P. 301:401(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <>")
	f.WantReadErr(tcp.ErrWouldBlock)
	f.Send("P. 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 201 <>")
	f.WantRead(200)
	f.Send("P. 201:301(100) ack 1")
	f.Expect(". 1:1(0) ack 401 <>")
	f.WantRead(200)
}

// RFC 2018, 4: the first block holds the segment that has just come, the others follow in the order in which they changed.
func TestSACKBlocks(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.Send("P. 201:301(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 201:301>")
	f.Send("P. 401:501(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 401:501 201:301>")
	f.Send("P. 601:701(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 601:701 401:501 201:301>")
	f.Send("P. 801:901(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 801:901 601:701 401:501 201:301>")
	f.Send("P. 1001:1101(100) ack 1") // no more than four fit
	f.Expect(". 1:1(0) ack 1 <sack 1001:1101 801:901 601:701 401:501>")
	f.Send("P. 301:401(100) ack 1") // joins two
	f.Expect(". 1:1(0) ack 1 <sack 201:501 1001:1101 801:901 601:701>")
	f.Send("P. 1:201(200) ack 1") // moves the left edge: no block for it
	f.Expect(". 1:1(0) ack 501 <sack 1001:1101 801:901 601:701>")
	f.WantRead(500)
	f.Send("P. 501:1001(500) ack 1")
	f.Expect(". 1:1(0) ack 1101 <sack 601:701>") // it had come before (RFC 2883, 4.2)
	f.WantRead(600)
}

// With timestamps three blocks fit (RFC 2018, 3).
func TestSACKBlocksWithTimestamps(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.TS = true
	f.Send("S 0:0(0) win 10000 <mss 1460,sackOK,ts * *>")
	f.Expect("S. 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1 win 10000")
	f.Accept(l)
	for i := range 4 {
		f.Send(fmt.Sprintf("P. %d:%d(100) ack 1", 201+200*i, 301+200*i))
		if i < 3 {
			f.Expect(". 1:1(0) ack 1 " + []string{"<ts * *,sack 201:301>", "<ts * *,sack 401:501 201:301>", "<ts * *,sack 601:701 401:501 201:301>"}[i])
		}
	}
	f.Expect(". 1:1(0) ack 1 <ts * *,sack 801:901 601:701 401:501>")
}

// A burst is acknowledged once, but each range that changed in it is reported: by acknowledgements before it ends, if they are more than
// one reports (RFC 2018, 4; RFC 5681, 4.2).
func TestSACKBurst(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.SendBatch("P. 201:301(100) ack 1", "P. 401:501(100) ack 1", "P. 601:701(100) ack 1", "P. 801:901(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 801:901 601:701 401:501 201:301>")
	f.SendBatch("P. 1001:1101(100) ack 1", "P. 301:351(50) ack 1", "P. 1201:1301(100) ack 1", "P. 501:601(100) ack 1", "P. 1301:1401(100) ack 1",
		"P. 1601:1701(100) ack 1", "P. 1801:1901(100) ack 1", "P. 1901:2001(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 1201:1401 401:701 201:351 1001:1101>")
	f.Expect(". 1:1(0) ack 1 <sack 1801:2001 1601:1701 1201:1401 401:701>")
}

// With duplicates the blocks are as many: a D-SACK and three, with timestamps two (RFC 2018, 3; RFC 2883, 4). The range in which the
// duplicate lies follows it, whatever else has come in the same burst.
func TestDSACKBlocks(t *testing.T) {
	for _, ts := range []bool{false, true} {
		p := newPeer(t, tcp.Config{})
		l := p.Listen(1)
		f := p.Flow(5000, 80)
		f.TS = ts
		opt, with := "", ""
		if ts {
			opt, with = ",ts * *", "ts * *,"
		}
		f.Send("S 0:0(0) win 10000 <mss 1460,sackOK" + opt + ">")
		f.Expect("S. 0:0(0) ack 1")
		f.Send(". 1:1(0) ack 1 win 10000")
		f.Accept(l)
		f.SendBatch("P. 201:301(100) ack 1", "P. 401:501(100) ack 1", "P. 601:701(100) ack 1")
		f.Expect(". 1:1(0) ack 1 <" + with + "sack 601:701 401:501 201:301>")
		last := []string{" 201:301>", " 601:701>"}
		if ts {
			last = []string{">", ">"}
		}
		f.Send("P. 401:501(100) ack 1")
		f.Expect(". 1:1(0) ack 1 <" + with + "sack 401:501 401:501 601:701" + last[0])
		f.SendBatch("P. 221:241(20) ack 1", "P. 801:901(100) ack 1")
		f.Expect(". 1:1(0) ack 1 <" + with + "sack 221:241 201:301 401:501" + last[1])
		f.Expect(". 1:1(0) ack 1 <" + with + "sack 801:901 201:301 401:501" + last[1])
	}
}

// RFC 2883, 4.2.2 and 4.2.3: of a segment above a gap of which a part has come before, that part is reported, the lowest if there are two, and
// the range that now holds the segment follows.
func TestPartialDuplicate(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.Send("P. 201:301(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 201:301>")
	f.Send("P. 251:351(100) ack 1") // its front
	f.Expect(". 1:1(0) ack 1 <sack 251:301 201:351>")
	f.Send("P. 151:251(100) ack 1") // its end
	f.Expect(". 1:1(0) ack 1 <sack 201:251 151:351>")
	f.Send("P. 501:551(50) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 501:551 151:351>")
	f.Send("P. 301:601(300) ack 1") // front and middle
	f.Expect(". 1:1(0) ack 1 <sack 301:351 151:601>")
	f.Send("P. 601:651(50) ack 1") // nothing twice
	f.Expect(". 1:1(0) ack 1 <sack 151:651>")
	if s := p.Stats().TCP; s.DSACKsSent != 3 {
		t.Errorf("%d D-SACKs, want 3", s.DSACKsSent)
	}
	f.Send("P. 1:151(150) ack 1")
	f.Expect(". 1:1(0) ack 651 <>")
	f.WantRead(650)
}

// RFC 2883, 4: what came twice is reported once, as the first block.
func TestDSACK(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.Send("P. 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 101")
	f.Send("P. 1:101(100) ack 1") // 4.1.1: below the acknowledgement
	f.Expect(". 1:1(0) ack 101 <sack 1:101>")
	f.Send("P. 101:201(100) ack 1")
	f.Expect(". 1:1(0) ack 201 <>") // once only
	f.Send("P. 101:301(200) ack 1") // 4.2.1: its front
	f.Expect(". 1:1(0) ack 301 <sack 101:201>")
	f.Send("P. 401:501(100) ack 1")
	f.Expect(". 1:1(0) ack 301 <sack 401:501>")
	f.Send("P. 401:501(100) ack 1") // 4.1.2: in a block above; that follows
	f.Expect(". 1:1(0) ack 301 <sack 401:501 401:501>")
	f.Send("P. 421:441(20) ack 1")
	f.Expect(". 1:1(0) ack 301 <sack 421:441 401:501>")
	f.Send("P. 301:451(150) ack 1") // 4.2: its end
	f.Expect(". 1:1(0) ack 501 <sack 401:451>")
	f.Send("P. 601:701(100) ack 1")
	f.Expect(". 1:1(0) ack 501 <sack 601:701>")
	f.Send("P. 501:601(100) ack 1") // nothing twice
	f.Expect(". 1:1(0) ack 701 <>")
	if s := p.Stats().TCP; s.DSACKsSent != 5 {
		t.Errorf("%d D-SACKs, want 5", s.DSACKsSent)
	}
	f.WantRead(700)
}

// RFC 2883, 4: of several duplicates in one burst each is reported, by an acknowledgement of its own.
func TestDSACKBurst(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.SendBatch("P. 1:301(300) ack 1", "P. 401:501(100) ack 1", "P. 601:701(100) ack 1")
	f.Expect(". 1:1(0) ack 301 <sack 601:701 401:501>")
	f.SendBatch(
		"P. 1:101(100) ack 1", "P. 1:101(100) ack 1", // the same twice
		"P. 201:301(100) ack 1",                          // below it, not next to it
		"P. 401:501(100) ack 1",                          // above the hole
		"P. 301:451(150) ack 1",                          // fills the hole and repeats a part
		"P. 101:201(100) ack 1", "P. 201:301(100) ack 1", // in order: one report
		"P. 501:551(50) ack 1") // and something new
	f.Expect(". 1:1(0) ack 301 <sack 1:101 601:701 401:501>")
	f.Expect(". 1:1(0) ack 301 <sack 1:101 601:701 401:501>")
	f.Expect(". 1:1(0) ack 301 <sack 201:301 601:701 401:501>")
	f.Expect(". 1:1(0) ack 501 <sack 401:501 601:701>")
	f.Expect(". 1:1(0) ack 501 <sack 401:451 601:701>")
	f.Expect(". 1:1(0) ack 551 <sack 101:301 601:701>")
	if s := p.Stats().TCP; s.DSACKsSent != 6 || s.DSACKsDropped != 0 {
		t.Errorf("%d D-SACKs, %d dropped, want 6 and 0", s.DSACKsSent, s.DSACKsDropped)
	}
	f.SendBatch("P. 701:801(100) ack 1", "P. 551:701(150) ack 1", "PF. 801:901(100) ack 1", "PF. 801:901(100) ack 1", "P. 1:2(1) ack 1")
	f.Expect(". 1:1(0) ack 902 <sack 601:701>")
	f.Expect(". 1:1(0) ack 902 <sack 801:901>")
	f.Expect(". 1:1(0) ack 902 <sack 1:2>")
	f.WantRead(900)
}

// Copies of old segments, which others can send too, are not answered one by one for long, and what is not reported is counted.
func TestDSACKBurstsAreBounded(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.Send("P. 1:301(300) ack 1")
	f.Expect(". 1:1(0) ack 301 <>")
	var old []string
	for i := range 40 {
		old = append(old, fmt.Sprintf("P. %d:%d(1) ack 1", 2+2*i, 3+2*i))
	}
	left := tcp.DSACKsPerSecond
	for range 20 {
		f.SendBatch(old...)
		for i := range min(39, left) {
			f.Expect(fmt.Sprintf(". 1:1(0) ack 301 <sack %d:%d>", 2+2*i, 3+2*i))
			left--
		}
		f.Expect(". 1:1(0) ack 301 <sack 80:81>")
	}
	if s := p.Stats().TCP; s.DSACKsSent != tcp.DSACKsPerSecond+20 || s.DSACKsSent+s.DSACKsDropped != 800 {
		t.Errorf("%d D-SACKs, %d dropped", s.DSACKsSent, s.DSACKsDropped)
	}
	f.WantRead(300)
}

// Without SACK there is no D-SACK either.
func TestDuplicateWithoutSACK(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("P. 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 101")
	f.SendBatch("P. 1:101(100) ack 1", "P. 1:51(50) ack 1")
	f.Expect(". 1:1(0) ack 101 <>")
	f.WantRead(100)
}

// Blocks on data segments must not make them longer than the path allows: a full segment goes without, and an ACK with them follows.
func TestSACKBesideData(t *testing.T) {
	_, f := established(t, tcp.Config{NoDelay: true}, "mss 1460,sackOK", 60000)
	f.Send("P. 101:201(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 101:201>")
	f.Write(100)
	f.Expect("P. 1:101(100) ack 1 <sack 101:201>")
	f.Write(1460 * 2)
	f.Expect(". 101:1561(1460) ack 1 <>")
	f.Expect("P. 1561:3021(1460) ack 1 <>")
	f.SendBatch("P. 301:401(100) ack 3021")
	f.Expect(". 3021:3021(0) ack 1 <sack 301:401 101:201>")
	f.Conn.TryWrite(make([]byte, 0))
}

// RFC 9293, 3.10.7.4, eighth: a FIN in order, with and without data.
func TestFin(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("FP. 1:11(10) ack 1")
	f.Expect(". 1:1(0) ack 12")
	f.WantState("CLOSE-WAIT")
	f.WantRead(10)
	f.WantReadErr(io.EOF)
	f.WantReadErr(io.EOF)
	f.Write(100) // the other direction goes on
	f.Expect("P. 1:101(100) ack 12")
	f.Send(". 12:12(0) ack 101 win 10000")
	// The FIN again, and data behind it: acknowledged, nothing else.
	f.Send("FP. 1:11(10) ack 101")
	f.Expect(". 101:101(0) ack 12")
	f.Send("P. 12:22(10) ack 101")
	f.Expect(". 101:101(0) ack 12")
	f.WantReadErr(io.EOF)
}

// A FIN that comes early counts when what is before it has come.
func TestFinOutOfOrder(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.Send("F. 101:101(0) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 101:102>")
	f.WantState("ESTAB")
	f.Send("P. 51:101(50) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 51:102>")
	f.WantReadErr(tcp.ErrWouldBlock)
	f.Send("P. 1:51(50) ack 1")
	f.Expect(". 1:1(0) ack 102")
	f.WantState("CLOSE-WAIT")
	f.WantRead(100)
	f.WantReadErr(io.EOF)
}

// The same with data on the FIN, and data beyond the FIN, which nobody can have sent: it is cut off.
func TestDataBehindFin(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	f.Send("FP. 101:111(10) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 101:112>")
	f.Send("P. 101:151(50) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 101:111 101:112>")
	f.Send("P. 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 112 <>")
	f.WantRead(110)
	f.WantReadErr(io.EOF)
}

// A FIN right at the end of a full window, and one beyond it.
func TestFinAtWindowEdge(t *testing.T) {
	_, f := established(t, tcp.Config{RecvBuffer: 1000}, "mss 1460", 10000)
	f.Send("FP. 1:1002(1001) ack 1")
	f.Expect(". 1:1(0) ack 1001 win 0")
	f.WantState("ESTAB")
	f.WantRead(1000)
	f.Expect(". 1:1(0) ack 1001 win 1000")
	f.Send("FP. 1001:2001(1000) ack 1")
	f.Expect(". 1:1(0) ack 2002 win 0")
	f.WantState("CLOSE-WAIT")
	if i := f.Info(); i.RcvWnd > 1000 {
		t.Errorf("receive window %d behind the FIN", i.RcvWnd)
	}
	f.WantRead(1000)
	f.WantReadErr(io.EOF)
}

// Urgent data is delivered in line (RFC 6093, 6; RFC 9293, MUST-30), and the application can learn how much of it is left (MUST-33): up to
// the octet before the one that the pointer names, however far that is (MUST-31).
func TestUrgent(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	left := func(want uint64) {
		t.Helper()
		if n := f.Info().Urgent; n != want {
			t.Errorf("%d urgent bytes left, want %d", n, want)
		}
	}
	left(0)
	f.Send("PU. 1:11(10) ack 1 urg 5")
	f.Expect(". 1:1(0) ack 11")
	left(5)
	f.Send("PU. 11:21(10) ack 1 urg 60000") // it is still to come
	f.Expect(". 1:1(0) ack 21")
	left(60010)
	f.Send("U. 21:21(0) ack 1 urg 8") // the end does not move back
	left(60010)
	f.Send("P. 21:31(10) ack 1")
	f.Expect(". 1:1(0) ack 31")
	f.WantRead(30)
	left(59980)
}

// An announcement counts although the window is closed to the text that comes with it (RFC 9293, MUST-66).
func TestUrgentAtClosedWindow(t *testing.T) {
	_, f := established(t, tcp.Config{RecvBuffer: 4000}, "mss 1000", 10000)
	f.SendBatch(". 1:1001(1000) ack 1", ". 1001:2001(1000) ack 1", ". 2001:3001(1000) ack 1", ". 3001:4001(1000) ack 1")
	f.Expect(". 1:1(0) ack 4001 win 0")
	if i := f.Info(); i.RcvWnd != 0 {
		t.Fatalf("window %d", i.RcvWnd)
	}
	f.Send("PU. 4001:4011(10) ack 1 urg 7")
	f.Expect(". 1:1(0) ack 4001 win 0")
	if n := f.Info().Urgent; n != 4007 {
		t.Errorf("%d urgent bytes left, want 4007", n)
	}
	f.Abort()
	f.Expect("R. 1:1(0) ack 4001")
}

// RFC 9293, MUST-58 and MUST-59: segments that come together are acknowledged once.
func TestBatchIsAcknowledgedOnce(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.SendBatch("P. 1:101(100) ack 1", "P. 101:201(100) ack 1", "P. 201:301(100) ack 1")
	f.Expect(". 1:1(0) ack 301")
	f.WantRead(300)
}

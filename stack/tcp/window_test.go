package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// RFC 9293, 3.8.6.2.2: the window is announced when the reader has made room for a segment or half of the buffer, not for less.
func TestWindowUpdate(t *testing.T) {
	p, f := established(t, tcp.Config{RecvBuffer: 8000}, "mss 1000", 10000)
	for i := range 8 {
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", 1+1000*i, 1001+1000*i))
		f.Expect(fmt.Sprintf(". 1:1(0) ack %d win %d", 1001+1000*i, 7000-1000*i))
	}
	f.WantRead(500)
	p.Done()
	f.WantRead(499)
	p.Done()
	f.WantRead(1)
	f.Expect(". 1:1(0) ack 8001 win 1000")
	f.WantRead(1000) // doubles it
	f.Expect(". 1:1(0) ack 8001 win 2000")
	f.WantRead(1000)
	p.Done() // the next acknowledgement tells
	f.WantRead(1000)
	f.Expect(". 1:1(0) ack 8001 win 4000")
	f.WantRead(4000)
	f.Expect(". 1:1(0) ack 8001 win 8000")
}

// The right edge never moves back (RFC 9293, 3.8.6, SHLD-14), and small steps are not announced on acknowledgements either.
func TestWindowEdgeStays(t *testing.T) {
	_, f := established(t, tcp.Config{RecvBuffer: 8000}, "mss 1000", 10000)
	for i := range 7 {
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", 1+1000*i, 1001+1000*i))
		f.Expect(fmt.Sprintf(". 1:1(0) ack %d win %d", 1001+1000*i, 7000-1000*i))
	}
	f.WantRead(400)
	f.Send("P. 7001:7501(500) ack 1")
	f.Expect(". 1:1(0) ack 7501 win 500") // not 900
	f.WantRead(600)
	f.Expect(". 1:1(0) ack 7501 win 1500")
}

// RFC 9293, 3.8.6.1: probes of a closed window, the first after an RTO, with exponential back-off; they go on as long as they are
// answered (MUST-37), and the connection recovers.
func TestZeroWindowProbes(t *testing.T) {
	p, f := established(t, tcp.Config{RetransTimeout: 10 * time.Second}, "mss 1000", 1000)
	f.Write(3000)
	f.Expect("P. 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 1001 win 0")
	rto := f.Info().RTO
	if rto != 200*ms {
		t.Fatalf("RTO %v", rto)
	}
	for i := range 12 {
		tolerance := exact
		if i > 7 { // the link address has been forgotten meanwhile, and is asked for
			tolerance = rto + exact
		}
		f.ExpectAfter(min(rto<<i, 120*time.Second), tolerance, ". 1000:1000(0) ack 1")
		f.Send(". 1:1(0) ack 1001 win 0")
	}
	if s := p.Stats().TCP; s.ZeroWindowProbes != 12 {
		t.Errorf("%d probes", s.ZeroWindowProbes)
	}
	f.Send(". 1:1(0) ack 1001 win 2000")
	f.Expect(". 1001:2001(1000) ack 1")
	f.Expect("P. 2001:3001(1000) ack 1")
	// The next time it begins anew.
	f.Send(". 1:1(0) ack 3001 win 0")
	f.Write(10)
	f.ExpectAfter(rto, ms, ". 3000:3000(0) ack 1")
	f.Send(". 1:1(0) ack 3001 win 0")
	f.ExpectAfter(2*rto, ms, ". 3000:3000(0) ack 1")
	f.Send(". 1:1(0) ack 3001 win 10")
	f.Expect("P. 3001:3011(10) ack 1")
}

// Unanswered probes end the connection like unanswered data (RFC 9293, 3.8.3).
func TestUnansweredProbes(t *testing.T) {
	p, f := established(t, tcp.Config{RetransTimeout: 5 * time.Second}, "mss 1000", 1000)
	f.Write(3000)
	f.Expect("P. 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 1001 win 0")
	n := 0
	p.Until(time.Minute, func() bool { n += len(p.Take()); return f.Conn.Done() })
	if f.Conn.Err() != tcp.TimedOut || n != 4 { // after 0.2, 0.6, 1.4 and 3 s; the end at 6.2 s
		t.Errorf("error %v after %d probes", f.Conn.Err(), n)
	}
}

// A peer cannot hold a connection that the application has closed for ever.
func TestOrphanProbes(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 1000)
	f.Write(3000)
	f.Expect("P. 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 1001 win 0")
	f.Close()
	for i := range 8 {
		f.ExpectAfter(200*ms<<i, exact, ". 1000:1000(0) ack 1")
		f.Send(". 1:1(0) ack 1001 win 0")
	}
	f.ExpectAfter(200*ms<<8, exact, "R. 1001:1001(0) ack 1")
	f.WantState("")
	p.Done()
}

// RFC 9293, 3.8.6.2.1: a window smaller than a segment is used when nothing is outstanding and it is half of the largest seen, and
// otherwise after a while.
func TestTinyWindow(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 600)
	f.Write(2000)
	f.Expect("P. 1:601(600) ack 1")
	p.Quiet(100 * ms)
	f.Send(". 1:1(0) ack 601 win 400")
	f.Expect("P. 601:1001(400) ack 1")
	f.Send(". 1:1(0) ack 1001 win 200") // below half
	f.ExpectAfter(300*ms, 100*ms+exact, "P. 1001:1201(200) ack 1")
	f.Send(". 1:1(0) ack 1201 win 5000")
	f.Expect("P. 1201:2001(800) ack 1")
}

// A window that moves back (RFC 9293, 3.8.6): nothing beyond it is sent, and what was is not taken for lost.
func TestShrunkWindow(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 4000)
	f.Write(8000)
	wantData(t, f, 1, 4, true)
	f.Send(". 1:1(0) ack 1001 win 1000")
	p.Done()
	f.Send(". 1:1(0) ack 4001 win 1000")
	f.Expect(". 4001:5001(1000) ack 1")
}

// The peer closes its window while data is outstanding: the head is sent again as a probe, not more (RFC 9293, MUST-35).
func TestWindowClosesOverData(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 2000)
	f.Write(2000)
	f.Expect(". 1:1001(1000) ack 1")
	f.Expect("P. 1001:2001(1000) ack 1")
	f.Send(". 1:1(0) ack 1 win 0")
	f.ExpectAfter(200*ms, 10*ms, ". 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 1 win 0")
	f.ExpectAfter(400*ms, 10*ms, ". 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 2001 win 2000")
	p.Quiet(time.Second)
}

// RFC 9293, 3.10.7.4, fifth: which segments may change the window.
func TestWindowAcceptance(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1000", 5000)
	want := func(w uint32) {
		t.Helper()
		if got := f.Info().SndWnd; got != w {
			t.Errorf("window %d, want %d", got, w)
		}
	}
	f.Send(". 1:1(0) ack 1 win 6000") // larger
	want(6000)
	f.Send(". 1:1(0) ack 1 win 5500") // the same numbers and smaller: may be old
	want(6000)
	f.Send("P. 1:11(10) ack 1 win 5500") // starts at the same number
	f.Expect(". 1:1(0) ack 11")
	want(6000)
	f.Send("P. 11:21(10) ack 1 win 5400") // newer
	f.Expect(". 1:1(0) ack 21")
	want(5400)
	f.Write(100)
	f.Expect("P. 1:101(100) ack 21")
	f.Send(". 21:21(0) ack 101 win 3000") // newer acknowledgement
	want(3000)
}

// RFC 7323, 2.3: shifts of both ends; the SYN's window is not scaled, and the announced one rounds up (2.4: so that its edge does not seem to move back).
func TestWindowScale(t *testing.T) {
	p := newPeer(t, tcp.Config{RecvBuffer: 1 << 20, RecvStart: 1 << 20})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 100 <mss 1460,ws 14>")
	f.Expect("S. 0:0(0) ack 1 win 64240 <mss 1460,ws 5>")
	f.Send(". 1:1(0) ack 1 win 3")
	f.Accept(l)
	if i := f.Info(); i.SndWnd != 3<<14 || i.SndScale != 14 || i.RcvScale != 5 {
		t.Errorf("window %d, scales %d and %d", i.SndWnd, i.SndScale, i.RcvScale)
	}
	f.Send("P. 1:2(1) ack 1 win 3")
	f.Expect(". 1:1(0) ack 2 win 32768") // 1 MiB less one byte, rounded up
	f.WantRead(1)
}

// A shift above 14 counts as 14 (RFC 7323, 2.3). In the SYN the window is taken as it is.
func TestWindowScaleLimit(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	fr := f.Build("S. 0:0(0) ack 1 win 50 <mss 1460,ws 15>")
	p.SendFrame(fr)
	f.Expect(". 1:1(0) ack 1")
	if i := f.Info(); i.SndScale != 14 || i.SndWnd != 50 {
		t.Errorf("scale %d, window %d, want 14 and 50", i.SndScale, i.SndWnd)
	}
	f.Write(100)
	f.Expect("P. 1:51(50) ack 1")
}

// Without window scale no more than 65535 bytes are announced (and at first whole segments), nor sent.
func TestNoWindowScale(t *testing.T) {
	p, f := established(t, tcp.Config{InitialWindow: 100}, "mss 1000", 65535)
	if i := f.Info(); i.RcvWnd != 64240 {
		t.Errorf("receive window %d", i.RcvWnd)
	}
	f.Write(100_000)
	if n := len(p.Take()); n != 65 {
		t.Errorf("%d segments, want 65", n)
	}
}

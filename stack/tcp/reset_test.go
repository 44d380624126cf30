package tcp_test

import (
	"io"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// established opens a passive connection without options but the MSS, with a peer window of win.
func established(t *testing.T, cfg tcp.Config, opts string, win int) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p := newPeer(t, cfg)
	l := p.Listen(1)
	return p, p.Passive(l, 5000, opts, win)
}

// RFC 5961, 3.2: only a reset at RCV.NXT ends the connection, and the application is told (RFC 9293, MUST-12); one elsewhere in the window is challenged, one outside dropped.
func TestReset(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("R 70000:70000(0)")
	f.Send("R 0:0(0)")
	f.WantState("ESTAB")
	f.Send("R 2:2(0)")
	f.Expect(". 1:1(0) ack 1")
	f.WantState("ESTAB")
	f.Send("R 1000:1000(0)") // challenges are limited (RFC 5961, 7)
	p.Done()
	p.Quiet(499 * ms)
	p.Idle(2 * ms)
	f.Send("R 1000:1000(0)")
	f.Expect(". 1:1(0) ack 1")
	f.Send("R. 1:1(0) ack 1")
	f.WantState("")
	f.WantReadErr(tcp.Reset) // ECONNRESET
	f.WantWriteErr(tcp.Reset)
	if s := p.Stats().TCP; s.EstabResets != 1 || s.ChallengeAcks != 2 {
		t.Errorf("%d resets, %d challenges, want 1 and 2", s.EstabResets, s.ChallengeAcks)
	}
}

// What arrived before the reset can still be read.
func TestResetAfterData(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.SendBatch("P. 1:11(10) ack 1 win 10000", "R 11:11(0)")
	f.WantRead(10)
	f.WantReadErr(tcp.Reset)
}

// RFC 5961, 4.2: a SYN in a synchronized state is challenged, wherever it lies.
func TestSynInEstablished(t *testing.T) {
	for _, s := range []string{"S 0:0(0)", "S 1:1(0)", "S 500:500(0)", "S 900000:900000(0)", "S. 1:1(0) ack 1", "S. 0:0(0) ack 1"} {
		p, f := established(t, tcp.Config{}, "mss 1460", 10000)
		f.Send(s)
		f.Expect(". 1:1(0) ack 1")
		f.WantState("ESTAB")
		p.Done()
	}
}

// RFC 5961, 5.2: an acknowledgement of what was never sent, or older than the largest window, is challenged, and the segment dropped.
func TestAckRange(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("P. 1:11(10) ack 2")
	f.Expect(". 1:1(0) ack 1")
	f.WantReadErr(tcp.ErrWouldBlock)
	p.Idle(time.Second)
	f.IRS -= 10001
	f.Send("P. 1:11(10) ack 1")
	f.IRS += 10001
	f.Expect(". 1:1(0) ack 1")
	f.IRS -= 10000 // still possible
	f.Send("P. 1:11(10) ack 1")
	f.IRS += 10000
	f.Expect(". 1:1(0) ack 11")
	f.WantRead(10)
	if s := p.Stats().TCP; s.BadAcks != 2 {
		t.Errorf("%d bad acknowledgements, want 2", s.BadAcks)
	}
}

// A segment without ACK is dropped (RFC 9293, 3.10.7.4, fifth).
func TestNoAckFlag(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send("P 1:11(10)")
	f.Send("F 1:1(0)")
	f.Send("- 1:11(10)")
	p.Done()
	f.WantState("ESTAB")
	f.WantReadErr(tcp.ErrWouldBlock)
}

// An old acknowledgement does no harm, and its data counts.
func TestOldAck(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Write(100)
	f.Expect("P. 1:101(100) ack 1")
	f.Send(". 1:1(0) ack 101 win 5000")
	f.Send("P. 1:11(10) ack 51 win 7000")
	f.Expect(". 101:101(0) ack 11")
	f.WantRead(10)
	if i := f.Info(); i.SndWnd != 5000 {
		t.Errorf("window %d from an old acknowledgement", i.SndWnd)
	}
}

// RFC 9293, 3.10.5: Abort sends a reset; a second end of the connection does nothing.
func TestAbort(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Write(100)
	f.Expect("P. 1:101(100) ack 1")
	f.Abort()
	f.Expect("R. 101:101(0) ack 1")
	f.Close()
	f.Abort()
	p.Done()
	f.WantState("")
	if n, err := f.Conn.TryRead(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("read after Abort: %d, %v", n, err)
	}
}

// The peer's reset answers our FIN: the connection is gone, whatever its state was (RFC 9293, 3.10.7.4, second).
func TestResetWhileClosing(t *testing.T) {
	for _, c := range []struct {
		name string
		prep func(*tcptest.Flow)
		at   string
	}{
		{"FIN-WAIT-1", func(f *tcptest.Flow) { f.Close(); f.Expect("F. 1:1(0) ack 1") }, "R 1:1(0)"},
		{"FIN-WAIT-2", func(f *tcptest.Flow) { f.Close(); f.Expect("F. 1:1(0) ack 1"); f.Send(". 1:1(0) ack 2") }, "R 1:1(0)"},
		{"CLOSE-WAIT", func(f *tcptest.Flow) { f.Send("F. 1:1(0) ack 1"); f.Expect(". 1:1(0) ack 2") }, "R 2:2(0)"},
		{"LAST-ACK", func(f *tcptest.Flow) {
			f.Send("F. 1:1(0) ack 1")
			f.Expect(". 1:1(0) ack 2")
			f.Close()
			f.Expect("F. 1:1(0) ack 2")
		}, "R 2:2(0)"},
		{"CLOSING", func(f *tcptest.Flow) {
			f.Close()
			f.Expect("F. 1:1(0) ack 1")
			f.Send("F. 1:1(0) ack 1")
			f.Expect(". 2:2(0) ack 2")
		}, "R 2:2(0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, f := established(t, tcp.Config{}, "mss 1460", 10000)
			c.prep(f)
			f.WantState(c.name)
			f.Send(c.at)
			f.WantState("")
			p.Quiet(5 * time.Minute)
		})
	}
}

// A reset behind our last SACK block counts, and so does one at the peer's FIN once that was taken (as Linux has it); elsewhere it is
// challenged or dropped (RFC 5961, 3.2).
func TestResetElsewhere(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Send("P. 1001:2001(1000) ack 1")
		f.Expect(". 1:1(0) ack 1 <sack 1001:2001>")
		f.Send("R 2000:2000(0)")
		f.Expect(". 1:1(0) ack 1 <sack 1001:2001>")
		f.WantState("ESTAB")
		f.Send("R 2001:2001(0)")
		f.WantState("")
		f.WantReadErr(tcp.Reset)
	})
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Send("R 0:0(0)")
		f.WantState("ESTAB")
		f.Send("F. 1:1(0) ack 1")
		f.Expect(". 1:1(0) ack 2")
		f.Send("R 1:1(0)")
		f.WantState("")
	})
}

// RFC 5961, 7: challenges of all connections together are limited, by a budget that is drawn anew each second.
func TestChallengeLimit(t *testing.T) {
	p := newPeer(t, tcp.Config{ChallengeLimit: 6})
	l := p.Listen(100)
	var flows []*tcptest.Flow
	for i := range 20 {
		flows = append(flows, p.Passive(l, uint16(5000+i), "mss 1460", 1000))
	}
	seen := map[int]bool{}
	for range 10 {
		p.Idle(1100 * ms)
		n := 0
		for _, f := range flows {
			f.Send("S 100:100(0)")
			n += len(p.Take())
		}
		if n < 3 || n > 8 { // 3 to 6+3-1
			t.Errorf("%d challenges in a second", n)
		}
		seen[n] = true
	}
	if len(seen) < 2 || p.Stats().TCP.ChallengesLimited == 0 {
		t.Errorf("budgets %v, %d refused", seen, p.Stats().TCP.ChallengesLimited)
	}
}

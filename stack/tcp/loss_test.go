package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// farPeer opens a connection with a round trip of 50 ms and segments of 1000 bytes.
// farPeer has a round-trip time of 50 ms and a window above 2^15 (RFC 9293, MUST-1).
func farPeer(t *testing.T, cfg tcp.Config, opts string) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p := newPeer(t, cfg)
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 60000 <mss 1000" + opts + ">")
	f.Expect("S. 0:0(0) ack 1")
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 1 win 60000")
	f.Accept(l)
	return p, f
}

// sent is the end of what was sent.
func sent(f *tcptest.Flow) uint64 {
	i := f.Info()
	return i.BytesAcked + i.SendQueue - i.NotSent + 1
}

// wantData expects full segments from first to last, counted from 1; the last has PSH.
func wantData(t *testing.T, f *tcptest.Flow, first, last int, push bool) {
	t.Helper()
	for i := first; i <= last; i++ {
		flags := "."
		if push && i == last {
			flags = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 1", flags, 1000*i-999, 1000*i+1))
	}
}

// wantWindow expects the first ten segments: half of the congestion window leaves together.
func wantWindow(t *testing.T, f *tcptest.Flow) {
	t.Helper()
	wantData(t, f, 1, 5, true)
	wantData(t, f, 6, 10, true)
}

// RFC 6298, 2 and 5, in the variant of Linux: RTO = RTT + max(2·RTT, 200 ms) after one sample; it doubles each time, up to 120 s.
func TestRTOSequence(t *testing.T) {
	p, f := farPeer(t, tcp.Config{}, "")
	if i := f.Info(); i.RTT != 50*ms || i.RTO != 250*ms {
		t.Fatalf("RTT %v, RTO %v", i.RTT, i.RTO)
	}
	f.Write(500)
	f.Expect("P. 1:501(500) ack 1")
	for rto := 250 * ms; rto < 300*time.Second; rto *= 2 {
		f.ExpectAfter(min(rto, 120*time.Second), ms, "P. 1:501(500) ack 1")
	}
	f.Send(". 1:1(0) ack 501")
	p.Quiet(time.Minute)
	if s := p.Stats().TCP; s.RTOs != 11 || s.RetransSegs != 11 || s.BackstopRTOs != 0 {
		t.Errorf("%d timeouts, %d retransmissions, %d of the engine's own", s.RTOs, s.RetransSegs, s.BackstopRTOs)
	}
	// Without timestamps the back-off stays until data that was sent once is acknowledged (RFC 6298, 5.7; Karn's rule).
	f.Write(10)
	f.Expect("P. 501:511(10) ack 1")
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 511")
	if i := f.Info(); i.RTO != 250*ms {
		t.Errorf("RTO %v after a new sample", i.RTO)
	}
}

// RFC 9293, 3.8.3, R2: after a time without progress the connection ends (ETIMEDOUT).
func TestRetransTimeout(t *testing.T) {
	p, f := farPeer(t, tcp.Config{RetransTimeout: 10 * time.Second}, "")
	f.Write(500)
	p.Until(time.Minute, func() bool { p.Take(); return f.Conn.Done() })
	f.WantReadErr(tcp.TimedOut)
	f.WantWriteErr(tcp.TimedOut)
	if s := p.Stats().TCP; s.AbortOnTimeout != 1 {
		t.Errorf("%d timeouts", s.AbortOnTimeout)
	}
}

// RFC 5681, 3.2 and RFC 6582 without SACK: limited transmit (RFC 3042) on two duplicates, the retransmission on the third, one more on
// the partial acknowledgement, and the window halved at the end.
func TestNewReno(t *testing.T) {
	p, f := farPeer(t, tcp.Config{}, "")
	f.Write(20_000)
	wantWindow(t, f)
	p.Idle(50 * ms)
	dup := ". 1:1(0) ack 1 win 60000"
	f.Send(dup) // segments 1 and 4 are lost
	wantData(t, f, 11, 11, false)
	f.Send(dup)
	wantData(t, f, 12, 12, false)
	f.Send(dup)
	f.Expect(". 1:1001(1000) ack 1") // fast retransmission
	if i := f.Info(); i.CAState != "recovery" || i.Ssthresh != 6000 && i.Ssthresh != 5000 {
		t.Errorf("state %s, ssthresh %d", i.CAState, i.Ssthresh)
	}
	for range 5 {
		f.Send(dup)
	}
	p.Take() // what proportional rate reduction lets out meanwhile
	f.Send(". 1:1(0) ack 3001")
	found := false
	for _, fr := range p.Take() {
		seg, _ := p.Parse(fr.Data)
		found = found || seg.Seq == f.IRS+3001
	}
	if !found {
		t.Error("a partial acknowledgement does not make the next hole go out (RFC 6582, 3.2 step 3)")
	}
	f.Send(fmt.Sprintf(". 1:1(0) ack %d", sent(f)))
	p.Take()
	p.Idle(50 * ms)
	f.Send(fmt.Sprintf(". 1:1(0) ack %d", sent(f))) // without SACK recovery ends above what was sent when it began (RFC 6582, 3.2)
	p.Take()
	if i := f.Info(); i.CAState != "open" || i.Cwnd > i.Ssthresh+2000 {
		t.Errorf("at the end: state %s, cwnd %d, ssthresh %d", i.CAState, i.Cwnd, i.Ssthresh)
	}
	if s := p.Stats().TCP; s.RTOs != 0 || s.Recoveries != 1 {
		t.Errorf("%d timeouts, %d recoveries", s.RTOs, s.Recoveries)
	}
}

// fresh are the segments that TestSACKRecovery's first data did not have.
func fresh(sent map[uint32]int) (n []uint32) {
	for sq := range sent {
		if sq > 14000 {
			n = append(n, sq)
		}
	}
	return n
}

// With SACK: what was reported is not sent again, three segments above a hole mark it lost (RFC 8985, 6.2).
func TestSACKRecovery(t *testing.T) {
	p, f := farPeer(t, tcp.Config{}, ",sackOK")
	f.Write(20_000)
	wantWindow(t, f)
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 2001 <>") // 3 and 6 are lost
	wantData(t, f, 11, 14, true)
	f.Send(". 1:1(0) ack 2001 <sack 3001:4001>")
	p.Take()
	f.Send(". 1:1(0) ack 2001 <sack 3001:5001>")
	p.Take()
	f.Send(". 1:1(0) ack 2001 <sack 6001:7001 3001:5001>")
	resent := map[uint32]int{}
	count := func() {
		for _, fr := range p.Take() {
			seg, _ := p.Parse(fr.Data)
			if len(seg.Payload) > 0 {
				resent[seg.Seq-f.IRS]++
			}
		}
	}
	count()
	if resent[2001] != 1 {
		t.Fatalf("sent %v, want the hole at 2001", resent)
	}
	p.Idle(3 * ms)
	if i := f.Info(); i.RetransOut != uint32(len(resent)-len(fresh(resent))) || i.LastAck != 3*ms {
		t.Errorf("%d segments out again, the last acknowledgement came %v ago, sent %v", i.RetransOut, i.LastAck, resent)
	}
	f.Send(". 1:1(0) ack 2001 <sack 6001:8001 3001:5001>")
	count()
	f.Send(". 1:1(0) ack 2001 <sack 6001:9001 3001:5001>")
	count()
	f.Send(". 1:1(0) ack 2001 <sack 6001:10001 3001:5001>")
	count()
	p.Idle(20 * ms)
	count()
	for s, n := range resent {
		if s != 2001 && s != 5001 && s < 10001 || n != 1 {
			t.Errorf("%d was sent %d times", s, n)
		}
	}
	if resent[5001] != 1 {
		t.Errorf("the hole at 5001 was not sent: %v", resent)
	}
	p.Idle(30 * ms)
	f.Send(fmt.Sprintf(". 1:1(0) ack %d <>", sent(f)))
	p.Take()
	if i := f.Info(); i.CAState != "open" || i.Sacked != 0 || i.Lost != 0 {
		t.Errorf("at the end %+v", i)
	}
	if s := p.Stats().TCP; s.RTOs != 0 {
		t.Errorf("%d timeouts", s.RTOs)
	}
}

// RFC 8985, 7: when nothing is acknowledged the tail is probed after two round trips, with new data if there is some.
func TestTailLossProbe(t *testing.T) {
	p, f := farPeer(t, tcp.Config{}, ",sackOK")
	f.Write(3000)
	wantData(t, f, 1, 3, true)
	f.ExpectAfter(100*ms, 5*ms, "P. 2001:3001(1000) ack 1") // the last one again
	if s := p.Stats().TCP; s.TLPs != 1 || s.RTOs != 0 {
		t.Errorf("%d probes, %d timeouts", s.TLPs, s.RTOs)
	}
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 1001 <sack 2001:3001>") // the probe shows that 2 is lost
	f.Expect(". 1001:2001(1000) ack 1")
	f.Send(". 1:1(0) ack 3001 <>")
	p.Quiet(time.Second)
}

// The probe's segment is the FIN, if that is the last.
func TestTailLossProbeFin(t *testing.T) {
	_, f := farPeer(t, tcp.Config{}, ",sackOK")
	f.Write(1000)
	f.CloseWrite()
	wantData(t, f, 1, 1, true)
	f.Expect("F. 1001:1001(0) ack 1")
	f.ExpectAfter(100*ms, 5*ms, "F. 1001:1001(0) ack 1")
	f.Send(". 1:1(0) ack 1002 <>")
}

// After a timeout the first segment goes again, and then what is still missing, as the acknowledgements come (RFC 5681, 3.1).
func TestTimeoutRecovery(t *testing.T) {
	p, f := farPeer(t, tcp.Config{}, "")
	f.Write(4000)
	wantData(t, f, 1, 4, true)
	f.ExpectAfter(250*ms, 2*ms, ". 1:1001(1000) ack 1")
	if i := f.Info(); i.Cwnd > 2000 || i.CAState != "loss" {
		t.Errorf("after the timeout: cwnd %d, state %s", i.Cwnd, i.CAState)
	}
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 1001")
	p.Idle(300 * ms)
	for range 6 {
		fr := p.Take()
		if len(fr) == 0 {
			break
		}
		top := uint32(0)
		for _, x := range fr {
			seg, _ := p.Parse(x.Data)
			top = max(top, seg.Seq-f.IRS+uint32(len(seg.Payload)))
		}
		p.Idle(50 * ms)
		f.Send(fmt.Sprintf(". 1:1(0) ack %d", top))
	}
	p.Quiet(time.Minute)
	if q := f.Info().SendQueue; q != 0 {
		t.Errorf("%d bytes were never acknowledged", q)
	}
}

// A retransmission of a segment of which a part was acknowledged starts behind that part.
func TestPartialSegmentAck(t *testing.T) {
	_, f := farPeer(t, tcp.Config{}, "")
	f.Write(1000)
	wantData(t, f, 1, 1, true)
	f.Send(". 1:1(0) ack 401")
	f.ExpectAfter(250*ms, 10*ms, "P. 401:1001(600) ack 1")
	f.Send(". 1:1(0) ack 1001")
}

// lateProber asks for a tail-loss probe together with the first word of a loss, as a process may that answers a timer and the
// acknowledgement behind it at once.
type lateProber struct {
	rtx.Module
	asked bool
}

func (m *lateProber) Poll(now plugins.Time, in []rtx.Event, out []rtx.Command) int {
	n := m.Module.Poll(now, in, out[:len(out)-1])
	for i := range out[:n] {
		if c := out[i]; c.Kind == rtx.CmdLost && !m.asked {
			m.asked = true
			copy(out[1:n+1], out[:n])
			out[0] = rtx.Command{Flow: c.Flow, AsOf: c.AsOf, Kind: rtx.CmdProbe}
			return n + 1
		}
	}
	return n
}

// A probe that is asked for when something is known to be lost is not sent (RFC 8985, 7.2), and does not hide what is.
func TestProbeBesideLoss(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	q, err := rtx.NewBTree(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := &lateProber{Module: q}
	index, err := p.Stack.Attach(plugins.Rtx, "prober", []any{m})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stack.Use(plugins.Rtx, index, plugins.Selection{}); err != nil {
		t.Fatal(err)
	}
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 60000 <mss 1000,sackOK>")
	f.Expect("S. 0:0(0) ack 1")
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 1 win 60000")
	f.Accept(l)
	f.Write(10_000)
	wantWindow(t, f)
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 1 <sack 2001:9001>")
	f.Expect(". 1:1001(1000) ack 1")
	f.Expect("P. 1001:2001(1000) ack 1")
	if !m.asked {
		t.Error("no probe was asked for")
	}
	f.Send(". 1:1(0) ack 10001")
	p.Quiet(time.Minute)
	if s := p.Stats().TCP; s.TLPs != 0 || s.RTOs != 0 || s.RetransSegs != 2 {
		t.Errorf("%d probes, %d timeouts, %d sent again", s.TLPs, s.RTOs, s.RetransSegs)
	}
}

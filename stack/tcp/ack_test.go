package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// pastQuickAcks receives small segments, each acknowledged at once, until the first phase is over. It returns the next number.
func pastQuickAcks(f *tcptest.Flow) int {
	for i := range 16 {
		f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", 1+10*i, 11+10*i))
		f.Expect(fmt.Sprintf(". 1:1(0) ack %d", 11+10*i))
		f.WantRead(10)
	}
	return 161
}

// RFC 9293, 3.8.6.3: an acknowledgement is delayed, here by 40 ms, once the first 16 have gone out at once.
func TestDelayedAck(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	at := pastQuickAcks(f)
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at, at+10))
	f.ExpectAfter(40*ms, exact, fmt.Sprintf(". 1:1(0) ack %d", at+10))
	// Data of ours carries it.
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at+10, at+20))
	p.Quiet(5 * ms)
	f.Write(5)
	f.Expect(fmt.Sprintf("P. 1:6(5) ack %d", at+20))
	p.Quiet(100 * ms)
	if s := p.Stats().TCP; s.DelayedAcks != 2 {
		t.Errorf("%d delayed, want 2", s.DelayedAcks)
	}
}

// The delay is configured.
func TestDelAckConfig(t *testing.T) {
	_, f := established(t, tcp.Config{DelAck: 10 * ms}, "mss 1460", 10000)
	at := pastQuickAcks(f)
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at, at+10))
	f.ExpectAfter(10*ms, exact, fmt.Sprintf(". 1:1(0) ack %d", at+10))
}

// RFC 5681, 4.2 and RFC 9293, MUST-58: at least every second full segment is acknowledged at once.
func TestEverySecondSegment(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1000", 10000)
	for i := range 16 {
		f.Send(fmt.Sprintf(". %d:%d(1000) ack 1", 1+1000*i, 1001+1000*i))
		f.Expect(fmt.Sprintf(". 1:1(0) ack %d", 1001+1000*i))
	}
	f.WantRead(16000)
	f.Send(". 16001:17001(1000) ack 1")
	f.Send(". 17001:18001(1000) ack 1")
	f.Expect(". 1:1(0) ack 18001")
	f.Send(". 18001:19001(1000) ack 1")
	f.Send(". 19001:20001(1000) ack 1")
	f.Expect(". 1:1(0) ack 20001")
	f.Send(". 20001:21001(1000) ack 1")
	f.ExpectAfter(40*ms, exact, ". 1:1(0) ack 21001")
}

// After a pause of more than an RTO the sender starts slowly, and is acknowledged at once again.
func TestQuickAckAfterPause(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	at := pastQuickAcks(f)
	p.Idle(3 * time.Second)
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at, at+10))
	f.Expect(fmt.Sprintf(". 1:1(0) ack %d", at+10))
}

// A gap ends a delay (RFC 5681, 4.2).
func TestGapEndsDelay(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460,sackOK", 10000)
	at := pastQuickAcks(f)
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at, at+10))
	p.Quiet(ms)
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at+20, at+30))
	f.Expect(fmt.Sprintf(". 1:1(0) ack %d <sack %d:%d>", at+10, at+20, at+30))
	f.Send(fmt.Sprintf("P. %d:%d(10) ack 1", at+10, at+20))
	f.Expect(fmt.Sprintf(". 1:1(0) ack %d", at+30))
	p.Quiet(time.Second)
}

// A request and its answer within the delay: acknowledgements ride on the answers, and then even the first phase's are delayed.
func TestPingPong(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.SendBatch("P. 1:11(10) ack 1")
	f.Expect(". 1:1(0) ack 11")
	f.Write(10)
	f.Expect("P. 1:11(10) ack 11")
	at, ours := 11, 11
	pingpong := false
	for range 5 {
		f.Send(fmt.Sprintf("P. %d:%d(10) ack %d", at, at+10, ours))
		at += 10
		if fr := p.Take(); len(fr) == 0 {
			pingpong = true
		}
		f.Write(10)
		f.Expect(fmt.Sprintf("P. %d:%d(10) ack %d", ours, ours+10, at))
		ours += 10
	}
	_ = pingpong
	f.Send(fmt.Sprintf(". %d:%d(0) ack %d", at, at, ours))
	p.Quiet(time.Second)
}

// A pure acknowledgement is never acknowledged, whatever its window says.
func TestNoAckOfAck(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Send(". 1:1(0) ack 1 win 5")
	f.Send(". 1:1(0) ack 1 win 50000")
	f.Send(". 1:1(0) ack 1 win 50000")
	p.Quiet(time.Second)
}

// Keepalive and zero-window probes of the peer (RFC 9293, 3.8.4) lie at RCV.NXT-1 and are answered each time.
func TestAnswersProbes(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 10000)
	for range 3 {
		f.Send(". 0:0(0) ack 1")
		f.Expect(". 1:1(0) ack 1")
		f.Send("P. 0:1(1) ack 1") // with a byte of garbage (RFC 1122, 4.2.3.6)
		f.Expect(". 1:1(0) ack 1")
		p.Quiet(time.Second)
	}
}

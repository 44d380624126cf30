package tcp_test

import (
	"fmt"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Small segments that were lost side by side go again in one, as far as they fit, with the FIN (Linux tcp_retrans_try_collapse).
func TestSmallSegmentsMergeWhenSentAgain(t *testing.T) {
	p, f := farPeer(t, tcp.Config{NoDelay: true}, ",sackOK")
	for i := range 8 {
		f.Write(300)
		f.Expect(fmt.Sprintf("P. %d:%d(300) ack 1", 1+300*i, 301+300*i))
	}
	f.Close()
	f.Expect("F. 2401:2401(0) ack 1")
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 301 <sack 1201:1501>") // 2 to 4 are missing
	f.Send(". 1:1(0) ack 301 <sack 1201:2101>") // ... and with this are they lost
	f.Expect("P. 301:1201(900) ack 1")
	f.Send(". 1:1(0) ack 301 <sack 1201:2402>")
	p.Quiet(20 * ms)
	if i := f.Info(); i.Counts.Retrans != 1 || i.Counts.BytesRetrans != 900 || i.InFlight != 900 {
		t.Errorf("%d retransmissions, %d bytes, %d in flight", i.Counts.Retrans, i.Counts.BytesRetrans, i.InFlight)
	}
	f.Send(". 1:1(0) ack 2402")
	p.Done()
}

// The FIN goes again with the last data.
func TestFinMergesWhenSentAgain(t *testing.T) {
	p, f := farPeer(t, tcp.Config{NoDelay: true}, "")
	f.Write(300)
	f.Expect("P. 1:301(300) ack 1")
	f.Write(300)
	f.Expect("P. 301:601(300) ack 1")
	f.Close()
	f.Expect("F. 601:601(0) ack 1")
	p.Idle(250 * ms) // all is lost: timeout
	f.Expect("FP. 1:601(600) ack 1")
	f.Send(". 1:1(0) ack 602")
	p.Done()
}

// A FIN that comes early is reported, alone or with the text before it (RFC 2018, 3: blocks of sequence numbers, of which it has one), so that
// a tail-loss probe that repeats it shows what is missing (RFC 8985, 7.3).
func TestEarlyFinIsReported(t *testing.T) {
	p, f := farPeer(t, tcp.Config{}, ",sackOK")
	f.Send("F. 301:301(0) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 301:302>")
	f.Send("P. 201:301(100) ack 1")
	f.Expect(". 1:1(0) ack 1 <sack 201:302>")
	f.Send(". 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 101 <sack 201:302>")
	f.Send(". 101:201(100) ack 1")
	f.Expect(". 1:1(0) ack 302")
	f.WantRead(300)
	f.WantState("CLOSE-WAIT")
	f.Close()
	f.Expect("F. 1:1(0) ack 302")
	f.Send(". 302:302(0) ack 2")
	p.Done()
}

package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// In-order segments of one burst are taken as one, and acknowledged once; what is more than a continuation is processed by itself
// (a gap, a mark, a new window or acknowledgement, a FIN), with the answers that it has alone.
func TestCoalesce(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(2)
	f := p.Passive(l, 5000, "mss 1460,sackOK", 10000)
	g := p.Passive(l, 5001, "mss 1460,sackOK", 10000)
	seg := func(at int) string { return fmt.Sprintf(". %d:%d(100) ack 1 win 10000", at, at+100) }
	want := func(segments, batches uint64) {
		t.Helper()
		if s := p.Stats().TCP; s.Coalesced != segments || s.CoalescedBatches != batches {
			t.Errorf("%d segments in %d batches, want %d in %d", s.Coalesced, s.CoalescedBatches, segments, batches)
		}
	}
	f.SendBatch(seg(1), seg(101), seg(201), seg(301))
	f.Expect(". 1:1(0) ack 401 <>")
	want(3, 1)
	f.SendBatch(seg(401), seg(601), seg(701)) // a gap
	f.Expect(". 1:1(0) ack 501 <sack 601:801>")
	want(3, 1)
	f.SendBatch(seg(501), seg(801), seg(901)) // it is filled
	f.Expect(". 1:1(0) ack 1001 <>")
	want(5, 2)
	f.SendBatch(seg(1001), "P. 1101:1201(100) ack 1 win 10000", ". 1201:1301(100) ack 1 win 9000", "F. 1301:1401(100) ack 1 win 9000")
	f.Expect(". 1:1(0) ack 1402 <>")
	want(6, 3)
	f.WantRead(1400)
	// Of two flows by turns none is a continuation: the order stays.
	var both []tcptest.Frame
	for i := range 4 {
		both = append(both, tcptest.Frame{Data: g.Build(seg(1 + 100*i))})
	}
	h := p.Passive(l, 5002, "mss 1460", 10000)
	p.SendFrames(both[0].Data, h.Build(seg(1)), both[1].Data, h.Build(seg(101)), both[2].Data, both[3].Data)
	g.Expect(". 1:1(0) ack 401 <>")
	h.Expect(". 1:1(0) ack 201 <>")
	want(7, 4)
}

// A batch that ends in PSH is acknowledged at once, also when acknowledgements are delayed otherwise; a single segment with PSH, and a
// batch without, wait for an answer to ride on (Linux ICSK_ACK_PUSHED2).
func TestPushedBatch(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Passive(p.Listen(1), 5000, "mss 1460", 10000)
	at := 1
	seg := func(flags string) string {
		at += 100
		return fmt.Sprintf("%s %d:%d(100) ack 1 win 10000", flags, at-100, at)
	}
	for range 16 { // the first are acknowledged at once
		f.Send(seg("P."))
		f.Expect(fmt.Sprintf(". 1:1(0) ack %d <>", at))
	}
	f.Send(seg("P."))
	f.ExpectAfter(40*time.Millisecond, 0, fmt.Sprintf(". 1:1(0) ack %d <>", at))
	f.SendBatch(seg("P."), seg("."))
	f.ExpectAfter(40*time.Millisecond, 0, fmt.Sprintf(". 1:1(0) ack %d <>", at))
	f.SendBatch(seg("."), seg("P."))
	f.Expect(fmt.Sprintf(". 1:1(0) ack %d <>", at))
	f.Send(seg("P.")) // the next one is single again
	f.ExpectAfter(40*time.Millisecond, 0, fmt.Sprintf(". 1:1(0) ack %d <>", at))

	// The same in a dialogue.
	f.Send(seg("P."))
	f.Write(10)
	f.Expect(fmt.Sprintf("P. 1:11(10) ack %d <>", at))
	f.SendBatch(seg("P."), seg("P."))
	f.Expect(fmt.Sprintf(". 11:11(0) ack %d <>", at))
}

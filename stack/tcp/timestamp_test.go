package tcp_test

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func withTimestamps(t *testing.T, val string) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p := newPeer(t, tcp.Config{})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 10000 <mss 1460,sackOK,ts " + val + " 0>")
	f.Expect("S. 0:0(0) ack 1 <mss 1460,sackOK,ts * " + val + ">")
	f.Send(". 1:1(0) ack 1 win 10000 <ts " + val + " 0>")
	f.Accept(l)
	return p, f
}

// RFC 7323, 4.3: what is echoed belongs to the earliest segment that is not acknowledged yet, and never to one behind a gap.
func TestTimestampEcho(t *testing.T) {
	p, f := withTimestamps(t, "100")
	for i := range 16 { // past the phase of immediate acknowledgements
		f.SendBatch([]string{"P. 1:2(1) ack 1 <ts 100 0>", "P. 2:3(1) ack 1 <ts 100 0>", "P. 3:4(1) ack 1 <ts 100 0>", "P. 4:5(1) ack 1 <ts 100 0>",
			"P. 5:6(1) ack 1 <ts 100 0>", "P. 6:7(1) ack 1 <ts 100 0>", "P. 7:8(1) ack 1 <ts 100 0>", "P. 8:9(1) ack 1 <ts 100 0>",
			"P. 9:10(1) ack 1 <ts 100 0>", "P. 10:11(1) ack 1 <ts 100 0>", "P. 11:12(1) ack 1 <ts 100 0>", "P. 12:13(1) ack 1 <ts 100 0>",
			"P. 13:14(1) ack 1 <ts 100 0>", "P. 14:15(1) ack 1 <ts 100 0>", "P. 15:16(1) ack 1 <ts 100 0>", "P. 16:17(1) ack 1 <ts 100 0>"}[i])
		p.Take()
	}
	f.Send("P. 17:27(10) ack 1 <ts 101 0>")
	p.Quiet(ms)
	f.Send("P. 27:37(10) ack 1 <ts 102 0>")
	f.ExpectAfter(39*ms, exact, ". 1:1(0) ack 37 <ts * 101>") // that of the first, which was delayed
	f.Send("P. 47:57(10) ack 1 <ts 104 0>")                   // behind a gap
	f.Expect(". 1:1(0) ack 37 <ts * 101,sack 47:57>")
	f.Send("P. 37:47(10) ack 1 <ts 103 0>") // fills it
	f.Expect(". 1:1(0) ack 57 <ts * 103>")
	f.WantRead(56)
}

// RFC 7323, 5.3: a segment with an older timestamp is dropped and acknowledged; a reset is not dropped for it. A tick is no age.
func TestPAWS(t *testing.T) {
	p, f := withTimestamps(t, "1000")
	f.Send("P. 1:11(10) ack 1 <ts 1010 0>")
	f.Expect(". 1:1(0) ack 11 <ts * 1010>")
	f.Send("P. 11:21(10) ack 1 <ts 1008 0>")
	f.Expect(". 1:1(0) ack 11 <ts * 1010>")
	f.Send("P. 11:21(10) ack 1 <ts 1010 0>") // equal is not older
	f.Expect(". 1:1(0) ack 21 <ts * 1010>")
	// What has arrived before, and was delayed so much that its copy overtook it, is reported as a duplicate (RFC 2883, 4.1).
	f.Send("P. 1:11(10) ack 1 <ts 1008 0>")
	f.Expect(". 1:1(0) ack 21 <ts * 1010,sack 1:11>")
	if s := p.Stats().TCP; s.PAWS != 2 {
		t.Errorf("%d segments dropped, want 2", s.PAWS)
	}
	f.WantRead(20)
	f.Send("R 21:21(0) <ts 1 0>")
	f.WantState("")
}

// What left in two ticks that follow each other may be reordered by jitter and is taken, but TS.Recent does not move back; and so is an
// acknowledgement that others have overtaken, whose SACK blocks may be news, as long as it is younger than a timeout (as Linux does).
func TestPAWSReordering(t *testing.T) {
	p, f := withTimestamps(t, "1000")
	f.Send("P. 1:11(10) ack 1 <ts 1010 0>")
	f.Expect(". 1:1(0) ack 11 <ts * 1010>")
	f.Send("P. 11:21(10) ack 1 <ts 1009 0>")
	f.Expect(". 1:1(0) ack 21 <ts * 1010>")
	f.WantRead(20)
	f.Write(4380)
	p.Take()
	sacked := func(ts, blocks string, want uint32) {
		t.Helper()
		f.Send(". 21:21(0) ack 1 win 10000 <ts " + ts + " 0,sack " + blocks + ">")
		if got := f.Info().Sacked; got != want {
			t.Errorf("%d bytes are SACKed after %s, want %d", got, blocks, want)
		}
	}
	sacked("1010", "2897:4345", 1448)
	sacked("900", "1449:2897", 2*1448) // 110 ticks: less than an RTO
	if s := p.Stats().TCP; s.PAWS != 0 {
		t.Errorf("%d segments dropped", s.PAWS)
	}
	f.Send(". 21:21(0) ack 1 win 10000 <ts 4294961296 0,sack 1:1449>")
	if s := p.Stats().TCP; s.PAWS != 1 {
		t.Errorf("%d segments dropped, one is older than any timeout", s.PAWS)
	}
	p.Take()
	f.Abort()
	p.Take()
}

// The comparison wraps (RFC 7323, 5.3), and after 24 days of silence the last value does not count (5.5).
func TestPAWSWrap(t *testing.T) {
	p, f := withTimestamps(t, "4294967290")
	f.Send("P. 1:11(10) ack 1 <ts 5 0>")
	f.Expect(". 1:1(0) ack 11 <ts * 5>")
	f.Send("P. 11:21(10) ack 1 <ts 4294967290 0>")
	f.Expect(". 1:1(0) ack 11 <ts * 5>")
	p.Quiet(25 * 24 * time.Hour)
	f.Send("P. 11:21(10) ack 1 <ts 4294967290 0>")
	p.Idle(100 * ms)
	f.Expect(". 1:1(0) ack 21 <ts * 4294967290>")
	f.WantRead(20)
}

// The clock ticks once per millisecond, from an offset that differs from one connection to the next (RFC 7323, 5.4).
func TestTimestampClock(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	value := func(c *tcptest.Flow) uint32 {
		var o wire.Options
		wire.ParseOptions(c.Expect("S 0:0(0)").Opts, &o)
		return o.TSVal
	}
	seen := map[uint32]bool{}
	for range 3 {
		c := p.Connect()
		first := value(c)
		if seen[first] {
			t.Error("two connections with one offset")
		}
		seen[first] = true
		p.Idle(time.Second)
		if d := value(c) - first; d != 1000 {
			t.Errorf("%d ticks in a second", d)
		}
		c.Abort()
	}
}

// A segment without timestamps on a connection that has them is taken, as Linux takes it.
func TestMissingTimestamp(t *testing.T) {
	_, f := withTimestamps(t, "1000")
	f.Send("P. 1:11(10) ack 1 <>")
	f.Expect(". 1:1(0) ack 11 <ts * 1000>")
	f.WantRead(10)
}

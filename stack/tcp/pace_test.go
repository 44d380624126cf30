package tcp_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// paced opens a connection, MSS 1000, whose pace is its own maximum rate, in payload bytes per second. Its window never holds it back.
func paced(t *testing.T, rate uint64, params plugins.Params) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	if params == nil {
		params = plugins.Params{}
	}
	params["window_pacing"] = "false"
	cfg := stack.Config{TCP: tcp.Config{InitialWindow: 100, NoDelay: true}}
	cfg.Modules[plugins.Pace] = stack.ModuleConfig{Name: "edt", Params: params}
	p := tcptest.New(t, tcptest.Config{Stack: cfg})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 65000 <mss 1000>")
	f.Expect("S. 0:0(0) ack 1")
	p.Idle(20 * ms) // a path so short that pieces are as large as can be would be another test
	f.Send(". 1:1(0) ack 1 win 65000")
	f.Accept(l)
	f.Conn.SetMaxRate(rate)
	p.Idle(ms)
	return p, f
}

// expectData wants the segments from the given one on, of 1000 bytes each, without time passing. Which of them are pushed is not pacing's.
func expectData(p *tcptest.Peer, f *tcptest.Flow, from, n, ack int) {
	p.T.Helper()
	p.Idle(0)
	for i := from; i < from+n; i++ {
		flags := "."
		if pending := p.Pending(); len(pending) > 0 {
			if t, _ := p.Parse(pending[0].Data); t.Flags&wire.PSH != 0 {
				flags = "P."
			}
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack %d", flags, 1000*i+1, 1000*i+1001, ack))
	}
	p.Done()
}

// expectAfter is expectData of what leaves d from now, to the nanosecond, and nothing before.
func expectAfter(p *tcptest.Peer, f *tcptest.Flow, d time.Duration, from, n, ack int) {
	p.T.Helper()
	p.Quiet(d - 1)
	p.Idle(1)
	expectData(p, f, from, n, ack)
}

// The first 10 data segments are not paced (F8); then pieces of at least two segments leave, each when the one before it has had its time. A
// timer is armed when something waits for its departure, and only then (F11).
func TestPacing(t *testing.T) {
	p, f := paced(t, 1e6, nil) // 1000 bytes take 1 ms
	f.Write(14_000)
	expectData(p, f, 0, 10, 1)
	expectAfter(p, f, ms, 10, 2, 1)
	expectAfter(p, f, 2*ms, 12, 2, 1)
	if n := p.Stats().TCP.PacingTimers; n != 2 {
		t.Errorf("%d timers armed, want 2: one for each piece that waited", n)
	}
	if i := f.Info(); i.Timer == "pace" {
		t.Error("a timer is armed after a send")
	}
	// After a pause the next piece leaves at once, and lateness is forgiven up to half of its time.
	p.Idle(20 * ms)
	f.Send(". 1:1(0) ack 14001")
	f.Write(4000)
	expectData(p, f, 14, 2, 1)
	expectAfter(p, f, ms, 16, 2, 1)
}

// credit 0 reproduces the state before the jitter credit: nothing is forgiven.
func TestPacingWithoutCredit(t *testing.T) {
	p, f := paced(t, 1e6, plugins.Params{"credit": "0", "free_segs": "0"})
	p.Idle(20 * ms)
	f.Write(4000)
	expectData(p, f, 0, 2, 1)
	expectAfter(p, f, 2*ms, 2, 2, 1)
}

// F10: pure acknowledgements leave at once, whatever the flow's data waits for, and its data does not overtake them.
func TestAcksAreNotPaced(t *testing.T) {
	p, f := paced(t, 1e5, plugins.Params{"free_segs": "0"}) // 1000 bytes take 10 ms
	f.Write(6000)
	expectData(p, f, 0, 2, 1) // the clock had never run: half of the time is forgiven
	at := f.Now()
	for i := range 3 {
		f.SendBatch(fmt.Sprintf(". %d:%d(1000) ack 1", 2000*i+1, 2000*i+1001), fmt.Sprintf(". %d:%d(1000) ack 1", 2000*i+1001, 2000*i+2001))
		f.Expect(fmt.Sprintf(". 2001:2001(0) ack %d", 2000*i+2001))
	}
	if f.Now() != at {
		t.Fatalf("the acknowledgements took %v", f.Now().Sub(at))
	}
	expectAfter(p, f, 10*ms, 2, 2, 6001)
	p.Idle(19 * ms)
	f.SendBatch(". 6001:7001(1000) ack 1", ". 7001:8001(1000) ack 1")
	f.Expect(". 4001:4001(0) ack 8001")
	expectAfter(p, f, ms, 4, 2, 8001)
}

// The departure is the send time of round-trip measurements: what a segment waited for it does not count.
func TestRTTFromDeparture(t *testing.T) {
	p, f := paced(t, 1e4, plugins.Params{"free_segs": "0"})
	f.Write(3000)
	expectData(p, f, 0, 2, 1)
	f.Send(". 1:1(0) ack 2001")
	expectAfter(p, f, 100*ms, 2, 1, 1)
	p.Idle(3 * ms)
	f.Send(". 1:1(0) ack 3001")
	if i := f.Info(); i.RTT > 20*ms {
		t.Errorf("RTT %v after samples of 20 ms, 1 µs and 3 ms", i.RTT)
	}
}

// A departure beyond the horizon is refused to the sender: writers wait, it is counted, and what has been taken is not lost.
func TestHorizon(t *testing.T) {
	p, f := paced(t, 1e3, plugins.Params{"free_segs": "0", "horizon": "400ms"}) // 1000 bytes take 1 s
	f.Write(2000)
	expectData(p, f, 0, 2, 1)
	f.Send(". 1:1(0) ack 2001")
	if n := p.Stats().TCP.HorizonRefusals; n != 0 || f.Conn.WriteRoom() == 0 {
		t.Fatalf("%d refusals while nothing waits, room for %d bytes", n, f.Conn.WriteRoom())
	}
	f.Write(1000)
	if _, err := f.Conn.TryWrite(make([]byte, 100)); !errors.Is(err, tcp.ErrWouldBlock) || f.Conn.WriteRoom() != 0 {
		t.Errorf("write with the departure 1 s ahead: %v, room for %d", err, f.Conn.WriteRoom())
	}
	f.Conn.SetSendBuffer(100_000) // changes nothing
	p.Idle(ms)
	if f.Conn.WriteRoom() != 0 {
		t.Error("a larger buffer makes room")
	}
	f.Conn.Wr.Arm()
	p.Quiet(598 * ms)
	if !f.Conn.Wr.Armed() {
		t.Error("the writer is woken too early")
	}
	p.Quiet(2 * ms)
	if f.Conn.Wr.Armed() {
		t.Error("the writer still waits when the departure is 400 ms ahead")
	}
	f.Conn.Wr.Disarm()
	f.Write(1000)
	expectAfter(p, f, 399*ms, 2, 2, 1)
	if s := p.Stats().TCP; s.HorizonRefusals != 1 || s.PacingTimers != 2 {
		t.Errorf("%d refusals, %d timers, want 1 and 2", s.HorizonRefusals, s.PacingTimers)
	}
}

// The maximum rate can change while data waits: what a low rate has set far ahead comes forward, at the new rate.
func TestMaxRateChanges(t *testing.T) {
	p, f := paced(t, 1, plugins.Params{"free_segs": "0"}) // 1 byte per second
	f.Write(2000)
	expectData(p, f, 0, 2, 1)
	f.Send(". 1:1(0) ack 2001")
	f.Write(2000)
	p.Quiet(time.Second)
	f.Conn.SetMaxRate(1e4)
	p.Quiet(199 * ms) // 1998 bytes were still owed: all lateness since time began is forgiven at this rate
	p.Idle(ms)
	expectData(p, f, 2, 2, 1)
	f.Send(". 1:1(0) ack 4001")
	if n := p.Stats().TCP.HorizonRefusals; n != 1 || f.Conn.WriteRoom() == 0 {
		t.Errorf("%d refusals, room for %d bytes after the rise", n, f.Conn.WriteRoom())
	}
	f.Write(2000)
	f.Conn.SetMaxRate(1) // 2000 bytes are still owed
	p.Quiet(time.Second)
	f.Conn.SetMaxRate(0)
	expectData(p, f, 4, 2, 1) // no limit, no debt
	f.Send(". 1:1(0) ack 6001")
	f.Conn.SetMaxRate(1e3)
	f.Write(1000)
	expectData(p, f, 6, 1, 1)
	f.Send(". 1:1(0) ack 7001")
	f.Write(1000)
	p.Quiet(999 * ms)
	p.Idle(ms)
	expectData(p, f, 7, 1, 1)
	if i := f.Info(); i.MaxRate != 1e3 || i.PacingRate != 1e3 {
		t.Errorf("Info: rate %d, maximum %d", i.PacingRate, i.MaxRate)
	}
}

// A rate of 2^63 bytes per second, and the largest that is not "no limit", hold nothing back.
func TestHugeMaxRate(t *testing.T) {
	for _, rate := range []uint64{1 << 63, plugins.Unlimited - 1} {
		p, f := paced(t, rate, nil)
		f.Write(40_000)
		expectData(p, f, 0, 40, 1)
		if i := f.Info(); i.PacingRate != rate {
			t.Errorf("pacing rate %d, want %d", i.PacingRate, rate)
		}
	}
}

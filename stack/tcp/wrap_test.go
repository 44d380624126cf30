package tcp_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// handshake opens a connection whose peer begins at iss; the round trip takes 50 ms.
func handshake(p *tcptest.Peer, active bool, iss uint32) *tcptest.Flow {
	p.T.Helper()
	const opts = " win 60000 <mss 1012,sackOK,ts * *>"
	if active {
		f := p.Connect()
		f.ISS, f.TS = iss, true
		f.Expect("S 0:0(0)")
		p.Idle(50 * ms)
		f.Send("S. 0:0(0) ack 1" + opts)
		f.Expect(". 1:1(0) ack 1")
		return f
	}
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.ISS, f.TS = iss, true
	f.Send("S 0:0(0)" + opts)
	f.Expect("S. 0:0(0) ack 1")
	p.Idle(50 * ms)
	f.Send(". 1:1(0) ack 1 win 60000")
	f.Accept(l)
	return f
}

// Sequence numbers of both directions wrap in the middle of data, SACK blocks, a retransmission and the FINs.
func TestSequenceWrap(t *testing.T) {
	for _, active := range []bool{false, true} {
		// The stack's initial number is a clock of 64 ns plus a hash of the tuple (RFC 6528); the same seed gives the same hash. So the
		// time at which a connection opens chooses its number.
		p := tcptest.New(t, tcptest.Config{})
		first := handshake(p, active, 1).IRS
		for _, before := range []uint32{1, 2, 500, 1001, 1500, 2500, 4001, 4002} { // how far the wrap lies behind the initial numbers
			t.Run(fmt.Sprintf("active=%v/%d", active, before), func(t *testing.T) {
				p := tcptest.New(t, tcptest.Config{Start: tcptest.Start + plugins.Time(-before-first)<<6})
				f := handshake(p, active, -before)
				if f.IRS != -before {
					t.Fatalf("initial sequence number %d, want %d", int32(f.IRS), -int32(before))
				}
				wrapReceive(f)
				wrapSend(p, f)
				f.Close()
				f.Expect("F. 4001:4001(0) ack 4001")
				f.Send("F. 4001:4001(0) ack 4002")
				f.Expect(". 4002:4002(0) ack 4002")
			})
		}
	}
}

func wrapReceive(f *tcptest.Flow) {
	f.Send(". 1001:2001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1 <ts * *,sack 1001:2001>")
	f.Send(". 3001:4001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1 <ts * *,sack 3001:4001 1001:2001>")
	f.Send(". 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 2001 <ts * *,sack 3001:4001>")
	f.Send(". 1601:3001(1400) ack 1") // overlaps on both sides
	f.Expect(". 1:1(0) ack 4001 <ts * *,sack 1601:2001>")
	f.WantRead(4000)
	f.Send(". 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 4001 <ts * *,sack 1:1001>")
}

func wrapSend(p *tcptest.Peer, f *tcptest.Flow) {
	f.Write(4000)
	for i := range 4 {
		flags := "."
		if i == 3 {
			flags = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 4001", flags, 1+1000*i, 1001+1000*i))
	}
	p.Idle(50 * ms)
	f.Send(". 4001:4001(0) ack 1 <ts * *,sack 1001:2001>")
	f.Send(". 4001:4001(0) ack 1 <ts * *,sack 1001:3001>")
	f.Send(". 4001:4001(0) ack 1 <ts * *,sack 1001:4001>")
	f.Expect(". 1:1001(1000) ack 4001")
	p.Idle(50 * ms)
	f.Send(". 4001:4001(0) ack 4001")
	p.Done()
}

// The same with timeouts in place of SACK, and the window's edges on both sides of the wrap.
func TestSequenceWrapTimeout(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{})
	first := handshake(p, false, 1).IRS
	p = tcptest.New(t, tcptest.Config{Start: tcptest.Start + plugins.Time(uint32(4294967296-501)-first)<<6})
	f := handshake(p, false, 4294967296-501)
	f.Write(1000)
	f.Expect("P. 1:1001(1000) ack 1")
	f.ExpectAfter(250*ms, 2*ms, "P. 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 401")
	f.ExpectAfter(250*ms, 10*ms, "P. 401:1001(600) ack 1")
	f.Send("R 70000000:70000000(0)")
	f.WantState("ESTAB")
	f.Send("F. 1:1(0) ack 1001")
	f.Expect(". 1001:1001(0) ack 2")
	f.WantReadErr(io.EOF)
	f.Send(". 2:2(0) ack 1002") // never sent
	f.Expect(". 1001:1001(0) ack 2")
	f.Send("R 2:2(0)")
	f.WantReadErr(io.EOF)
	f.WantWriteErr(tcp.Reset)
}

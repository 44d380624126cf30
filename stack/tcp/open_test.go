package tcp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

const (
	ms = time.Millisecond
	// exact is the tolerance for what happens at a set time: the wheel's tick, and one nanosecond per step.
	exact = 10 * time.Microsecond
)

func newPeer(t *testing.T, cfg tcp.Config) *tcptest.Peer {
	t.Helper()
	return tcptest.New(t, tcptest.Config{Stack: stack.Config{TCP: cfg}})
}

// options is every combination of what an end may offer.
func options(f func(name, opts string, sack, ts, ws bool)) {
	for i := range 8 {
		sack, ts, ws := i&1 != 0, i&2 != 0, i&4 != 0
		opts := "mss 1460"
		if sack {
			opts += ",sackOK"
		}
		if ts {
			opts += ",ts * *"
		}
		if ws {
			opts += ",ws 7"
		}
		f(fmt.Sprintf("sack=%v ts=%v ws=%v", sack, ts, ws), opts, sack, ts, ws)
	}
}

// ourOptions is what the stack sends in a SYN or SYN-ACK.
func ourOptions(sack, ts, ws bool) string {
	opts := "mss 1460"
	if sack {
		opts += ",sackOK"
	}
	if ts {
		opts += ",ts * *"
	}
	if ws {
		opts += ",ws 14" // 512 MiB
	}
	return "<" + opts + ">"
}

// RFC 9293, 3.5 and figure 6 (MUST-14, MUST-65: the MSS option is in SYNs and nowhere else); RFC 7323, 2.2 and 3.2; RFC 2018, 2: an option is taken up only if both ends send it.
func TestPassiveOpen(t *testing.T) {
	options(func(name, opts string, sack, ts, ws bool) {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, tcp.Config{})
			l := p.Listen(1)
			f := p.Flow(5000, 80)
			f.TS = ts
			f.Send("S 0:0(0) win 1000 <" + opts + ">")
			f.Expect(fmt.Sprintf("S. 0:0(0) ack 1 win %d ", map[bool]int{false: 64240, true: 65160}[ts]) + ourOptions(sack, ts, ws)) // as Linux's
			f.WantState("SYN-RECV")
			f.Send(". 1:1(0) ack 1 win 1000")
			f.Accept(l)
			f.WantState("ESTAB")
			checkOptions(t, f, sack, ts, ws)
			f.Send("P. 1:11(10) ack 1 win 1000")
			f.Expect(". 1:1(0) ack 11" + tsOption(ts))
			f.WantRead(10)
			f.Write(10)
			f.Expect("P. 1:11(10) ack 11" + tsOption(ts))
		})
	})
}

func TestActiveOpen(t *testing.T) {
	options(func(name, opts string, sack, ts, ws bool) {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, tcp.Config{})
			f := p.Connect()
			f.TS = ts
			syn := f.Expect("S 0:0(0) win 64240 " + ourOptions(true, true, true))
			if syn.Ack != 0 {
				t.Errorf("the SYN's acknowledgement field is %d", syn.Ack)
			}
			f.WantState("SYN-SENT")
			if f.Conn.Up() {
				t.Error("up before the handshake")
			}
			f.Send("S. 0:0(0) ack 1 win 1000 <" + opts + ">")
			f.Expect(". 1:1(0) ack 1" + tsOption(ts))
			f.WantState("ESTAB")
			if !f.Conn.Up() || f.Conn.Err() != tcp.OK {
				t.Error("not up after the handshake")
			}
			checkOptions(t, f, sack, ts, ws)
			f.Write(10)
			f.Expect("P. 1:11(10) ack 1" + tsOption(ts))
		})
	})
}

func tsOption(ts bool) string {
	if ts {
		return " <ts * *>"
	}
	return " <>"
}

func checkOptions(t *testing.T, f *tcptest.Flow, sack, ts, ws bool) {
	t.Helper()
	i := f.Info()
	if i.SACK != sack || i.Timestamps != ts {
		t.Errorf("SACK %v, timestamps %v", i.SACK, i.Timestamps)
	}
	if ws && (i.SndScale != 7 || i.RcvScale != 14) || !ws && (i.SndScale != 0 || i.RcvScale != 0) {
		t.Errorf("scales %d, %d", i.SndScale, i.RcvScale)
	}
	mss := uint32(1460)
	if ts {
		mss -= 12
	}
	if i.MSS != mss {
		t.Errorf("MSS %d, want %d", i.MSS, mss)
	}
}

// What the configuration rules out is neither offered nor taken up.
func TestOptionsOff(t *testing.T) {
	p := newPeer(t, tcp.Config{NoSACK: true, NoTimestamps: true, NoWScale: true})
	p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460,sackOK,ts 1 0,ws 7>")
	f.Expect("S. 0:0(0) ack 1 <mss 1460>")
	f.Send("R 1:1(0)")
	c := p.Connect()
	c.Expect("S 0:0(0) <mss 1460>")
	c.Send("S. 0:0(0) ack 1 <mss 1460,sackOK,ts 1 0,ws 7>")
	c.Expect(". 1:1(0) ack 1 <>")
	checkOptions(t, c, false, false, false)
}

// RFC 9293, 3.5, figure 7 (MUST-10): both ends send a SYN; each answers the other's with a SYN-ACK, and these complete the handshake.
func TestSimultaneousOpen(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.Send("S 0:0(0) win 1000 <mss 1460,sackOK,ws 7>")
	f.Expect("S. 0:0(0) ack 1 win 64240 <mss 1460,sackOK,ws 14>")
	f.WantState("SYN-RECV")
	f.Send("S. 0:0(0) ack 1 win 1000 <mss 1460,sackOK,ws 7>")
	f.Expect(". 1:1(0) ack 1")
	f.WantState("ESTAB")
	if !f.Conn.Up() {
		t.Error("not up")
	}
	f.Write(10)
	f.Expect("P. 1:11(10) ack 1")
	f.Send("P. 1:11(10) ack 11 win 1000")
	f.Expect(". 11:11(0) ack 11")
	f.WantRead(10)
}

// The same, completed by a plain acknowledgement (RFC 9293, 3.10.7.4, fifth, SYN-RECEIVED).
func TestSimultaneousOpenByAck(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1 <mss 1460>")
	f.Send(". 1:1(0) ack 1 win 1000")
	f.WantState("ESTAB")
}

// RFC 9293, 3.10.7.4, second (MUST-11): a reset in SYN-RECEIVED of a simultaneous open refuses the connection.
func TestSimultaneousOpenReset(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1 <mss 1460>")
	f.Send("R 1:1(0)")
	f.WantState("")
	if f.Conn.Err() != tcp.Refused {
		t.Errorf("error %v, want refused", f.Conn.Err())
	}
}

// RFC 6298, 2.1 and 5.5: the SYN is sent again after 1, 2, 4 … seconds; RFC 9293, 3.8.3 (R2, MUST-23): then the attempt ends.
func TestSynRetransmission(t *testing.T) {
	p := newPeer(t, tcp.Config{SynRetries: 3})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	for _, d := range []time.Duration{1, 2, 4} {
		f.ExpectAfter(d*time.Second, exact, "S 0:0(0) win 64240 "+ourOptions(true, true, true))
	}
	p.Quiet(8*time.Second - ms)
	f.WantState("SYN-SENT")
	p.Quiet(2 * ms)
	f.WantState("")
	if !f.Conn.Up() || f.Conn.Err() != tcp.TimedOut { // ETIMEDOUT
		t.Errorf("up %v, error %v", f.Conn.Up(), f.Conn.Err())
	}
}

// After a SYN that was sent again the first window is one segment (RFC 6928, 2) and there is no RTT sample (RFC 6298, 3).
func TestLostSyn(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.ExpectAfter(time.Second, exact, "S 0:0(0)")
	p.Idle(10 * ms)
	f.Send("S. 0:0(0) ack 1 win 65535 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
	if i := f.Info(); i.Cwnd != 1460 || i.RTT != 0 {
		t.Errorf("cwnd %d, RTT %v, want 1460 and none", i.Cwnd, i.RTT)
	}
}

func TestSynAckRetransmission(t *testing.T) {
	p := newPeer(t, tcp.Config{SynAckRetries: 2})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460,sackOK>")
	f.Expect("S. 0:0(0) ack 1")
	f.ExpectAfter(1*time.Second, exact, "S. 0:0(0) ack 1 win 64240 <mss 1460,sackOK>")
	f.ExpectAfter(2*time.Second, exact, "S. 0:0(0) ack 1")
	p.Quiet(4*time.Second + ms)
	f.WantState("")
	if _, err := l.TryAccept(); err != tcp.ErrWouldBlock {
		t.Errorf("accept: %v", err)
	}
	// The backlog has its place back: a late acknowledgement is refused, a new SYN is taken.
	f.Send(". 1:1(0) ack 1 win 1000")
	f.Expect("R 1:1(0)")
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
}

// A SYN that comes again in SYN-RECEIVED is answered with the same SYN-ACK (RFC 9293, 3.8.1).
func TestDuplicateSyn(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	first := f.Expect("S. 0:0(0) ack 1")
	p.Idle(100 * ms)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	if again := f.Expect("S. 0:0(0) ack 1"); again.Seq != first.Seq {
		t.Errorf("another initial sequence number: %d, %d", first.Seq, again.Seq)
	}
	p.Idle(10 * ms)
	f.Send(". 1:1(0) ack 1 win 1000")
	f.Accept(l)
	if rtt := f.Info().RTT; rtt != 0 { // which of the two was acknowledged is not known (RFC 6298, 3)
		t.Errorf("RTT %v from an ambiguous acknowledgement", rtt)
	}
}

// A new SYN with another sequence number in SYN-RECEIVED gets a challenge (RFC 5961, 4.2), so that the peer can reset the old one.
func TestOtherSynInSynReceived(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	f.Send("S 777:777(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	f.Send("R 1:1(0)")
	f.WantState("")
}

// RFC 9293, 3.10.7.3: an unacceptable ACK in SYN-SENT is answered with a reset, and the attempt goes on.
func TestSynSentBadAck(t *testing.T) {
	for _, bad := range []string{"S. 0:0(0) ack 0", "S. 0:0(0) ack 2", ". 0:0(0) ack 5000"} {
		p := newPeer(t, tcp.Config{})
		f := p.Connect()
		f.Expect("S 0:0(0)")
		f.Send(bad)
		fr := p.Take()
		if len(fr) != 1 {
			t.Fatalf("%s: %d answers", bad, len(fr))
		}
		seg, _ := p.Parse(fr[0].Data)
		if seg.Flags != wire.RST {
			t.Errorf("%s: answered with flags %x, want a reset", bad, seg.Flags)
		}
		f.WantState("SYN-SENT")
		f.Send("S. 0:0(0) ack 1 <mss 1460>")
		f.Expect(". 1:1(0) ack 1")
	}
}

// The reset's number is what the bad segment acknowledged (RFC 9293, 3.10.7.3).
func TestSynSentHalfOpenPeer(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.Send(". 300:300(0) ack 100") // the peer has an old connection (RFC 9293, 3.5.1, figure 9)
	f.Expect("R 100:100(0)")
	f.ExpectAfter(time.Second, exact, "S 0:0(0)")
	f.Send("S. 0:0(0) ack 1 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
}

func TestSynSentReset(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.Send("R 0:0(0)") // without ACK: dropped (RFC 9293, 3.10.7.3, second)
	f.Send("R. 0:0(0) ack 7")
	f.WantState("SYN-SENT")
	f.Send("R. 0:0(0) ack 1") // ECONNREFUSED
	f.WantState("")
	if f.Conn.Err() != tcp.Refused {
		t.Errorf("error %v", f.Conn.Err())
	}
	f.WantReadErr(tcp.Refused)
	f.WantWriteErr(tcp.Refused)
}

// Data and FIN before the handshake, and no flags at all, are dropped (RFC 9293, 3.10.7.3, fifth).
func TestSynSentOthers(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	for _, s := range []string{"- 0:10(10)", "F 0:0(0)", ". 1:11(10) ack 1", "F. 1:1(0) ack 1"} {
		f.Send(s)
	}
	f.WantState("SYN-SENT")
	p.Done()
}

// RFC 9293, 3.10.7.2: what a listener answers.
func TestListenSegments(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("R 0:0(0)")
	f.Send("R. 0:0(0) ack 5")
	f.Send("- 0:5(5)")
	f.Send("F 0:0(0)")
	f.Send("SF 0:0(0)")
	p.Done()
	f.IRS = 100
	f.Send(". 0:0(0) ack 5")
	fr := p.Take()
	if seg, _ := p.Parse(fr[0].Data); len(fr) != 1 || seg.Flags != wire.RST || seg.Seq != 105 {
		t.Errorf("an ACK to a listener: %+v", seg)
	}
	f.Send("S. 0:0(0) ack 5")
	if seg, _ := p.Parse(p.Take()[0].Data); seg.Flags != wire.RST || seg.Seq != 105 {
		t.Errorf("a SYN-ACK to a listener: %+v", seg)
	}
}

// RFC 9293, 3.10.7.1: what a closed port answers.
func TestClosedPort(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Flow(5000, 81)
	one := func(s string) wire.TCP {
		t.Helper()
		f.Send(s)
		fr := p.Take()
		if len(fr) != 1 {
			t.Fatalf("%s: %d answers", s, len(fr))
		}
		seg, _ := p.Parse(fr[0].Data)
		return seg
	}
	if s := one("S 0:0(0)"); s.Flags != wire.RST|wire.ACK || s.Seq != 0 || s.Ack != f.ISS+1 {
		t.Errorf("SYN: %+v", s)
	}
	if s := one("SF 0:7(7)"); s.Flags != wire.RST|wire.ACK || s.Seq != 0 || s.Ack != f.ISS+9 {
		t.Errorf("SYN and FIN with data: %+v", s)
	}
	f.IRS = 100
	if s := one(". 0:7(7) ack 5"); s.Flags != wire.RST || s.Seq != 105 {
		t.Errorf("ACK: %+v", s)
	}
	f.Send("R 0:0(0)")
	f.Send("R. 0:0(0) ack 5")
	p.Done()
}

// RFC 9293, 3.10.7.4, fifth, SYN-RECEIVED: an unacceptable acknowledgement is answered with a reset.
func TestSynReceivedBadAck(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 2")
	f.Expect("R 2:2(0)")
	f.Send(". 1:1(0) ack 0")
	f.Expect("R 0:0(0)")
	f.WantState("SYN-RECV")
	f.Send(". 1:1(0) ack 1")
	f.Accept(l)
}

// RFC 9293, 3.10.7.4, second: a reset in SYN-RECEIVED after a passive open leaves nothing behind.
func TestSynReceivedReset(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	f.Send("R 1:1(0)")
	f.WantState("")
	f.Send("S 0:0(0) win 1000 <mss 1460>") // there is room for it again
	f.Expect("S. 0:0(0) ack 1")
}

// The handshake's last segment may carry data, and a FIN.
func TestDataOnHandshake(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	f.Send("FP. 1:11(10) ack 1 win 1000")
	f.Expect(". 1:1(0) ack 12")
	f.Accept(l)
	f.WantRead(10)
	f.WantState("CLOSE-WAIT")
}

// The accept queue: when it is full, the handshake's last ACK is dropped, and so is a further SYN.
func TestAcceptQueueOverflow(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(2)
	open := func(port uint16) *tcptest.Flow {
		f := p.Flow(port, 80)
		f.Send("S 0:0(0) win 1000 <mss 1460>")
		f.Expect("S. 0:0(0) ack 1")
		return f
	}
	a, b, c := open(5000), open(5001), open(5002)
	a.Send(". 1:1(0) ack 1 win 1000")
	b.Send(". 1:1(0) ack 1 win 1000")
	c.Send(". 1:1(0) ack 1 win 1000")
	c.WantState("SYN-RECV")
	d := p.Flow(5003, 80)
	d.Send("S 0:0(0) win 1000 <mss 1460>") // no answer
	p.Done()
	if s := p.Stats().TCP; s.ListenOverflows != 2 || s.ListenDrops != 2 {
		t.Errorf("%d overflows, %d drops, want 2 and 2", s.ListenOverflows, s.ListenDrops)
	}
	a.Accept(l)
	c.ExpectAfter(time.Second, exact, "S. 0:0(0) ack 1") // the third end has lost nothing
	c.Send("P. 1:11(10) ack 1 win 1000")
	c.Expect(". 1:1(0) ack 11")
	b.Accept(l)
	c.Accept(l)
	c.WantRead(10)
	a.WantState("ESTAB")
	b.WantState("ESTAB")
}

// A listener that closes resets what nobody has accepted, and drops what is in the handshake.
func TestListenerClose(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(5)
	a := p.Flow(5000, 80)
	a.Send("S 0:0(0) win 1000 <mss 1460>")
	a.Expect("S. 0:0(0) ack 1")
	a.Send("P. 1:11(10) ack 1 win 1000")
	a.Expect(". 1:1(0) ack 11")
	b := p.Flow(5001, 80)
	b.Send("S 0:0(0) win 1000 <mss 1460>")
	b.Expect("S. 0:0(0) ack 1")
	p.Stack.CloseListener(l)
	a.Expect("R. 1:1(0) ack 11")
	b.WantState("")
	b.Send(". 1:1(0) ack 1 win 1000")
	b.Expect("R 1:1(0)")
	if _, err := l.TryAccept(); err != tcp.Aborted {
		t.Errorf("accept: %v", err)
	}
}

// RFC 6056, 3.3.3: source ports differ from one attempt to the next, lie in the range, and one in use is not taken.
func TestPortChoice(t *testing.T) {
	p := newPeer(t, tcp.Config{PortLow: 40000, PortHigh: 40003})
	seen := map[uint16]bool{}
	for range 4 {
		f := p.Connect()
		f.Expect("S 0:0(0)")
		if seen[f.StackPort] || f.StackPort < 40000 || f.StackPort > 40003 {
			t.Errorf("port %d, after %v", f.StackPort, seen)
		}
		seen[f.StackPort] = true
	}
	to := netip.AddrPortFrom(tcptest.PeerAddr, 80)
	if _, err := p.Stack.Connect(netip.AddrPort{}, to); err != tcp.NotLocal {
		t.Errorf("a fifth connection through four ports: %v", err)
	}
	if _, err := p.Stack.Connect(netip.AddrPortFrom(tcptest.StackAddr, 40000), to); err != tcp.PortInUse {
		t.Errorf("a port in use by name: %v", err)
	}
	// To another port of the peer all four are free.
	if _, err := p.Stack.Connect(netip.AddrPortFrom(tcptest.StackAddr, 40000), netip.AddrPortFrom(tcptest.PeerAddr, 81)); err != nil {
		t.Errorf("the same port to another remote end: %v", err)
	}
	p.Take()
}

// A connection waits for the link address; the SYN leaves as soon as it is known.
func TestOpenWaitsForARP(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Silent: true})
	f := p.Connect()
	p.Quiet(500 * ms)
	p.Speak()
	f.ExpectAfter(500*ms, 20*ms, "S 0:0(0)") // the next request leaves a second after the first
	f.Send("S. 0:0(0) ack 1 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
	if rtt := f.Info().RTT; rtt > ms {
		t.Errorf("RTT %v: the wait for the address counts", rtt)
	}
}

// CloseWrite and Close before the handshake is over.
func TestCloseInHandshake(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	f.Expect("S 0:0(0)")
	f.CloseWrite()
	f.Send("S. 0:0(0) ack 1 <mss 1460>")
	f.Expect("F. 1:1(0) ack 1")
	f.WantState("FIN-WAIT-1")
	f.Send(". 1:1(0) ack 2")
	g := p.Connect()
	g.Expect("S 0:0(0)")
	g.Close() // RFC 9293, 3.10.4, SYN-SENT: the TCB is deleted
	g.WantState("")
	g.Send("S. 0:0(0) ack 1 <mss 1460>")
	g.Expect("R 1:1(0)")
}

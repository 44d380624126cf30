package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// RFC 1122, 4.2.3.9 and RFC 9293, MUST-54: what each ICMP error means for an attempt to connect (errors as Linux maps them). Hard ones end it at once, soft ones
// (MUST-56) only give the reason when it ends by itself.
func TestICMPInSynSent(t *testing.T) {
	for _, tc := range []struct {
		typ, code uint8
		hard      bool
		why       tcp.Errno
	}{
		{wire.ICMPUnreachable, 0, false, tcp.NoRoute},
		{wire.ICMPUnreachable, 1, false, tcp.Unreachable},
		{wire.ICMPUnreachable, 2, true, tcp.NoProtocol},
		{wire.ICMPUnreachable, 3, true, tcp.Refused},
		{wire.ICMPUnreachable, 5, false, tcp.NoRoute},
		{wire.ICMPUnreachable, 9, true, tcp.NoRoute},
		{wire.ICMPUnreachable, 10, true, tcp.Unreachable},
		{wire.ICMPUnreachable, 11, false, tcp.NoRoute},
		{wire.ICMPUnreachable, 12, false, tcp.Unreachable},
		{wire.ICMPUnreachable, 13, true, tcp.Unreachable},
		{wire.ICMPUnreachable, 200, false, tcp.Unreachable},
		{wire.ICMPTimeExceeded, 0, false, tcp.Unreachable},
		{wire.ICMPParamProblem, 0, false, tcp.BadPacket},
	} {
		t.Run(fmt.Sprint(tc.typ, ".", tc.code), func(t *testing.T) {
			p := newPeer(t, tcp.Config{SynRetries: 1})
			f := p.Connect()
			f.Expect("S 0:0(0)")
			f.ICMP(tc.typ, tc.code, 0, 1, 60) // not what was sent (RFC 5927, 4.1)
			f.WantState("SYN-SENT")
			f.ICMP(tc.typ, tc.code, 0, 0, 60)
			if tc.hard {
				f.WantState("")
			} else {
				f.WantState("SYN-SENT")
				f.ExpectAfter(time.Second, exact, "S 0:0(0)")
				p.Quiet(2*time.Second + ms)
			}
			if f.Conn.Err() != tc.why || !f.Conn.Up() {
				t.Errorf("error %v, want %v", f.Conn.Err(), tc.why)
			}
		})
	}
}

// In SYN-RECEIVED after a passive open a hard error ends the attempt, and the peer's next SYN begins another.
func TestICMPInSynReceived(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	f.ICMP(wire.ICMPUnreachable, wire.ICMPHostUnreachable, 0, 0, 60)
	f.ICMP(wire.ICMPUnreachable, wire.ICMPPortUnreachable, 0, 1, 60) // not what was sent
	f.ExpectAfter(time.Second, exact, "S. 0:0(0) ack 1")
	f.ICMP(wire.ICMPUnreachable, wire.ICMPPortUnreachable, 0, 0, 60)
	p.Quiet(10 * time.Second)
	if s := p.Stats().TCP; s.SynRecvs != 0 || s.AttemptFails != 1 {
		t.Errorf("%d half-open, %d failed", s.SynRecvs, s.AttemptFails)
	}
}

// RFC 5927, 5.2: no error ends a synchronized connection. The last one is the reason if it times out without an answer (RFC 1122,
// 4.2.3.9), but not if the peer has answered since.
func TestICMPWhenEstablished(t *testing.T) {
	both(t, tcp.Config{RetransTimeout: 3 * time.Second}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1")
		for code := range uint8(16) {
			if code != wire.ICMPFragNeeded {
				f.ICMP(wire.ICMPUnreachable, code, 0, 1, 60)
			}
		}
		f.ICMP(wire.ICMPSourceQuench, 0, 0, 1, 60) // RFC 6633: ignored
		f.ICMP(wire.ICMPTimeExceeded, 0, 0, 1, 60)
		f.WantState("ESTAB")
		f.Send(". 1:1(0) ack 11")
		f.Write(10)
		f.Expect("P. 11:21(10) ack 1")
		f.ICMP(wire.ICMPUnreachable, wire.ICMPHostUnreachable, 0, 1, 60) // not in flight any more
		f.ICMP(wire.ICMPUnreachable, wire.ICMPNetUnreachable, 0, 11, 60)
		p.Until(time.Minute, func() bool { p.Take(); return f.Conn.Done() })
		if f.Conn.Err() != tcp.NoRoute {
			t.Errorf("error %v, want %v", f.Conn.Err(), tcp.NoRoute)
		}
	})
	both(t, tcp.Config{RetransTimeout: 3 * time.Second}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1")
		f.ICMP(wire.ICMPUnreachable, wire.ICMPHostUnreachable, 0, 1, 60)
		f.Send(". 1:1(0) ack 11")
		f.Write(10)
		p.Until(time.Minute, func() bool { p.Take(); return f.Conn.Done() })
		if f.Conn.Err() != tcp.TimedOut {
			t.Errorf("error %v, want %v", f.Conn.Err(), tcp.TimedOut)
		}
	})
}

// When nobody answers for the next hop's address, connect ends with "no route to host" after the third request (RFC 1122, 2.3.2.2; the
// neighbour's tries are Linux's), and a later attempt asks again.
func TestConnectWithoutNeighbour(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Silent: true})
	f := p.Connect()
	p.Quiet(2900 * ms)
	f.WantState("SYN-SENT")
	p.Quiet(200 * ms)
	f.WantState("")
	if f.Conn.Err() != tcp.Unreachable || !f.Conn.Up() {
		t.Errorf("error %v, want %v", f.Conn.Err(), tcp.Unreachable)
	}
	g := p.Connect()
	p.Speak()
	g.Expect("S 0:0(0)")
	g.Send("R. 0:0(0) ack 1")
}

// The same over IPv6 (RFC 4443, 3.1; errors as Linux maps them).
func TestICMP6InSynSent(t *testing.T) {
	for _, tc := range []struct {
		typ, code uint8
		hard      bool
		why       tcp.Errno
	}{
		{wire.ICMP6Unreachable, wire.ICMP6NoRoute, false, tcp.NoRoute},
		{wire.ICMP6Unreachable, wire.ICMP6Prohibited, true, tcp.Prohibited},
		{wire.ICMP6Unreachable, wire.ICMP6AddrUnreachable, false, tcp.Unreachable},
		{wire.ICMP6Unreachable, wire.ICMP6PortUnreachable, true, tcp.Refused},
		{wire.ICMP6Unreachable, 5, true, tcp.Prohibited},
		{wire.ICMP6TimeExceeded, 0, false, tcp.Unreachable},
		{wire.ICMP6ParamProblem, 0, false, tcp.BadPacket},
	} {
		t.Run(fmt.Sprint(tc.typ, ".", tc.code), func(t *testing.T) {
			p := tcptest.New(t, tcptest.Config{IPv6: true, Stack: stack.Config{TCP: tcp.Config{SynRetries: 1}}})
			f := p.Connect()
			f.Expect("S 0:0(0)")
			f.ICMP(tc.typ, tc.code, 0, 0, 60)
			if tc.hard {
				f.WantState("")
			} else {
				f.WantState("SYN-SENT")
				f.ExpectAfter(time.Second, exact, "S 0:0(0)")
				p.Quiet(2*time.Second + ms)
			}
			if f.Conn.Err() != tc.why {
				t.Errorf("error %v, want %v", f.Conn.Err(), tc.why)
			}
		})
	}
}

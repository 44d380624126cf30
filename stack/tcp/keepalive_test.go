package tcp_test

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

var keepalive = tcp.Config{KeepaliveIdle: 100 * time.Second, KeepaliveEvery: 10 * time.Second, KeepaliveCount: 3}

// RFC 9293, 3.8.4: off by default.
func TestKeepaliveOff(t *testing.T) {
	p, f := established(t, keepalive, "mss 1460", 10000)
	p.Quiet(24 * time.Hour)
	f.WantState("ESTAB")
}

// A probe lies at SND.NXT-1. As long as it is answered the connection lives, and the next one comes after another idle time.
func TestKeepalive(t *testing.T) {
	p, f := established(t, keepalive, "mss 1460", 10000)
	f.Conn.SetOption(tcp.OptKeepalive, true)
	f.ExpectAfter(100*time.Second, ms, ". 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1")
	f.ExpectAfter(100*time.Second, ms, ". 0:0(0) ack 1")
	p.Quiet(5 * time.Second)
	f.Send(". 1:1(0) ack 1")
	f.ExpectAfter(100*time.Second, ms, ". 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1")
	// Data puts it off.
	p.Quiet(60 * time.Second)
	f.Write(10)
	f.Expect("P. 1:11(10) ack 1")
	f.Send(". 1:1(0) ack 11")
	f.ExpectAfter(100*time.Second, ms, ". 10:10(0) ack 1")
	f.Send(". 1:1(0) ack 11")
	f.Conn.SetOption(tcp.OptKeepalive, false)
	p.Quiet(time.Hour)
}

// Without answers the connection ends (ETIMEDOUT) and the peer is told.
func TestKeepaliveTimeout(t *testing.T) {
	p, f := established(t, keepalive, "mss 1460", 10000)
	f.Conn.SetOption(tcp.OptKeepalive, true)
	f.ExpectAfter(100*time.Second, ms, ". 0:0(0) ack 1")
	// Unanswered, they go on even if the link address is asked for again between them.
	f.ExpectAfter(10*time.Second, ms, ". 0:0(0) ack 1")
	f.ExpectAfter(10*time.Second, ms, ". 0:0(0) ack 1")
	f.ExpectAfter(10*time.Second, ms, "R. 1:1(0) ack 1")
	f.WantState("")
	f.WantReadErr(tcp.TimedOut)
	if s := p.Stats().TCP; s.KeepaliveProbes != 3 || s.AbortOnTimeout != 1 {
		t.Errorf("%d probes, %d timeouts", s.KeepaliveProbes, s.AbortOnTimeout)
	}
}

// A reset as the answer, from a peer that has restarted (RFC 9293, 3.5.1).
func TestKeepaliveReset(t *testing.T) {
	_, f := established(t, keepalive, "mss 1460", 10000)
	f.Conn.SetOption(tcp.OptKeepalive, true)
	f.ExpectAfter(100*time.Second, ms, ". 0:0(0) ack 1")
	f.Send("R 1:1(0)")
	f.WantState("")
	f.WantReadErr(tcp.Reset)
}

// Without another setting a peer is probed after two hours (RFC 9293, MUST-28).
func TestKeepaliveDefault(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1460", 10000)
	f.Conn.SetOption(tcp.OptKeepalive, true)
	f.ExpectAfter(2*time.Hour, ms, ". 0:0(0) ack 1")
	f.Send("R 1:1(0)")
}

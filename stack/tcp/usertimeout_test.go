package tcp_test

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// advertise makes f tell its peer a user timeout.
func advertise(f *tcptest.Flow, d time.Duration) {
	f.Conn.Tune(func(t *tcp.Tuning) { t.AdvTimeout = d })
}

func wantTimeouts(t *testing.T, f *tcptest.Flow, own, peer time.Duration) {
	t.Helper()
	if i := f.Info(); i.UserTimeout != own || i.PeerTimeout != peer {
		t.Errorf("user timeout %v, the peer's %v, want %v and %v", i.UserTimeout, i.PeerTimeout, own, peer)
	}
}

// RFC 5482, 3 and 3.1: a client tells its timeout with the SYN, also when that is sent again, and with the first segment after it. The
// longer of both ends' holds.
func TestUserTimeoutOption(t *testing.T) {
	p := newPeer(t, tcp.Config{AdvTimeout: 150 * time.Second, RetransTimeout: time.Second})
	f := p.Connect()
	f.Expect("S 0:0(0) <mss 1460,sackOK,ts * 0,ws 14,uto 150>")
	f.ExpectAfter(time.Second, ms, "S 0:0(0) <mss 1460,sackOK,ts * 0,ws 14,uto 150>")
	f.Send("S. 0:0(0) ack 1 win 10000 <mss 1000,uto 5m>")
	f.Expect(". 1:1(0) ack 1 <uto 150>")
	wantTimeouts(t, f, 5*time.Minute, 5*time.Minute)
	f.Write(10)
	f.Expect("P. 1:11(10) ack 1 <>")
	f.Send(". 1:1(0) ack 11 <uto 120>")
	wantTimeouts(t, f, 150*time.Second, 2*time.Minute)
	f.Write(10)
	f.Expect("P. 11:21(10) ack 1 <>")
	p.Until(time.Minute, func() bool { return p.Stats().TCP.RTOs == 1 })
	p.Take()
	if got := ended(p, f, time.Hour); got < 150*time.Second-ms || got > 150*time.Second+ms || f.Conn.Err() != tcp.TimedOut {
		t.Errorf("ended %v after the first timeout with %v", got, f.Conn.Err())
	}
}

// A server answers with its own, whether or not the SYN had one; what a SYN had that was answered with a cookie comes again.
func TestUserTimeoutOptionServer(t *testing.T) {
	for _, mode := range []tcp.SynCookies{tcp.CookiesOverflow, tcp.CookiesAlways} {
		p := newPeer(t, tcp.Config{AdvTimeout: 40 * time.Hour, SynCookies: mode, MaxUserTimeout: 50 * time.Hour})
		l := p.Listen(1)
		f := p.Flow(5000, 80)
		f.Send("S 0:0(0) win 10000 <mss 1000,uto 30000m>")
		f.Expect("S. 0:0(0) ack 1 <mss 1460,uto 2400m>")
		f.Send(". 1:1(0) ack 1 win 10000 <uto 2500m>")
		f.Accept(l)
		wantTimeouts(t, f, 2500*time.Minute, 2500*time.Minute)
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1 <uto 2400m>")
		p.Done()
	}
}

// RFC 5482, 3.1 and 3.4: timeouts have bounds, reserved values are ignored, and what the application has set the peer cannot change.
func TestUserTimeoutBounds(t *testing.T) {
	const own = 924600 * ms
	both(t, tcp.Config{AdvTimeout: time.Second}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Send(". 1:1(0) ack 1 <uto 0>")
		f.Send(". 1:1(0) ack 1 <uto 0m>")
		wantTimeouts(t, f, own, 0)
		f.Send(". 1:1(0) ack 1 <uto 5>")
		wantTimeouts(t, f, 100*time.Second, 5*time.Second)
		f.Send(". 1:1(0) ack 1 <uto 30000m>")
		wantTimeouts(t, f, time.Hour, 30000*time.Minute)
		userTimeout(f, 7*time.Second)
		f.Send(". 1:1(0) ack 1 <uto 200>")
		wantTimeouts(t, f, 7*time.Second, 200*time.Second)
		userTimeout(f, 0)
		p.Idle(0)
		wantTimeouts(t, f, 200*time.Second, 200*time.Second)
		f.Send(". 1:1(0) ack 999999 <uto 300>") // not from the peer: the acknowledgement cannot be true
		p.Take()
		wantTimeouts(t, f, 200*time.Second, 200*time.Second)
		if s := p.Stats().TCP; s.UserTimeouts != 3 {
			t.Errorf("%d options taken up", s.UserTimeouts)
		}
		advertise(f, -1)
		p.Idle(0)
		wantTimeouts(t, f, own, 0)
	})
}

// Without the option enabled it is neither sent nor read (RFC 5482, 3: ENABLED is false by default).
func TestUserTimeoutOptionOff(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Send(". 1:1(0) ack 1 <uto 200>")
		wantTimeouts(t, f, 924600*ms, 0)
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1 <>")
	})
}

// A new value goes with the next segment that has room: a full one has none, nor one with three SACK blocks beside timestamps.
func TestUserTimeoutOptionRoom(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 60000)
	advertise(f, 90*time.Second)
	f.Write(1500)
	f.Expect(". 1:1001(1000) ack 1 <>")
	f.Expect("P. 1001:1501(500) ack 1 <uto 90>")
	f.Send(". 1:1(0) ack 1501")
	advertise(f, 90*time.Second) // nothing new
	f.Write(10)
	f.Expect("P. 1501:1511(10) ack 1 <>")
	p.Done()

	p, f = withTimestamps(t, "100")
	for i, sacks := range []string{"11:21", "31:41 11:21", "51:61 31:41 11:21"} {
		f.Send([]string{"P. 11:21(10) ack 1 <ts 100 0>", "P. 31:41(10) ack 1 <ts 100 0>", "P. 51:61(10) ack 1 <ts 100 0>"}[i])
		f.Expect(". 1:1(0) ack 1 <ts * 100,sack " + sacks + ">")
	}
	advertise(f, 90*time.Second)
	f.Send("P. 71:81(10) ack 1 <ts 100 0>")
	f.Expect(". 1:1(0) ack 1 <ts * 100,sack 71:81 51:61 31:41>")
	f.Send("P. 1:11(10) ack 1 <ts 100 0>")
	f.Expect(". 1:1(0) ack 21 <ts * 100,sack 71:81 51:61 31:41>")
	f.Send("P. 21:31(10) ack 1 <ts 100 0>")
	f.Expect(". 1:1(0) ack 41 <ts * 100,uto 90,sack 71:81 51:61>")
	p.Done()
}

// RFC 5482, 4.2: keepalive does not end a connection before the timeout that was agreed on.
func TestUserTimeoutOptionOfKeepalive(t *testing.T) {
	cfg := tcp.Config{AdvTimeout: time.Second, KeepaliveIdle: 10 * time.Second, KeepaliveEvery: 10 * time.Second, KeepaliveCount: 2}
	both(t, cfg, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Conn.SetOption(tcp.OptKeepalive, true)
		f.Send(". 1:1(0) ack 1 <uto 120>")
		if got := ended(p, f, time.Hour); got < 2*time.Minute || got > 2*time.Minute+10*time.Second || f.Conn.Err() != tcp.TimedOut {
			t.Errorf("ended after %v with %v", got, f.Conn.Err())
		}
	})
}

package tcp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

func userTimeout(f *tcptest.Flow, d time.Duration) {
	f.Conn.Tune(func(t *tcp.Tuning) { t.UserTimeout = d })
}

// ended lets time pass until the connection is over, taking what the stack sends, and returns how long that took.
func ended(p *tcptest.Peer, f *tcptest.Flow, within time.Duration) time.Duration {
	p.T.Helper()
	start := f.Now()
	p.Until(within, func() bool { p.Take(); return f.Conn.Done() })
	return f.Now().Sub(start)
}

// RFC 5482, 3 and Linux's TCP_USER_TIMEOUT (RFC 9293, MUST-21): data that is not acknowledged ends the connection that long after the first timeout, be that
// sooner or later than R2, and to the moment.
func TestUserTimeout(t *testing.T) {
	for _, d := range []time.Duration{3 * time.Second, 40 * time.Second} {
		both(t, tcp.Config{RetransTimeout: 10 * time.Second}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
			userTimeout(f, d)
			f.Write(10)
			p.Until(time.Second, func() bool { return p.Stats().TCP.RTOs == 1 })
			p.Take()
			if got := ended(p, f, time.Minute); got < d-ms || got > d+ms || f.Conn.Err() != tcp.TimedOut {
				t.Errorf("ended %v after the first timeout with %v, want %v", got, f.Conn.Err(), d)
			}
		})
	}
}

// Acknowledged data begins it anew.
func TestUserTimeoutProgress(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		userTimeout(f, time.Second)
		for i := range 5 {
			f.Write(10)
			p.Idle(700 * ms) // a timeout or two
			p.Take()
			f.Send(fmt.Sprintf(". 1:1(0) ack %d", 11+10*i))
			p.Take()
		}
		f.WantState("ESTAB")
		p.Quiet(time.Hour)
	})
}

// A closed window counts too, although its probes are answered (as Linux has it; without the option RFC 9293, MUST-37 holds).
func TestUserTimeoutOfProbes(t *testing.T) {
	for _, answer := range []bool{true, false} {
		both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
			userTimeout(f, 2*time.Second)
			f.Send(". 1:1(0) ack 1 win 0")
			f.Write(10)
			start := f.Now()
			p.Until(time.Minute, func() bool {
				if n := len(p.Take()); n > 0 && answer && !f.Conn.Done() {
					f.Send(". 1:1(0) ack 1 win 0")
				}
				return f.Conn.Done()
			})
			if got := f.Now().Sub(start); got < 2*time.Second || got > 2500*ms || f.Conn.Err() != tcp.TimedOut {
				t.Errorf("answered %v: ended after %v with %v", answer, got, f.Conn.Err())
			}
		})
	}
}

func TestUserTimeoutOfHandshake(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	f := p.Connect()
	userTimeout(f, 2500*ms)
	if got := ended(p, f, time.Minute); got != 2500*ms && got != 3*time.Second || f.Conn.Err() != tcp.TimedOut {
		t.Errorf("ended after %v with %v", got, f.Conn.Err())
	}
}

// With a user timeout, that and not the number of probes says when an idle peer is given up.
func TestUserTimeoutOfKeepalive(t *testing.T) {
	both(t, tcp.Config{KeepaliveIdle: 10 * time.Second, KeepaliveEvery: time.Second, KeepaliveCount: 2}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		userTimeout(f, 15*time.Second)
		f.Conn.SetOption(tcp.OptKeepalive, true)
		if got := ended(p, f, time.Minute); got < 15*time.Second || got > 16*time.Second || f.Conn.Err() != tcp.TimedOut {
			t.Errorf("ended after %v with %v", got, f.Conn.Err())
		}
		if n := p.Stats().TCP.KeepaliveProbes; n < 4 {
			t.Errorf("%d probes", n)
		}
	})
}

// A connection that the application has closed is given up after 102 s (Linux: 8 tries), others after R2.
func TestOrphanTimeout(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(10)
		f.Close()
		if n := p.Stats().TCP.Orphans; n != 1 {
			t.Errorf("%d orphans", n)
		}
		if got := ended(p, f, 5*time.Minute); got < 102*time.Second || got > 103*time.Second {
			t.Errorf("ended after %v", got)
		}
		if n := p.Stats().TCP.Orphans; n != 0 {
			t.Errorf("%d orphans at the end", n)
		}
	})
}

// Beyond the limit, or when memory is out, a connection that the application closes is reset.
func TestOrphanLimit(t *testing.T) {
	p := newPeer(t, tcp.Config{MaxOrphans: 1})
	l := p.Listen(3)
	f := p.Passive(l, 5000, "mss 1460", 1000)
	g := p.Passive(l, 5001, "mss 1460", 1000)
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	g.Close()
	g.Expect("R. 1:1(0) ack 1")
	g.WantState("")
	f.Send("F. 1:1(0) ack 2")
	f.Expect(". 2:2(0) ack 2")
	if s := p.Stats().TCP; s.Orphans != 0 || s.AbortOnMemory != 1 || s.TimeWaits != 1 {
		t.Errorf("%d orphans, %d for want of memory, %d in TIME-WAIT", s.Orphans, s.AbortOnMemory, s.TimeWaits)
	}

	b := smallBudget(t, 1<<20)
	p = tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	f = p.Passive(p.Listen(1), 5000, "mss 1460", 1000)
	give := take(t, b, 1<<20)
	defer give()
	b.TryAdd(1)
	if b.Level() != mem.Full {
		t.Fatalf("level %v", b.Level())
	}
	f.Close()
	f.Expect("R. 1:1(0) ack 1")
}

// FIN-WAIT-2 ends after a while if nobody holds the connection (RFC 9293, 3.6 allows for it; Linux's tcp_fin_timeout and TCP_LINGER2).
func TestFinWait2(t *testing.T) {
	for _, own := range []time.Duration{0, 5 * time.Second} {
		both(t, tcp.Config{FinWait2: 20 * time.Second}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
			want := 20 * time.Second
			if own != 0 {
				f.Conn.Tune(func(t *tcp.Tuning) { t.FinWait2 = own })
				want = own
			}
			f.Close()
			f.Expect("F. 1:1(0) ack 1")
			f.Send(". 1:1(0) ack 2")
			p.Quiet(want - ms)
			f.WantState("FIN-WAIT-2")
			p.Quiet(2 * ms)
			f.WantState("")
		})
	}
}

// closeFirst brings the connection to TIME-WAIT.
func closeFirst(f *tcptest.Flow) {
	f.Close()
	f.Expect("F. 1:1(0) ack 1")
	f.Send("F. 1:1(0) ack 2")
	f.Expect(". 2:2(0) ack 2")
	f.WantState("")
}

// The number of TIME-WAIT records is bounded: beyond it connections go without, their last acknowledgement is sent all the same.
func TestTimeWaitLimit(t *testing.T) {
	p := newPeer(t, tcp.Config{MaxTimeWaits: 1})
	l := p.Listen(3)
	closeFirst(p.Passive(l, 5000, "mss 1460", 1000))
	closeFirst(p.Passive(l, 5001, "mss 1460", 1000))
	if s := p.Stats().TCP; s.TimeWaits != 1 || s.TimeWaitOverflows != 1 || s.Conns != 0 {
		t.Errorf("%d in TIME-WAIT, %d without, %d connections", s.TimeWaits, s.TimeWaitOverflows, s.Conns)
	}
}

// RFC 6191, 2: a SYN with timestamps begins a new incarnation if the old one had none, whatever its sequence number.
func TestTimeWaitNewTimestamps(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(3)
	closeFirst(p.Passive(l, 5000, "mss 1460", 1000))
	g := p.Flow(5000, 80)
	g.ISS = 1 // below the old one's last
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	old := p.Take()
	if seg, _ := p.Parse(old[0].Data); len(old) != 1 || seg.Flags != 1<<4 {
		t.Errorf("a SYN without timestamps and below the old connection's end was taken")
	}
	p.Idle(time.Second)
	g.Send("S 0:0(0) win 1000 <mss 1460,ts 1 0>")
	g.Expect("S. 0:0(0) ack 1")
	g.Send("R 1:1(0)")
}

// When all ports to a destination are in TIME-WAIT, an active open takes one of them a second later, if timestamps tell old segments
// from new ones, with a sequence number above the old one's (RFC 6191, 2).
func TestTimeWaitPortReuse(t *testing.T) {
	for _, ts := range []bool{true, false} {
		t.Run(fmt.Sprint("ts ", ts), func(t *testing.T) {
			p := newPeer(t, tcp.Config{PortLow: 40000, PortHigh: 40000, NoTimestamps: !ts})
			f := p.Connect()
			f.TS = ts
			f.Expect("S 0:0(0)")
			opts := "<mss 1460>"
			if ts {
				opts = "<mss 1460,ts 1 *>"
			}
			f.Send("S. 0:0(0) ack 1 " + opts)
			f.Expect(". 1:1(0) ack 1")
			closeFirst(f)
			end := f.IRS + 2
			to := netip.AddrPortFrom(tcptest.PeerAddr, 80)
			if _, err := p.Stack.Connect(netip.AddrPort{}, to); err != tcp.NotLocal {
				t.Errorf("at once: %v", err)
			}
			p.Idle(time.Second)
			if !ts {
				if _, err := p.Stack.Connect(netip.AddrPort{}, to); err != tcp.NotLocal {
					t.Errorf("without timestamps: %v", err)
				}
				return
			}
			g := p.Connect()
			g.Expect("S 0:0(0)")
			if d := g.IRS - end; g.StackPort != 40000 || d < 65536 || d > 1<<20 {
				t.Errorf("port %d, initial sequence number %d above the old end", g.StackPort, d)
			}
			if s := p.Stats().TCP; s.TimeWaitReuses != 1 || s.TimeWaits != 0 {
				t.Errorf("%d reused, %d in TIME-WAIT", s.TimeWaitReuses, s.TimeWaits)
			}
			g.Send("R. 0:0(0) ack 1")
		})
	}
}

// RFC 6056, 3.3.4: ports to one destination come one after the other from an offset that only we know; what others are sent does not
// move them, for nearly all of them.
func TestPortsOfDestinations(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	port := func(remote uint16) uint16 {
		c, err := p.Stack.Connect(netip.AddrPort{}, netip.AddrPortFrom(tcptest.PeerAddr, remote))
		if err != nil {
			t.Fatal(err)
		}
		p.Take()
		return c.Tuple.LocalPort
	}
	before := map[uint16]uint16{}
	for r := range uint16(50) {
		before[r+1] = port(r + 1)
	}
	next, starts := 0, map[uint16]bool{}
	for r := range uint16(50) {
		if got := port(r + 1); got == before[r+1]+1 {
			next++
		}
		starts[before[r+1]] = true
	}
	if next < 45 || len(starts) < 45 {
		t.Errorf("%d of 50 destinations got the next port, %d offsets", next, len(starts))
	}
}

// RFC 9293, 3.10.4 and 3.8.6.1: a FIN waits behind data that a closed window holds back, for as long as that lasts; it leaves with the last
// byte, and is sent again with it.
func TestFinBehindClosedWindow(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(1)
		f.Expect("P. 1:2(1) ack 1")
		f.Send(". 1:1(0) ack 2 win 1460")
		f.Write(3000)
		f.Expect(". 2:1462(1460) ack 1")
		f.CloseWrite()
		f.Send(". 1:1(0) ack 1462 win 0")
		f.WantState("FIN-WAIT-1")
		for range 6 {
			f.ExpectAfter(10*time.Second, 10*time.Second, ". 1461:1461(0) ack 1")
			f.Send(". 1:1(0) ack 1462 win 0")
		}
		f.Send(". 1:1(0) ack 1462 win 1460")
		f.Expect(". 1462:2922(1460) ack 1")
		f.Send(". 1:1(0) ack 2922 win 65535")
		f.Expect("FP. 2922:3002(80) ack 1")
		f.ExpectAfter(205*ms, 205*ms, "FP. 2922:3002(80) ack 1")
		f.Send(". 1:1(0) ack 3003 win 65535")
		f.WantState("FIN-WAIT-2")
		f.Send("F. 1:1(0) ack 3003")
		f.Expect(". 3003:3003(0) ack 2")
	})
}

// RFC 9293, 3.5.1, figure 10: a peer that has crashed begins anew; our challenge makes it reset what is left of the old connection
// (RFC 5961, 4.2), and its next SYN opens a new one.
func TestHalfOpenPeer(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(2)
	f := p.Passive(l, 5000, "mss 1460", 1000)
	g := p.Flow(5000, 80)
	g.ISS = 900_000_000
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect(". 1:1(0) ack 1")
	f.Send("R 1:1(0)")
	f.WantReadErr(tcp.Reset)
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	g.Expect("S. 0:0(0) ack 1")
	g.Send("R 1:1(0)")
}

// ... and if it is we who send first, its reset tells us (figure 11).
func TestHalfOpenData(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(10)
		f.Expect("P. 1:11(10) ack 1")
		f.Send("R 1:1(0)") // SEQ is the acknowledgement of what it does not know
		f.WantWriteErr(tcp.Reset)
		f.WantState("")
	})
}

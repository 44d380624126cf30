package tcp_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// A connection's own times of keepalive, changed while the timer runs: what has passed of the idle time counts.
func TestKeepaliveTuned(t *testing.T) {
	p, f := established(t, keepalive, "mss 1460", 10000)
	f.Conn.SetOption(tcp.OptKeepalive, true)
	p.Quiet(30 * time.Second)
	f.Conn.Tune(func(t *tcp.Tuning) { t.KeepIdle, t.KeepEvery, t.KeepCount = 40*time.Second, 2*time.Second, 2 })
	f.ExpectAfter(10*time.Second, ms, ". 0:0(0) ack 1")
	f.ExpectAfter(2*time.Second, ms, ". 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1")
	f.ExpectAfter(40*time.Second, ms, ". 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1")
	p.Quiet(20 * time.Second)
	f.Conn.Tune(func(t *tcp.Tuning) { t.KeepIdle = time.Second }) // passed long ago
	f.Expect(". 0:0(0) ack 1")
	f.ExpectAfter(2*time.Second, ms, ". 0:0(0) ack 1")
	f.ExpectAfter(2*time.Second, ms, "R. 1:1(0) ack 1")
	f.WantReadErr(tcp.TimedOut)
}

// Flush sends what Nagle's algorithm or a cork holds, once.
func TestFlush(t *testing.T) {
	for _, cork := range []bool{false, true} {
		p, f := established(t, tcp.Config{}, "mss 1000", 30000)
		f.Conn.SetOption(tcp.OptCork, cork)
		f.Write(10)
		if cork {
			p.Quiet(50 * ms)
			f.Conn.Flush()
		}
		f.Expect("P. 1:11(10) ack 1")
		f.Write(20)
		p.Quiet(50 * ms)
		f.Conn.Flush()
		f.Expect("P. 11:31(20) ack 1")
		f.Write(30) // held again
		p.Quiet(50 * ms)
		f.Send(". 1:1(0) ack 31")
		if cork {
			f.Conn.SetOption(tcp.OptCork, false)
		}
		f.Expect("P. 31:61(30) ack 1")
		p.Quiet(50 * ms)
	}
}

// With a low-water mark no more than that waits to be sent, whatever the windows, and the writer is woken when half of it has left.
func TestNotSentLowat(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 4000)
	const mark = 5000
	f.Conn.Tune(func(t *tcp.Tuning) { t.NotSentLowat = mark })
	p.Idle(0)
	off := 0
	write := func(want int) {
		t.Helper()
		n := 0
		for {
			k, err := f.Conn.TryWrite(tcptest.Bytes(uint64(off+n), 1000))
			if err != nil {
				break
			}
			n += k
		}
		if off += n; n != want {
			t.Fatalf("%d bytes could be written, want %d", n, want)
		}
	}
	write(mark)
	for i := range 4 { // as many as the window lets through
		f.Expect([]string{". 1:1001(1000) ack 1", ". 1001:2001(1000) ack 1", ". 2001:3001(1000) ack 1", "P. 3001:4001(1000) ack 1"}[i])
	}
	write(4000)
	if i := f.Info(); i.NotSent != mark || i.SendQueue != mark+4000 {
		t.Errorf("%d bytes not sent of %d", i.NotSent, i.SendQueue)
	}
	f.Conn.Wr.Arm()
	f.Send(". 1:1(0) ack 1001 win 4000")
	f.Expect(". 4001:5001(1000) ack 1")
	if !f.Conn.Wr.Armed() {
		t.Error("the writer is woken with 4000 of 5000 bytes left")
	}
	f.Send(". 1:1(0) ack 3001 win 4000")
	f.Expect(". 5001:6001(1000) ack 1")
	f.Expect("P. 6001:7001(1000) ack 1")
	if f.Conn.Wr.Armed() {
		t.Error("the writer is not woken with 2000 of 5000 bytes left")
	}
	f.Conn.Wr.Disarm()
	write(3000)
	f.Conn.Tune(func(t *tcp.Tuning) { t.NotSentLowat = 0 })
	p.Idle(0)
	if got := f.Conn.SendBuffer(); got < 100_000 {
		t.Errorf("a limit of %d bytes without the mark", got)
	}
	f.Abort()
	f.Expect("R. 7001:7001(0) ack 1")
}

// A listener's connections, and a new one, begin with what was set; the engine's settings can be cleared.
func TestSetup(t *testing.T) {
	p := newPeer(t, tcp.Config{NoDelay: true, KeepaliveIdle: time.Hour})
	s := &tcp.Setup{Options: tcp.OptKeepalive, NoOptions: tcp.OptNoDelay, Tuning: &tcp.Tuning{KeepIdle: 10 * time.Second, RecvBuffer: 30_000, SendBuffer: 20_000}}
	l, err := p.Stack.ListenAs(netip.AddrPortFrom(tcptest.StackAddr, 80), 1, false, s)
	if err != nil {
		t.Fatal(err)
	}
	f := p.Passive(l, 5000, "mss 1460", 60000)
	if i := f.Info(); i.RcvBuf != 30_000 || i.SndBuf != 20_000 {
		t.Errorf("buffers of %d and %d bytes", i.RcvBuf, i.SndBuf)
	}
	f.Write(10)
	f.Write(10) // Nagle
	f.Expect("P. 1:11(10) ack 1")
	f.Send(". 1:1(0) ack 11")
	f.Expect("P. 11:21(10) ack 1")
	f.Send(". 1:1(0) ack 21")
	f.ExpectAfter(10*time.Second, ms, ". 20:20(0) ack 1")
	f.Send(". 1:1(0) ack 21")
	f.Abort()
	f.Expect("R. 21:21(0) ack 1")

	c, err := p.Stack.ConnectAs(netip.AddrPort{}, netip.AddrPortFrom(tcptest.PeerAddr, 80), s)
	if err != nil {
		t.Fatal(err)
	}
	g := p.Flow(80, c.Tuple.LocalPort)
	g.Conn = c
	if syn := g.Expect("S 0:0(0)"); syn.Window != 30_000 {
		t.Errorf("a SYN with window %d", syn.Window)
	}
	g.Send("S. 0:0(0) ack 1 win 10000 <mss 1460>")
	g.Expect(". 1:1(0) ack 1")
	g.ExpectAfter(10*time.Second, ms, ". 0:0(0) ack 1")
	g.Send("R 1:1(0)")
}

// Bytes that were filled in place go out like written ones; what is not committed leaves nothing.
func TestReserve(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 30000)
	b, ch, err := f.Conn.TryReserve(700)
	if err != nil || len(b) != 700 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	copy(b, tcptest.Bytes(0, 500))
	f.Conn.Commit(500)
	f.Conn.Arena().Put(ch)
	f.Expect("P. 1:501(500) ack 1")
	f.Send(". 1:1(0) ack 501")
	_, ch, err = f.Conn.TryReserve(100)
	if err != nil {
		t.Fatal(err)
	}
	f.Conn.Commit(0)
	f.Conn.Arena().Put(ch)
	p.Quiet(50 * ms)
	if err := f.Conn.Arena().CheckLeaks(); err != nil {
		t.Errorf("after a commit of nothing: %v", err)
	}
	_, ch, err = f.Conn.TryReserve(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	f.CloseWrite()
	f.Expect("F. 501:501(0) ack 1")
	f.Send(". 1:1(0) ack 502")
	f.Conn.Commit(0)
	if _, _, err := f.Conn.TryReserve(1); err != tcp.Shutdown {
		t.Errorf("after CloseWrite: %v", err)
	}
	f.Send("F. 1:1(0) ack 502")
	f.Expect(". 502:502(0) ack 2")
	f.Conn.Arena().Put(ch)
}

// Taken bytes open the window at once and stay as they are.
func TestTake(t *testing.T) {
	_, f := established(t, tcp.Config{}, "mss 1000", 30000)
	f.Send("P. 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 101")
	b, ch, err := f.Conn.TryTake(60)
	if err != nil || !bytes.Equal(b, tcptest.Bytes(0, 60)) {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	f.Send("P. 101:201(100) ack 1")
	f.Expect(". 1:1(0) ack 201")
	if n := f.Info().RecvQueue; n != 140 {
		t.Errorf("%d bytes wait", n)
	}
	f.Send("R 201:201(0)")
	var all []byte
	var held []*mem.Chunk
	for {
		p, ch, err := f.Conn.TryTake(1 << 20)
		if err != nil {
			if err != tcp.Reset {
				t.Error(err)
			}
			break
		}
		all, held = append(all, p...), append(held, ch)
	}
	f.Conn.Close()
	if !bytes.Equal(all, tcptest.Bytes(60, 140)) || !bytes.Equal(b, tcptest.Bytes(0, 60)) {
		t.Error("other bytes came")
	}
	for _, ch := range append(held, ch) {
		f.Conn.Arena().Put(ch)
	}
}

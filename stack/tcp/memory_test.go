package tcp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

func smallBudget(t *testing.T, high int64) *mem.Budget {
	t.Helper()
	b, err := mem.NewBudget(mem.Limits{Low: high / 2, Pressure: high * 3 / 4, High: high})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// suddenBudget has no pressure: memory ends without a warning.
func suddenBudget(t *testing.T, high int64) *mem.Budget {
	t.Helper()
	b, err := mem.NewBudget(mem.Limits{Low: high, Pressure: high, High: high})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stackConfig has receive buffers of 4 MiB from the start.
func stackConfig(b *mem.Budget) stack.Config {
	return stack.Config{Budget: b, TCP: tcp.Config{RecvBuffer: 4 << 20, RecvStart: 4 << 20}}
}

// take makes somebody else use the budget up to n bytes; the function returned gives them back.
func take(t *testing.T, b *mem.Budget, n int64) func() {
	t.Helper()
	k := n - b.Used()
	if k < 0 || !b.TryAdd(k) {
		t.Fatalf("%d bytes are in use, cannot make it %d", b.Used(), n)
	}
	return func() { b.Sub(k) }
}

// Memory that is full of data out of order must not keep out the bytes that would complete it: what waits is dropped, not
// acknowledged any more, and comes again (RFC 2018, 8).
func TestFullOfOutOfOrderData(t *testing.T) {
	b := suddenBudget(t, 256<<10)
	p := tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1460,sackOK,ws 7", 1000)
	const step = 4096
	n := 0
	for p.Stats().TCP.RcvMemDrops == 0 {
		if n++; n > 200 {
			t.Fatal("memory does not run out")
		}
		at := 1 + step*n
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
		p.Take()
	}
	if b.Stats().Refusals == 0 {
		t.Errorf("memory %+v", b.Stats())
	}
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1001 <>")
	if s := p.Stats().TCP; s.RcvPruned != 1 {
		t.Errorf("pruned %d times, want 1", s.RcvPruned)
	}
	f.WantRead(1000)
	for at := 1001; at < 50_000; at += 1000 { // the peer sends everything again
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
		p.Idle(50 * ms)
		p.Take()
		f.WantRead(1000)
	}
}

// The same when bytes of the same turn are in order and not told to the reader yet.
func TestPruneKeepsThisTurn(t *testing.T) {
	b := suddenBudget(t, 256<<10)
	p := tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1460,sackOK,ws 7", 1000)
	for n := 1; p.Stats().TCP.RcvMemDrops == 0; n++ {
		at := 10_001 + 4096*n
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
		p.Take()
	}
	f.SendBatch("P. 1:1001(1000) ack 1", "P. 1001:2001(1000) ack 1", "P. 2001:3001(1000) ack 1", "P. 3001:4001(1000) ack 1")
	f.Expect(". 1:1(0) ack 4001 <>")
	f.WantRead(4000)
}

// Under pressure windows do not grow, and shrink to a small one as data comes in; then they grow again.
func TestWindowUnderPressure(t *testing.T) {
	b := smallBudget(t, 16<<20)
	p := tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1460,ws 7", 1000)
	give := take(t, b, 13<<20)
	at := 1
	receive := func(n int) {
		for range n {
			f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
			p.Take()
			f.WantRead(1000)
			at += 1000
		}
	}
	receive(40)
	if w := f.Info().RcvWnd; w > 65535-40_000 {
		t.Errorf("window %d grew under pressure", w)
	}
	receive(40)
	if w := f.Info().RcvWnd; w > 16<<10 || w < 15<<10 {
		t.Errorf("window %d, want 16 KiB", w)
	}
	give()
	receive(3)
	if w := f.Info().RcvWnd; w < 1<<20 {
		t.Errorf("window %d after the pressure has gone", w)
	}
}

// When memory is full, windows close and new flows are refused; all of it recovers.
func TestFullMemory(t *testing.T) {
	b := smallBudget(t, 1<<20)
	p := tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	l := p.Listen(4)
	f := p.Passive(l, 5000, "mss 1460,ws 7", 1000)
	f.Send("P. 1:1001(1000) ack 1")
	p.Take()
	f.WantRead(1000)
	at := 1001
	give := take(t, b, 1<<20)
	b.TryAdd(1) // refused: full
	if b.Level() != mem.Full {
		t.Fatalf("level %v", b.Level())
	}
	if _, err := p.Stack.Connect(netip.AddrPort{}, netip.AddrPortFrom(tcptest.PeerAddr, 80)); err != tcp.NoMemory {
		t.Errorf("connect: %v, want no memory", err)
	}
	g := p.Flow(5001, 80)
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	p.Done()
	if s := p.Stats().TCP; s.ListenDrops != 1 {
		t.Errorf("%d SYN dropped", s.ListenDrops)
	}
	old := f.Info().RcvWnd
	for range 30 {
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
		p.Take()
		f.WantRead(1000)
		at += 1000
	}
	if w := f.Info().RcvWnd; w+30_000 > old+1000 {
		t.Errorf("window %d, was %d before 30000 bytes", w, old)
	}
	give()
	f.Send(fmt.Sprintf(". %d:%d(0) ack 1", at-1, at-1)) // a probe
	p.Take()
	if w := f.Info().RcvWnd; w < 1<<20 {
		t.Errorf("window %d after memory came back", w)
	}
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	g.Expect("S. 0:0(0) ack 1")
	p.Quiet(ms)
}

// Segment logs are charged, and given back when they are not needed.
func TestLogsAreCharged(t *testing.T) {
	b := smallBudget(t, 64<<20)
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{Budget: b, TCP: tcp.Config{InitialWindow: 4000, SendBuffer: 16 << 20}}})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 100,ws 7", 65535)
	f.Conn.SetSendBuffer(1 << 20)
	f.Write(300_000)
	p.Take()
	unacked := f.Info().Unacked
	if unacked < 2000 {
		t.Fatalf("%d segments", unacked)
	}
	if used := b.Used(); used < int64(unacked)*64/16+300_000 {
		t.Errorf("%d bytes charged for %d segments of 300000 bytes", used, unacked)
	} else if used > int64(unacked)*64/2+300_000 {
		t.Errorf("%d bytes charged: segments that left together do not share an entry", used)
	}
	p.Idle(time.Millisecond)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes charged after the end", used)
	}
}

// Under pressure data out of order takes a share of what is left, so that connections that never fill their gaps leave room for others;
// a sender's buffer too.
func TestSharesUnderPressure(t *testing.T) {
	b := smallBudget(t, 1<<20)
	p := tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1460,sackOK,ws 7", 1000)
	for n := range 600 {
		at := 10_001 + 4096*n
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
		p.Take()
	}
	if p.Stats().TCP.RcvMemDrops == 0 || b.Level() != mem.Pressure || b.Stats().Refusals != 0 {
		t.Errorf("%d dropped, memory %+v", p.Stats().TCP.RcvMemDrops, b.Stats())
	}
	if n, err := f.Conn.TryWrite(make([]byte, 100_000)); n != mem.Small.Size() || err != nil {
		t.Errorf("%d bytes written, %v", n, err)
	}
	if n, err := f.Conn.TryWrite(make([]byte, 100_000)); n != 0 || err != tcp.ErrWouldBlock {
		t.Errorf("%d bytes more written, %v", n, err)
	}
	p.Take()
	f.Abort()
	p.Take()
}

package tcp_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// onEither runs a test on a port that cuts frames of up to 65000 bytes of payload, and on one that cuts none.
func onEither(t *testing.T, name string, f func(t *testing.T, tso int)) {
	for port, tso := range map[string]int{"TSO": 65000, "no TSO": 0} {
		t.Run(name+", "+port, func(t *testing.T) { f(t, tso) })
	}
}

// On every port, whether it cuts segments or not, what the window allows waits for more if that is little and the next acknowledgement is near (TCP_FACTS: TSO defer; Linux
// tcp_tso_should_defer). It does not wait if a third of the window is free, if the acknowledgement is far, if the last segment left more
// than 1 ms ago, or if the stream ends here.
func TestDefer(t *testing.T) {
	const rtt = 200 * us
	for _, c := range []struct {
		name  string
		acked int           // segments that the first acknowledgement is for
		after time.Duration // ... after they were sent
		more  int           // segments that the application has written beyond the window
		fin   bool
		sent  int // segments that leave then
	}{
		{name: "little, and the next is near", acked: 2, after: rtt, more: 20},
		{name: "a third of the window", acked: 10, after: rtt, more: 20, sent: 10},
		{name: "too far", acked: 2, after: 50 * us, more: 20, sent: 2},
		{name: "long ago", acked: 2, after: 1100 * us, more: 20, sent: 2},
		{name: "the end of the stream", acked: 4, after: rtt, more: 3, fin: true, sent: 3},
		{name: "no end", acked: 4, after: rtt, more: 3},
		{name: "a single segment", acked: 2, after: rtt, more: 1, sent: 1},
	} {
		onEither(t, c.name, func(t *testing.T, tso int) {
			p, f := onPort(t, 30, tso, false, tcp.ECNDefault, "S", "S.", "")
			// The handshake took no time: these make the round trip what it is.
			una := 1
			for range 30 {
				f.Write(2000)
				p.Take()
				p.Idle(rtt)
				una += 2000
				f.Send(fmt.Sprintf(". 1:1(0) ack %d win 30000", una))
			}
			p.Take()
			f.Write(1000 * (30 + c.more))
			if c.fin {
				f.CloseWrite()
			}
			if n := len(p.Take()); n != 30 {
				t.Fatalf("%d segments in a window of 30", n)
			}
			before := p.Stats().TCP.TsoDefers
			p.Idle(c.after)
			f.Send(fmt.Sprintf(". 1:1(0) ack %d win 30000", una+1000*c.acked))
			got := len(p.Take())
			if got != c.sent {
				t.Errorf("%d segments left, want %d", got, c.sent)
			}
			if n := p.Stats().TCP.TsoDefers - before; (n > 0) != (c.sent == 0) {
				t.Errorf("%d times deferred", n)
			}
			if c.sent == 0 { // what waited goes with the next, in no more pieces than it takes
				f.Send(fmt.Sprintf(". 1:1(0) ack %d win 30000", una+15000))
				if got := len(p.Take()); got != min(15, c.more) {
					t.Errorf("%d segments left then, want %d", got, min(15, c.more))
				}
			}
			f.Abort()
			p.Take()
		})
	}
}

// Where the engine cuts, a window of which 1/32 ms is worth less than a segment is sent as acknowledgements open it.
func TestDeferOnSlowPath(t *testing.T) {
	for tso, want := range map[int]int{65000: 0, 0: 2} {
		const rtt = 20 * time.Millisecond
		p := tcptest.New(t, tcptest.Config{Stack: stack.Config{TCP: tcp.Config{InitialWindow: 30}}, Link: memlink.Config{TSO: tso}})
		l := p.Listen(1)
		f := p.Flow(5000, 80)
		f.Send("S 0:0(0) win 30000 <mss 1000>")
		f.Expect("S. 0:0(0) ack 1 <mss 1460>")
		p.Idle(rtt)
		f.Send(". 1:1(0) ack 1 win 30000")
		f.Accept(l)
		f.Write(60_000)
		sent := 0
		p.Until(rtt, func() bool { sent += len(p.Take()); return sent == 30 }) // at their rate
		p.Idle(rtt)
		for i := 1; i <= 3; i++ {
			f.Send(fmt.Sprintf(". 1:1(0) ack %d win 30000", 1+2000*i))
			if n := len(p.Take()); i > 1 && n != want { // the first comes long after the last segment
				t.Errorf("MaxTSO %d, acknowledgement %d: %d segments left, want %d", tso, i, n, want)
			}
		}
		f.Abort()
		p.Take()
	}
}

// Half of the congestion window is the quota of what leaves together, so that there are always two to be acknowledged (Linux
// tcp_cwnd_test): the last segment of each asks the peer to hand on what it has.
func TestCwndQuota(t *testing.T) {
	onEither(t, "", func(t *testing.T, tso int) {
		p, f := onPort(t, 10, tso, false, tcp.ECNDefault, "S", "S.", "")
		f.Write(20_000)
		for i := range 10 {
			flags := "."
			if i%5 == 4 {
				flags = "P."
			}
			f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 1", flags, 1+1000*i, 1001+1000*i))
		}
		if n := p.Stats().TCP.LargeFrames; n != 2 && tso > 0 || n != 0 && tso == 0 {
			t.Errorf("%d large frames", n)
		}
		f.Abort()
		p.Take()
	})
}

// What is left behind full segments is a segment of its own only where nothing can join it: at the end of what the application has written.
// While an earlier small segment is unacknowledged it waits for more, or for the acknowledgement (Minshall), and with no-delay it leaves at
// once. What the windows cut off is never small.
func TestTail(t *testing.T) {
	for _, noDelay := range []bool{false, true} {
		onEither(t, fmt.Sprintf("no-delay %v", noDelay), func(t *testing.T, tso int) {
			p := tcptest.New(t, tcptest.Config{Stack: stack.Config{TCP: tcp.Config{InitialWindow: 10, NoDelay: noDelay}}, Link: memlink.Config{TSO: tso}})
			l := p.Listen(1)
			f := p.Flow(5000, 80)
			f.Send("S 0:0(0) win 60000 <mss 1000>")
			f.Expect("S. 0:0(0) ack 1 <mss 1460>")
			f.Send(". 1:1(0) ack 1 win 60000")
			f.Accept(l)
			left := func(what string, want ...int) {
				t.Helper()
				var got []int
				for _, fr := range p.Take() {
					seg, _ := p.Parse(fr.Data)
					got = append(got, len(seg.Payload))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: segments of %v bytes, want %v", what, got, want)
				}
			}
			f.Write(2300)
			left("the end of a write", 1000, 1000, 300)
			f.Write(2500)
			if noDelay {
				left("no-delay", 1000, 1000, 500)
				f.Abort()
				p.Take()
				return
			}
			left("while a small one is on its way", 1000, 1000)
			f.Write(600)
			left("joined by more", 1000)
			f.Send(". 1:1(0) ack 2301 win 60000")
			left("the small one has arrived", 100)
			f.Write(10_700) // 3100 bytes are in flight, and the window has room for 9900
			left("cut by the window", 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000)
			f.Send(". 1:1(0) ack 5401 win 60000")
			left("the rest", 1000, 700)
			f.Abort()
			p.Take()
		})
	}
}

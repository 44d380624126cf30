package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// keeping makes a peer of a stack whose port tells only after a time that it has sent a frame, and a connection that may send rate bytes
// per second.
func keeping(t *testing.T, hold time.Duration, rate uint64, cfg tcp.Config) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	var s stack.Config
	s.TCP = cfg
	s.TCP.NoBacklogLimit = true // which would hold the flow back, too
	s.TCP.InitialWindow = 100
	s.Modules[plugins.Pace] = stack.ModuleConfig{Name: "edt", Params: plugins.Params{"window_pacing": "false"}}
	p := tcptest.New(t, tcptest.Config{Stack: s, Link: memlink.Config{AtoB: memlink.Path{Hold: hold}}})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 60000 <mss 1000>")
	f.Expect("S. 0:0(0) ack 1")
	p.Idle(20 * ms) // on a path of less than half a millisecond pieces are larger
	f.Send(". 1:1(0) ack 1 win 60000")
	f.Accept(l)
	f.Conn.SetOption(tcp.OptNoDelay, true)
	f.Conn.SetMaxRate(rate)
	p.Idle(ms)
	return p, f
}

func wantSegments(f *tcptest.Flow, from, to int) {
	for i := from; i < to; i++ {
		f.Expect(fmt.Sprintf(". %d:%d(1000) ack 1", 1+1000*i, 1001+1000*i))
	}
}

// F5: beyond two pieces (of two segments, or of 1 ms worth) and 1 ms worth of its rate, a flow waits until the port has sent something of it.
func TestSmallQueue(t *testing.T) {
	for _, c := range []struct {
		rate  uint64
		first int // segments that leave at once
	}{{1e6, 5}, {4e6, 7}, {100e6, 10}} {
		p, f := keeping(t, time.Millisecond, c.rate, tcp.Config{})
		f.Write(11000) // ten are not paced
		wantSegments(f, 0, c.first)
		p.Done()
		if got := p.Stats().TCP.SmallQueueWaits; (got > 0) != (c.first < 10) {
			t.Errorf("%d bytes/s: %d waits", c.rate, got)
		}
		if c.first == 10 {
			continue
		}
		p.Quiet(900 * us)
		p.Idle(100 * us)
		wantSegments(f, c.first, min(2*c.first, 10))
		f.Send(fmt.Sprintf(". 1:1(0) ack %d", 1+1000*min(2*c.first, 10)))
		p.Idle(10 * time.Second)
		wantSegments(f, min(2*c.first, 10), 10)
		p.Take()
		if n := p.Stats().TCP.PortLate; n != 0 {
			t.Errorf("%d waits ended without the port", n)
		}
	}
}

// A flow waits no longer than 2 ms for a port that does not tell.
func TestSmallQueuePortLate(t *testing.T) {
	p, f := keeping(t, time.Second, 1e6, tcp.Config{})
	f.Write(11500)
	wantSegments(f, 0, 5)
	p.Quiet(1999 * us)
	p.Idle(us)
	wantSegments(f, 5, 10)
	p.Quiet(1999 * us)
	p.Idle(2 * time.Millisecond) // the eleventh is paced
	wantSegments(f, 10, 11)
	if n := p.Stats().TCP.PortLate; n != 2 {
		t.Errorf("%d waits ended without the port, want 2", n)
	}
	f.Expect("P. 11001:11501(500) ack 1")
	f.Send(". 1:1(0) ack 11501")
	p.Idle(10 * time.Second)
	p.Take()
}

// F6: a small write waits for the port while something is unacknowledged and more than it has not been sent, and leaves with what was
// written meanwhile.
func TestAutoCork(t *testing.T) {
	for _, on := range []bool{true, false} {
		p, f := keeping(t, time.Millisecond, 0, tcp.Config{NoAutoCork: !on})
		f.Write(500) // nothing is unacknowledged
		f.Expect("P. 1:501(500) ack 1")
		f.Write(600) // more than what the port has
		f.Expect("P. 501:1101(600) ack 1")
		f.Write(100)
		f.Write(100)
		if !on {
			f.Expect("P. 1101:1201(100) ack 1")
			f.Expect("P. 1201:1301(100) ack 1")
			f.Send(". 1:1(0) ack 1301")
			if n := p.Stats().TCP.AutoCorking; n != 0 {
				t.Errorf("%d writes waited", n)
			}
			continue
		}
		p.Quiet(900 * us)
		f.Write(100)
		p.Idle(100 * us)
		f.Expect("P. 1101:1401(300) ack 1")
		if n := p.Stats().TCP.AutoCorking; n != 1 {
			t.Errorf("%d writes waited, want 1", n)
		}
		f.Write(100)
		p.Done()
		f.Send(". 1:1(0) ack 501") // as in Linux, an acknowledgement sends it too
		f.Expect("P. 1401:1501(100) ack 1")
		f.Write(200)
		p.Done()
		f.Conn.Flush()
		f.Expect("P. 1501:1701(200) ack 1")
		f.Write(200)
		p.Done()
		f.Conn.SetOption(tcp.OptAutoCork, false)
		f.Expect("P. 1701:1901(200) ack 1")
		f.Conn.SetOption(tcp.OptAutoCork, true)
		p.Done()
		f.Write(200)
		p.Done()
		f.CloseWrite() // nothing will join it
		f.Expect("FP. 1901:2101(200) ack 1")
		f.Send(". 1:1(0) ack 2102")
	}
}

const us = time.Microsecond

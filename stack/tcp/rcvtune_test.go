package tcp_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// stream sends n bytes in full segments, at most window bytes per rtt, as a sender in slow start would, and reads them if read.
type sender struct {
	p      *tcptest.Peer
	f      *tcptest.Flow
	at     int // next sequence number
	rtt    time.Duration
	unread int
}

// round sends n bytes, lets the application read them, and lets an RTT pass.
func (s *sender) round(n int, read bool) {
	s.p.T.Helper()
	for sent := 0; sent < n; sent += 1000 {
		s.f.Send(fmt.Sprintf(". %d:%d(1000) ack 1", s.at, s.at+1000))
		s.p.Take()
		s.at += 1000
		s.unread += 1000
	}
	if read {
		s.f.WantRead(s.unread)
		s.unread = 0
	}
	s.p.Idle(s.rtt)
	s.p.Take()
}

// Dynamic right-sizing: the window is at least twice what the application read in the last round trip, whichever way that is measured,
// and it begins modestly.
func TestReceiveBufferGrows(t *testing.T) {
	for _, opts := range []string{"mss 1000,ws 7", "mss 1000,ws 7,ts 1 0"} {
		t.Run(opts, func(t *testing.T) {
			p, f := tuned(t, tcp.Config{}, opts)
			if i := f.Info(); i.RcvWnd > 64<<10 || i.RcvBuf != 64<<10 || i.RcvSpace != 14600 || i.RcvRTT != 0 {
				t.Fatalf("at first: window %d, buffer %d, space %d, rtt %v", i.RcvWnd, i.RcvBuf, i.RcvSpace, i.RcvRTT)
			}
			s := &sender{p: p, f: f, at: 1, rtt: 50 * ms}
			for n := 10_000; n <= 640_000; n *= 2 {
				s.round(min(n, int(f.Info().RcvWnd)/1000*1000), true)
			}
			s.round(640_000, true)
			i := f.Info()
			if i.RcvWnd < 2*640_000 || i.RcvBuf < 2*640_000 {
				t.Errorf("window %d, buffer %d after 640000 bytes per RTT", i.RcvWnd, i.RcvBuf)
			}
			if i.RcvRTT < 40*ms || i.RcvRTT > 160*ms {
				t.Errorf("receiver's RTT %v, is 50 ms", i.RcvRTT)
			}
			if i.RcvSpace < 320_000 || i.RcvSpace > 1_280_000 {
				t.Errorf("space %d, is 640000", i.RcvSpace)
			}
		})
	}
}

func tuned(t *testing.T, cfg tcp.Config, opts string) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	p := newPeer(t, cfg)
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	f.TS = len(opts) > len("mss 1000,ws 7")
	f.Send("S 0:0(0) win 1000 <" + opts + ">")
	f.Expect("S. 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1 win 1000")
	f.Accept(l)
	return p, f
}

// A path that loses a segment per round trip, which arrives two round trips late: what waits behind holes has room beside what comes
// anew, so that the sender does not wait for the window.
func TestReceiveBufferHoles(t *testing.T) {
	p, f := tuned(t, tcp.Config{}, "mss 1000,ws 7,sackOK")
	const round = 15
	at := func(r int) int { return 1 + 1000*round*r }
	send := func(seg int) {
		f.Send(fmt.Sprintf(". %d:%d(1000) ack 1", seg, seg+1000))
		p.Take()
	}
	read := 0
	for r := range 12 {
		for i := 1; i < round; i++ {
			send(at(r) + 1000*i)
		}
		if late := r - 2; late >= 0 {
			send(at(late))
			n := at(late+1) - 1 - read
			f.WantRead(n)
			read += n
		}
		p.Idle(50 * ms)
		p.Take()
	}
	// 15 segments come per round trip, and 30 to 45 wait.
	if i := f.Info(); i.RcvBuf < 2*45_000 {
		t.Errorf("buffer %d, %d bytes per round trip, %d wait", i.RcvBuf, 1000*round, 2*1000*round)
	}
}

// An application that does not read gets no larger buffer, nor does one whose buffer is fixed, nor anybody above Config.RecvBuffer or
// under memory pressure.
func TestReceiveBufferStays(t *testing.T) {
	grow := func(s *sender) uint32 {
		for n := 10_000; n <= 320_000; n *= 2 {
			s.round(min(n, int(s.f.Info().RcvWnd)/1000*1000), true)
		}
		return s.f.Info().RcvBuf
	}
	t.Run("unread", func(t *testing.T) {
		p, f := tuned(t, tcp.Config{}, "mss 1000,ws 7")
		s := &sender{p: p, f: f, at: 1, rtt: 50 * ms}
		for range 6 {
			s.round(10_000, false)
		}
		if i := f.Info(); i.RcvBuf != 64<<10 || i.RecvQueue != 60_000 {
			t.Errorf("buffer %d with %d bytes unread", i.RcvBuf, i.RecvQueue)
		}
	})
	t.Run("fixed", func(t *testing.T) {
		p, f := tuned(t, tcp.Config{}, "mss 1000,ws 7")
		f.Conn.Tune(func(t *tcp.Tuning) { t.RecvBuffer = 100_000 })
		if n := grow(&sender{p: p, f: f, at: 1, rtt: 50 * ms}); n != 100_000 {
			t.Errorf("buffer %d, was set to 100000", n)
		}
	})
	t.Run("limit", func(t *testing.T) {
		p, f := tuned(t, tcp.Config{RecvBuffer: 150_000}, "mss 1000,ws 7")
		if n := grow(&sender{p: p, f: f, at: 1, rtt: 50 * ms}); n != 150_000 {
			t.Errorf("buffer %d, limit is 150000", n)
		}
	})
	t.Run("pressure", func(t *testing.T) {
		b := smallBudget(t, 16<<20)
		cfg := stackConfig(b)
		cfg.TCP = tcp.Config{}
		p := tcptest.New(t, tcptest.Config{Stack: cfg})
		f := p.Passive(p.Listen(1), 5000, "mss 1000,ws 7", 1000)
		defer take(t, b, 13<<20)()
		if b.Level() != mem.Pressure {
			t.Fatalf("level %v", b.Level())
		}
		if n := grow(&sender{p: p, f: f, at: 1, rtt: 50 * ms}); n != 64<<10 {
			t.Errorf("buffer %d grew under pressure", n)
		}
	})
}

// With a shift of 14 the window counts in units of 16 KiB. The edge that an unread stream shows moves back by less than a unit (RFC
// 7323, 2.4), all that lay within it is taken, and memory is bounded: what the peer sees at the end is a closed window.
func TestCoarseWindow(t *testing.T) {
	p, f := tuned(t, tcp.Config{}, "mss 1000,ws 7")
	edge, at := uint32(0), 1
	for win := uint16(1); win > 0 || uint32(at)+1000 <= edge; {
		f.Send(fmt.Sprintf("P. %d:%d(1000) ack 1", at, at+1000))
		at += 1000
		p.Idle(50 * ms) // acknowledgements are delayed after a while
		seg := f.Expect(fmt.Sprintf(". 1:1(0) ack %d", at))
		win = seg.Window
		e := uint32(at) + uint32(win)<<14
		if e+1<<14 <= edge {
			t.Fatalf("at %d the edge moved from %d back to %d", at, edge, e)
		}
		edge = max(edge, e)
	}
	if edge > 64<<10+16<<10+1 || at-1 < 64<<10 {
		t.Errorf("edge %d, %d bytes taken; the buffer holds 65536", edge, at-1)
	}
	f.WantRead(at - 1)
	f.Expect(fmt.Sprintf(". 1:1(0) ack %d win 4", at))
}

// Busy, rwnd-limited and sndbuf-limited times, as ss shows them.
func TestLimitedTimes(t *testing.T) {
	p, f := established(t, tcp.Config{NoDelay: true}, "mss 1000", 2000)
	want := func(what string, busy, rwnd, sndbuf time.Duration) {
		t.Helper()
		if i := f.Info(); i.Counts.Busy != busy || i.RwndLimited != rwnd || i.SndbufLimited != sndbuf {
			t.Errorf("%s: busy %v, rwnd %v, sndbuf %v; want %v, %v, %v", what, i.Counts.Busy, i.RwndLimited, i.SndbufLimited, busy, rwnd, sndbuf)
		}
	}
	p.Idle(100 * ms)
	want("idle", 0, 0, 0)
	f.Write(5000)
	p.Idle(10 * ms)
	p.Take()
	want("closed window", 10*ms, 10*ms, 0)
	f.Send(". 1:1(0) ack 2001 win 10000")
	p.Take()
	p.Idle(20 * ms)
	want("open window", 30*ms, 10*ms, 0)
	f.Send(". 1:1(0) ack 5001 win 65535")
	p.Idle(40 * ms)
	want("idle again", 30*ms, 10*ms, 0)
	f.Conn.SetSendBuffer(4096)
	f.Write(4096)
	f.Conn.Wr.Arm() // a writer waits
	p.Idle(ms)
	p.Take()
	f.Send(". 1:1(0) ack 6001 win 65535")
	p.Idle(5 * ms)
	if i := f.Info(); i.SndbufLimited != 5*ms || i.Counts.Busy != 36*ms {
		t.Errorf("sndbuf %v of %v", i.SndbufLimited, i.Counts.Busy)
	}
	f.Send(". 1:1(0) ack 9097 win 65535")
	f.Conn.Wr.Wait()
	p.Idle(5 * ms)
	want("at the end", 36*ms, 10*ms, 5*ms)
}

// The send buffer follows the congestion window up to Config.SendBuffer, and an application may fix it.
func TestSendBufferGrows(t *testing.T) {
	p, f := established(t, tcp.Config{SendBuffer: 1 << 20}, "mss 1000,ws 7", 65535)
	next, acked := 0, 1
	for range 400 {
		for n := 1; n > 0; {
			n, _ = f.Conn.TryWrite(tcptest.Bytes(uint64(next), 100_000))
			next += n
		}
		n := len(p.Take())
		p.Idle(ms)
		if acked += 1000 * n; n == 0 {
			break
		}
		f.Send(fmt.Sprintf(". 1:1(0) ack %d win 65535", acked))
	}
	if i := f.Info(); i.SndBuf != 1<<20 {
		t.Errorf("send buffer %d at a window of %d", i.SndBuf, i.Cwnd)
	}
	f.Conn.SetSendBuffer(5000)
	p.Idle(ms)
	p.Take()
	if i := f.Info(); i.SndBuf != 5000 {
		t.Errorf("send buffer %d, was set to 5000", i.SndBuf)
	}
	f.Abort()
	p.Take()
	if _, err := f.Conn.TryRead(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("read after the abort: %v", err)
	}
}

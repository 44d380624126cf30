package tcp_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// synQueue is the size of the SYN queue of a listener with a small backlog.
const synQueue = 128

// fillSynQueue leaves no room in the SYN queue of the listener on port 80.
func fillSynQueue(p *tcptest.Peer) {
	p.T.Helper()
	for i := range synQueue {
		f := p.Flow(uint16(10000+i), 80)
		f.Send("S 0:0(0) win 1000 <mss 1460>")
		f.Expect("S. 0:0(0) ack 1 <mss 1460>")
	}
	if s := p.Stats().TCP; s.SynRecvs != synQueue || s.Conns != 0 || s.ReqQFull != 0 {
		p.T.Fatalf("%d half-open, %d connections, queue full %d times", s.SynRecvs, s.Conns, s.ReqQFull)
	}
}

// RFC 4987, 3.6: a SYN that finds the queue full is answered by a cookie, which holds the peer's MSS, rounded down, and in the low
// bits of the timestamp its window scale and SACK. Without timestamps only the MSS survives.
func TestSynCookies(t *testing.T) {
	for _, tc := range []struct{ syn, synAck string }{
		{"mss 1460,sackOK,ts * *,ws 7", "<mss 1460,sackOK,ts * *,ws 14>"},
		{"mss 1460,ts * *,ws 0", "<mss 1460,ts * *,ws 14>"},
		{"mss 1430,sackOK,ts * *", "<mss 1460,sackOK,ts * *>"},
		{"mss 1300,ts * *,ws 14", "<mss 1460,ts * *,ws 14>"},
		{"mss 1460,sackOK,ws 7", "<mss 1460>"},
		{"mss 536", "<mss 1460>"},
		{"mss 100", "<mss 1460>"},
		{"", "<mss 1460>"},
	} {
		t.Run(tc.syn, func(t *testing.T) {
			p := newPeer(t, tcp.Config{})
			l := p.Listen(2)
			fillSynQueue(p)
			p.Idle(999 * ms)
			f := p.Flow(5000, 80)
			opts := ""
			if tc.syn != "" {
				opts = " <" + tc.syn + ">"
			}
			f.Send("S 0:0(0) win 1000" + opts)
			f.Expect("S. 0:0(0) ack 1 " + tc.synAck)
			before := p.Stats().TCP
			if before.SyncookiesSent != 1 || before.SynRecvs != synQueue || f.State() != "" {
				t.Errorf("%d cookies sent, %d half-open, state %q: something is kept", before.SyncookiesSent, before.SynRecvs, f.State())
			}
			var want wire.Options
			var mss uint16
			f.TS, want, mss = cookieWant(tc.syn)
			f.Send("P. 1:11(10) ack 1 win 1000")
			f.Expect(". 1:1(0) ack 11")
			f.Accept(l)
			f.WantRead(10)
			i := f.Info()
			if i.SACK != (want.Set&wire.OptSACKPerm != 0) || i.Timestamps != f.TS || i.SndScale != want.WScale || i.MSS != uint32(mss) || i.RTT != 0 {
				t.Errorf("SACK %v, timestamps %v, scale %d, MSS %d, RTT %v", i.SACK, i.Timestamps, i.SndScale, i.MSS, i.RTT)
			}
			if ws := i.SndWnd; ws != 1000<<want.WScale {
				t.Errorf("the peer's window is %d", ws)
			}
			if s := p.Stats().TCP; s.SyncookiesRecv != 1 || s.SyncookiesFailed != 0 || s.Conns != 1 || s.PassiveOpens != 1 {
				t.Errorf("%+v", s)
			}
			f.Write(10)
			f.Expect("P. 1:11(10) ack 11")
			f.Send(". 11:11(0) ack 11")
			drain(p)
		})
	}
}

// drain lets the half-open connections of fillSynQueue end.
func drain(p *tcptest.Peer) {
	p.Idle(100 * time.Second)
	p.Take()
}

// cookieWant is what of a SYN's options survives in a cookie.
func cookieWant(syn string) (ts bool, o wire.Options, mss uint16) {
	switch syn {
	case "mss 1460,sackOK,ts * *,ws 7":
		return true, wire.Options{Set: wire.OptSACKPerm, WScale: 7}, 1448
	case "mss 1460,ts * *,ws 0":
		return true, o, 1448
	case "mss 1430,sackOK,ts * *":
		return true, wire.Options{Set: wire.OptSACKPerm}, 1420 - 12
	case "mss 1300,ts * *,ws 14":
		return true, wire.Options{WScale: 14}, 1288
	case "mss 1460,sackOK,ws 7":
		return false, o, 1460
	case "mss 100":
		return false, o, 88
	}
	return false, o, 536
}

// The clock of timestamps must not run backwards for a peer that got a cookie (RFC 7323, 5.4), whatever its low bits.
func TestCookieTimestampMonotonic(t *testing.T) {
	p := newPeer(t, tcp.Config{SynCookies: tcp.CookiesAlways})
	l := p.Listen(200)
	for i := range 130 {
		f := p.Flow(uint16(5000+i), 80)
		f.TS = true
		f.Send("S 0:0(0) win 1000 <mss 1460,sackOK,ts * *,ws 7>")
		syn := f.Expect("S. 0:0(0) ack 1")
		first := tsOf(t, &syn)
		f.Send("P. 1:2(1) ack 1 win 1000")
		ack := f.Expect(". 1:1(0) ack 2")
		if d := int32(tsOf(t, &ack) - first); d < 0 || d > 64 {
			t.Fatalf("the timestamp moved by %d", d)
		}
		f.Accept(l)
		f.Abort()
		f.Expect("R. 1:1(0) ack 2 <ts * *>")
		p.Idle(ms)
	}
}

func tsOf(t *testing.T, s *wire.TCP) uint32 {
	t.Helper()
	var o wire.Options
	if !wire.ParseOptions(s.Opts, &o) || o.Set&wire.OptTS == 0 {
		t.Fatal("no timestamp")
	}
	return o.TSVal
}

// A cookie is good for its own flow, sequence number and two minutes only; what is not is refused (RFC 9293, 3.10.7.2).
func TestBadCookies(t *testing.T) {
	p := newPeer(t, tcp.Config{SynCookies: tcp.CookiesAlways})
	p.Listen(10)
	open := func(port uint16) *tcptest.Flow {
		f := p.Flow(port, 80)
		f.Send("S 0:0(0) win 1000 <mss 1460>")
		f.Expect("S. 0:0(0) ack 1")
		return f
	}
	f := open(5000)
	f.Send(". 1:1(0) ack 20 win 1000") // the next ones would be taken for other segment sizes
	f.Expect("R 20:20(0)")
	f.Send(". 20:20(0) ack 1 win 1000")
	f.Expect("R 1:1(0)")
	g := p.Flow(5001, 80) // another port with the same numbers
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	g.Expect("S. 0:0(0) ack 1")
	g.IRS = f.IRS
	g.Send(". 1:1(0) ack 1 win 1000")
	g.Expect("R 1:1(0)")
	if s := p.Stats().TCP; s.SyncookiesFailed != 3 || s.SyncookiesRecv != 0 {
		t.Errorf("%d failed, %d taken, want 3 and 0", s.SyncookiesFailed, s.SyncookiesRecv)
	}
	p.Idle(59 * time.Second) // the counter has moved once
	f.Send(". 1:1(0) ack 1 win 1000")
	f.WantState("ESTAB")
	h := open(5002)
	p.Idle(119 * time.Second)
	p.Flow(5003, 80).Send("S 0:0(0) win 1000 <mss 1460>") // lost: the link address has to be asked for again, and nothing is kept
	open(5004)
	p.Idle(2 * time.Second) // and twice
	h.Send(". 1:1(0) ack 1 win 1000")
	h.Expect("R 1:1(0)")
	failed := p.Stats().TCP.SyncookiesFailed
	p.Idle(119 * time.Second) // no cookie is expected any more
	h.Send(". 1:1(0) ack 1 win 1000")
	p.Take() // a reset, or the question for the link address
	if s := p.Stats().TCP.SyncookiesFailed; failed != 4 || s != 4 {
		t.Errorf("%d, then %d failed, want 4", failed, s)
	}
}

// Modes: off drops what finds the queue full, always keeps nothing at all.
func TestSynCookieModes(t *testing.T) {
	p := newPeer(t, tcp.Config{SynCookies: tcp.CookiesOff})
	p.Listen(2)
	fillSynQueue(p)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	p.Done()
	f.Send(". 1:1(0) ack 1 win 1000") // no cookie was sent
	f.Expect("R 1:1(0)")
	if s := p.Stats().TCP; s.ReqQFull != 1 || s.ListenDrops != 1 || s.SyncookiesSent != 0 {
		t.Errorf("%d times full, %d drops, %d cookies", s.ReqQFull, s.ListenDrops, s.SyncookiesSent)
	}
	drain(p)
	if s := p.Stats().TCP; s.SynRecvs != 0 || s.AttemptFails != synQueue {
		t.Errorf("%d half-open, %d failed", s.SynRecvs, s.AttemptFails)
	}

	q := newPeer(t, tcp.Config{SynCookies: tcp.CookiesAlways})
	l := q.Listen(1)
	g := q.Flow(5000, 80)
	g.Send("S 0:0(0) win 1000 <mss 1460>")
	g.Expect("S. 0:0(0) ack 1")
	q.Quiet(10 * time.Second) // nothing is kept, so nothing is sent again
	g.Send(". 1:1(0) ack 1 win 1000")
	g.Accept(l)
	// The accept queue bounds what cookies bring, too; the peer's data comes again.
	a, b := q.Flow(5001, 80), q.Flow(5002, 80)
	for _, f := range []*tcptest.Flow{a, b} {
		f.Send("S 0:0(0) win 1000 <mss 1460>")
		f.Expect("S. 0:0(0) ack 1")
	}
	a.Send(". 1:1(0) ack 1 win 1000")
	b.Send(". 1:1(0) ack 1 win 1000")
	if s := q.Stats().TCP; s.ListenOverflows != 1 || s.ListenDrops != 1 || s.Conns != 2 {
		t.Errorf("%d overflows, %d drops, %d connections", s.ListenOverflows, s.ListenDrops, s.Conns)
	}
	a.Accept(l)
	b.Send("P. 1:11(10) ack 1 win 1000")
	b.Expect(". 1:1(0) ack 11")
	b.Accept(l)
}

// spoofed makes SYNs of made-up sources behind the peer, which is the gateway.
type spoofed struct {
	frame []byte
	n     uint32
}

func newSpoofed(p *tcptest.Peer) *spoofed {
	s := &spoofed{frame: make([]byte, 74)}
	mac, his := p.MACs()
	wire.PutEthernet(s.frame, his, mac, wire.EtherTypeIPv4)
	return s
}

func (s *spoofed) next() []byte {
	s.n++
	src := netip.AddrFrom4([4]byte{172, byte(s.n >> 16), byte(s.n >> 8), byte(s.n)})
	a, b := wire.AddrFrom(src), wire.AddrFrom(tcptest.StackAddr)
	wire.PutIPv4(s.frame[14:], a, b, wire.ProtoTCP, 0, 64, uint16(s.n), 60)
	h := s.frame[34:]
	wire.PutTCP(h, &wire.TCP{SrcPort: uint16(1024 + s.n%50000), DstPort: 80, Seq: s.n * 7919, Flags: wire.SYN, Window: 1000}, 40)
	wire.PutOptions(h[20:20], &wire.Options{Set: wire.OptMSS | wire.OptSACKPerm | wire.OptTS | wire.OptWScale, MSS: 1460, WScale: 7, TSVal: s.n})
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], wire.Fold(wire.Sum(h, wire.PseudoSum(a, b, wire.ProtoTCP, 40))))
	return s.frame
}

// 100 000 spoofed SYNs: the memory in use stays what the SYN queue takes, and an honest client connects meanwhile and is served.
func TestSynFlood(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{Gateway: tcptest.PeerAddr}})
	l := p.Listen(100)
	s := newSpoofed(p)
	flood := func(n int) {
		for range n {
			p.SendFrame(s.next())
			p.Take()
		}
	}
	flood(1000) // the queue is full, and all tables have their size
	before := heap()
	for i := range 10 {
		flood(9900)
		f := p.Flow(uint16(5000+i), 80)
		f.TS = true
		f.Send("S 0:0(0) win 1000 <mss 1460,sackOK,ts * *,ws 7>")
		f.Expect("S. 0:0(0) ack 1 <mss 1460,sackOK,ts * *,ws 14>")
		f.Send("P. 1:101(100) ack 1 win 1000")
		f.Expect(". 1:1(0) ack 101")
		f.Accept(l)
		f.WantRead(100)
		f.Write(100)
		f.Expect("P. 1:101(100) ack 101")
		f.Send(". 101:101(0) ack 101")
		f.Abort()
		f.Expect("R. 101:101(0) ack 101 <ts * 6000>")
	}
	if grew := heap() - before; grew > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grew)
	}
	st := p.Stats().TCP
	if st.SynRecvs != synQueue || st.Conns != 0 || st.SyncookiesRecv != 10 || st.SyncookiesSent != 100_000-synQueue+10 {
		t.Errorf("%d half-open, %d connections, cookies: %d sent, %d taken", st.SynRecvs, st.Conns, st.SyncookiesSent, st.SyncookiesRecv)
	}
	p.Idle(100 * time.Second)
	p.Take()
	if st := p.Stats().TCP; st.SynRecvs != 0 {
		t.Errorf("%d half-open connections stay", st.SynRecvs)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Half-open connections that share a SYN queue with several listeners end with theirs, and one in the table is found by ICMP and by
// the listing of connections.
func TestHalfOpenListing(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(2)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1400,sackOK,ts 7 0,ws 3>")
	f.Expect("S. 0:0(0) ack 1")
	p.Idle(1500 * ms)
	f.Expect("S. 0:0(0) ack 1")
	i := f.Info()
	want := fmt.Sprint("SYN-RECV", 1400, 3, true, true, 1, "handshake", 1500*ms)
	if got := fmt.Sprint(i.State, i.PeerMSS, i.SndScale, i.SACK, i.Timestamps, i.Backoff, i.Timer, i.Age); got != want || i.TimerIn < 1400*ms || i.TimerIn > 1600*ms {
		t.Errorf("%s, timer in %v, want %s", got, i.TimerIn, want)
	}
	p.Stack.CloseListener(l)
	f.WantState("")
}

// A stack that closes resets what is in the handshake.
func TestCloseStackWithHalfOpen(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.Listen(2)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	f.Expect("S. 0:0(0) ack 1")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// SYN-ACKs that wait for a link address leave when it is known.
func TestSynAckWaitsForARP(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Silent: true})
	l := p.Listen(2)
	f := p.Flow(5000, 80)
	f.Send("S 0:0(0) win 1000 <mss 1460>")
	p.Quiet(300 * ms)
	p.Speak()
	f.ExpectAfter(700*ms, 20*ms, "S. 0:0(0) ack 1")
	f.Send(". 1:1(0) ack 1 win 1000")
	f.Accept(l)
}

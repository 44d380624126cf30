package tcp_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// onPort makes a peer of a stack whose port cuts frames of up to tso bytes of payload, and a connection that a SYN with the flags opens.
func onPort(t *testing.T, iw, tso int, v6 bool, m tcp.ECN, syn, synAck, ts string) (*tcptest.Peer, *tcptest.Flow) {
	t.Helper()
	var s stack.Config
	s.TCP = tcp.Config{InitialWindow: iw, ECN: m}
	p := tcptest.New(t, tcptest.Config{Stack: s, Link: memlink.Config{TSO: tso}, IPv6: v6})
	l := p.Listen(1)
	f := p.Flow(5000, 80)
	syn += " 0:0(0) win 60000 <mss 1000,sackOK"
	if ts != "" {
		syn += "," + ts
	}
	f.Send(syn + ">")
	f.Expect(synAck + " 0:0(0) ack 1")
	ack := ". 1:1(0) ack 1 win 60000"
	if m == tcp.ECNAccurate {
		ack = ".W 1:1(0) ack 1 win 60000"
	}
	if ts != "" {
		ack += " <" + ts + ">"
	}
	f.Send(ack)
	f.Accept(l)
	return p, f
}

// plain is a frame without PSH, which the last segment of a frame within the quota has, and without the checksum that it is a part of.
func plain(f []byte) []byte {
	f = bytes.Clone(f)
	t := f[34:]
	if f[14]>>4 == 6 {
		t = f[54:]
	}
	t[13] &^= byte(wire.PSH)
	t[16], t[17] = 0, 0
	return f
}

// Where the port cuts, the wire carries what it carries where the engine does: the same frames, when segments are new and when they are sent
// again, with FIN on the last and CWR on the first, each IPv4 packet with its own identification.
func TestLargeFramesLeaveTheWireAsItIs(t *testing.T) {
	for _, c := range []struct {
		name             string
		v6               bool
		m                tcp.ECN
		syn, synAck, ack string
		ts               string
	}{
		{name: "IPv4", syn: "S", synAck: "S.", ack: "."},
		{name: "IPv6", v6: true, syn: "S", synAck: "S.", ack: "."},
		{name: "timestamps", syn: "S", synAck: "S.", ack: ".", ts: "ts 100 0"},
		{name: "ECN", m: tcp.ECNPassive, syn: "SEW", synAck: "[noecn]S.E", ack: ".E"},
		{name: "ECN, IPv6", v6: true, m: tcp.ECNPassive, syn: "SEW", synAck: "S.E", ack: ".E"},
		{name: "AccECN", m: tcp.ECNAccurate, syn: "SAEW", synAck: "[noecn]S.W", ack: ".AW"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := func(tso int) (frames [][]byte, s tcp.Stats) {
				p, f := onPort(t, 120, tso, c.v6, c.m, c.syn, c.synAck, c.ts)
				take := func() {
					for _, fr := range p.Take() {
						p.Parse(fr.Data) // verifies checksums
						frames = append(frames, plain(fr.Data))
					}
				}
				ts := ""
				if c.ts != "" {
					ts = c.ts + ","
				}
				f.Write(40_500)
				take()
				// 20 are lost, and sent again together; a mark is reported.
				f.Send(fmt.Sprintf("%s 1:1(0) ack 5001 win 60000 <%ssack 25001:40501>", c.ack, ts))
				p.Idle(50e6)
				take()
				if c.m == tcp.ECNAccurate { // what follows has CWR on all segments
					f.Send("[ce]P.AW 1:2(1) ack 5001 win 60000 <sack 25001:40501>")
					take()
				}
				f.Send(strings.TrimSuffix(". 1:1(0) ack 40501 win 60000 <"+strings.TrimSuffix(ts, ",")+">", "<>"))
				f.Write(30_000)
				f.CloseWrite()
				take()
				p.Idle(10e9) // timeouts
				take()
				s = p.Stats().TCP
				f.Abort()
				p.Take()
				return frames, s
			}
			want, _ := script(0)
			got, s := script(16 * 1000)
			if s.LargeFrames < 4 {
				t.Errorf("%d large frames", s.LargeFrames)
			}
			if len(got) != len(want) {
				t.Fatalf("%d frames, %d without TSO", len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("frame %d:\n% x, without TSO\n% x", i, got[i][:80], want[i][:80])
				}
			}
		})
	}
}

// A large frame may be longer than an entry of the segment log: what was lost of it is sent again, and nothing else.
func TestLargeFrameOfSeveralEntries(t *testing.T) {
	p, f := onPort(t, 120, 65000, false, tcp.ECNDefault, "S", "S.", "")
	f.Write(44_000)
	for i := range 44 {
		flags := "."
		if i == 43 {
			flags = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 1", flags, 1+1000*i, 1001+1000*i))
	}
	if n := p.Stats().TCP.LargeFrames; n != 1 {
		t.Errorf("%d large frames, want 1", n)
	}
	// 5, and 17 to 19, are lost.
	f.Send(". 1:1(0) ack 5001 win 60000 <sack 6001:17001 20001:44001>")
	p.Idle(50e6)
	f.Expect(". 5001:6001(1000) ack 1")
	f.Expect(". 17001:18001(1000) ack 1")
	f.Expect(". 18001:19001(1000) ack 1")
	f.Expect("P. 19001:20001(1000) ack 1")
	f.Send(". 1:1(0) ack 44001 win 60000")
	p.Quiet(1e9)
	if n := p.Stats().TCP.RetransSegs; n != 4 {
		t.Errorf("%d segments sent again, want 4", n)
	}
}

// Too few buffers make a frame smaller, not wrong.
func TestLargeFrameOfFewBuffers(t *testing.T) {
	p, f := onPort(t, 120, 65000, false, tcp.ECNDefault, "S", "S.", "")
	pool := p.StackPool()
	var held []*pmd.Buf
	pool.Collect()
	for pool.Free() > 3 {
		held = append(held, pool.Get())
	}
	f.Write(12_000) // six buffers
	for i := range 12 {
		flags := "."
		if i == 11 {
			flags = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 1", flags, 1+1000*i, 1001+1000*i))
	}
	if s := p.Stats().TCP; s.NoBuffers == 0 || s.LargeFrames < 2 {
		t.Errorf("%d waits for buffers, %d large frames", s.NoBuffers, s.LargeFrames)
	}
	for _, b := range held {
		pool.Put(b)
	}
	f.Send(". 1:1(0) ack 12001 win 60000")
}

// The quota of a frame is half of the congestion window, so that two at least are in flight (Linux tcp_cwnd_test).
func TestLargeFrameQuota(t *testing.T) {
	p, f := onPort(t, 10, 65000, false, tcp.ECNDefault, "S", "S.", "")
	f.Write(20_000)
	for i := range 10 {
		flags := "."
		if i%5 == 4 { // the last of each frame
			flags = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 1", flags, 1+1000*i, 1001+1000*i))
	}
	if n := p.Stats().TCP.LargeFrames; n != 2 {
		t.Errorf("%d large frames, want 2", n)
	}
	f.Abort()
	p.Take()
}

// What the window allows waits for more if that is little and the next acknowledgement is near (TCP_FACTS: TSO defer; Linux
// tcp_tso_should_defer). It does not wait if a third of the window is free, if the acknowledgement is far, if the last segment left more
// than 1 ms ago, or if the stream ends here.
func TestDefer(t *testing.T) {
	const rtt = 400 * us
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
		{name: "too far", acked: 2, after: 100 * us, more: 20, sent: 2},
		{name: "long ago", acked: 2, after: 1100 * us, more: 20, sent: 2},
		{name: "the end of the stream", acked: 4, after: rtt, more: 3, fin: true, sent: 3},
		{name: "no end", acked: 4, after: rtt, more: 3},
		{name: "a single segment", acked: 2, after: rtt, more: 1, sent: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, f := onPort(t, 30, 65000, false, tcp.ECNDefault, "S", "S.", "")
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
			if c.sent == 0 { // what waited goes with the next
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

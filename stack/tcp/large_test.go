package tcp_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

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

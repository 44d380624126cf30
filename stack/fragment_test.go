package stack_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// cut returns the frames of an IP packet's fragments.
func (f *frames) cut(t *testing.T, frame []byte, mtu int, id uint32) (fs [][]byte) {
	t.Helper()
	frame = bytes.Clone(frame)
	if frame[wire.EthLen]>>4 == 4 {
		with(frame, func(ip []byte) { ip[6] = 0 }) // without DF
	}
	err := frag.Split(frame[wire.EthLen:], mtu, id, func(p []byte) error {
		fs = append(fs, f.eth(binary.BigEndian.Uint16(frame[12:]), p))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// answer puts the fragments that the stack has sent together. It wants one packet, that is of no fragments if whole is set.
func answer(t *testing.T, p *tcptest.Peer, whole bool) (pk wire.Packet) {
	t.Helper()
	r := frag.New(frag.Config{})
	for _, got := range p.Take() {
		if d := wire.Parse(got.Data, &pk, false); d != wire.DropNone {
			t.Fatal(d)
		}
		if pk.Frag == whole {
			t.Fatalf("a fragment: %v", pk.Frag)
		}
		if !pk.Frag {
			return pk
		}
		var f frag.Fragment
		f.ParseIPv4(pk.L3)
		all, d := r.Add(1, &f)
		if d != frag.None {
			t.Fatal(d)
		}
		if all != nil {
			if d := wire.ParseIP(all, &pk, false); d != wire.DropNone {
				t.Fatal(d)
			}
			return pk
		}
	}
	t.Fatal("no answer")
	return pk
}

// TestFragmentedPing: a long echo request that comes in fragments is answered in fragments (RFC 1122, 3.2.2.6), in any order.
func TestFragmentedPing(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}})
	peer, his := p.MACs()
	f := &frames{peer, his}
	body := append([]byte{0, 1, 0, 2}, tcptest.Bytes(0, 5000)...)
	fs := f.cut(t, f.icmp(wire.ICMPEcho, 0, body), 1500, 77)
	ids := map[uint32]bool{}
	for range 3 {
		for i := range fs {
			p.SendFrame(bytes.Clone(fs[len(fs)-1-i]))
		}
		pk := answer(t, p, false)
		typ, _, b, d := wire.ParseICMP(&pk)
		if typ != wire.ICMPEchoReply || d != wire.DropNone || !bytes.Equal(b, body) {
			t.Fatalf("the answer is %d of %d bytes, %v", typ, len(b), d)
		}
		if ids[pk.ID] {
			t.Errorf("identification %d came twice (RFC 6864, 4.3)", pk.ID)
		}
		ids[pk.ID] = true
	}
	if s := p.Stats(); s.Frag.Whole != 3 || s.Frag.Datagrams != 0 || s.L3.EchoReplies != 3 {
		t.Errorf("counted %+v", s.Frag)
	}
}

// TestFragmentedTCP: a segment in fragments is a segment.
func TestFragmentedTCP(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}})
	l := p.Listen(10)
	flow := p.Passive(l, 5000, "mss 1460", 10000)
	peer, his := p.MACs()
	f := &frames{peer, his}
	for _, frame := range f.cut(t, flow.Build("P. 1:1401(1400) ack 1"), 576, 9) {
		p.SendFrame(frame)
	}
	flow.Expect(". 1:1(0) ack 1401")
	flow.WantRead(1400)
	// One changed byte, and the checksum refuses the whole.
	before := p.Stats().L3.Drops[wire.DropTCPChecksum]
	for _, frame := range f.cut(t, flow.Build("P. 1401:2801(1400) ack 1"), 576, 10) {
		frame[len(frame)-1] ^= 1
		p.SendFrame(frame)
	}
	p.Quiet(10 * time.Millisecond)
	if n := p.Stats().L3.Drops[wire.DropTCPChecksum] - before; n != 1 {
		t.Errorf("%d segments dropped for their checksum", n)
	}
	stillWorksAfter(t, p, flow)
}

func stillWorksAfter(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
	t.Helper()
	f.Send("P. 1401:1411(10) ack 1")
	f.WantRead(10)
	p.Idle(time.Second)
	p.Take()
	ping(t, p)
}

// TestFragmentTimeout: RFC 1122, 3.3.2. The sender of a datagram whose first fragment came is told; who sent only others is not.
func TestFragmentTimeout(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}})
	peer, his := p.MACs()
	f := &frames{peer, his}
	fs := f.cut(t, f.ip(wire.ProtoUDP, tcptest.Bytes(0, 3000)), 1500, 77)
	p.SendFrame(bytes.Clone(fs[1]))
	p.Quiet(31 * time.Second)
	p.SendFrame(bytes.Clone(fs[0]))
	p.Quiet(29 * time.Second)
	p.Idle(2 * time.Second)
	pk := answer(t, p, true)
	typ, code, b, d := wire.ParseICMP(&pk)
	if typ != wire.ICMPTimeExceeded || code != 1 || d != wire.DropNone || !bytes.HasPrefix(fs[0][wire.EthLen:], b[4:]) || len(b) < 4+28 {
		t.Errorf("the answer is %d %d %x, %v", typ, code, b, d)
	}
	if s := p.Stats().Frag; s.TimedOut != 2 || s.Bytes != 0 {
		t.Errorf("counted %+v", s)
	}
}

// TestFragmentFlood: memory is bounded, no packet buffer is held, and an honest datagram gets through.
func TestFragmentFlood(t *testing.T) {
	cfg := tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}}
	cfg.Stack.Frag = frag.Config{High: 100_000}
	p := tcptest.New(t, cfg)
	peer, his := p.MACs()
	f := &frames{peer, his}
	flood := f.cut(t, f.ip(wire.ProtoUDP, tcptest.Bytes(0, 3000)), 1500, 77)[1]
	body := append([]byte{0, 1, 0, 2}, tcptest.Bytes(0, 3000)...)
	honest := f.cut(t, f.icmp(wire.ICMPEcho, 0, body), 1500, 77)
	for i := range 5000 {
		p.SendFrame(with(bytes.Clone(flood), func(ip []byte) {
			binary.BigEndian.PutUint16(ip[4:], uint16(i))
			binary.BigEndian.PutUint16(ip[13:], uint16(i/3)) // some thousand sources
		}))
		if i%500 == 100 || i%500 == 110 || i%500 == 120 {
			p.SendFrame(bytes.Clone(honest[i/10%10%3]))
		}
		if i%500 == 120 {
			pk := answer(t, p, false)
			if _, _, b, d := wire.ParseICMP(&pk); d != wire.DropNone || !bytes.Equal(b, body) {
				t.Fatal("the honest request was not answered")
			}
		}
		p.Take()
	}
	if s := p.Stats(); s.Frag.Bytes > 100_000 || s.Frag.Evicted == 0 || s.PoolFree < s.PoolLen-32 {
		t.Errorf("%+v, %d of %d buffers free", s.Frag, s.PoolFree, s.PoolLen)
	}
	ping(t, p)
}

// TestFragmentsMeet: with several workers the fragments of a segment come to one, and what they make to that of its flow.
func TestFragmentsMeet(t *testing.T) {
	cfg := tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}}
	cfg.Stack.Workers = make([]stack.WorkerConfig, 3)
	p := tcptest.New(t, cfg)
	l := p.Listen(100)
	peer, his := p.MACs()
	f := &frames{peer, his}
	const flows = 30
	for i := range flows {
		flow := p.Flow(uint16(5000+i), 80)
		for _, frame := range f.cut(t, flow.Build("S 0:0(0) win 10000 <mss 1460,sackOK,ws 7>"), 44, uint32(i)) {
			p.SendFrame(frame)
		}
		flow.Expect("S. 0:0(0) ack 1")
		flow.Send(". 1:1(0) ack 1")
		flow.Accept(l)
		for _, frame := range f.cut(t, flow.Build("P. 1:101(100) ack 1"), 76, uint32(1000+i)) {
			p.SendFrame(frame)
		}
		flow.Expect(". 1:1(0) ack 101")
		flow.WantRead(100)
	}
	reassemblers, whole := 0, uint64(0)
	for i, s := range p.Stack.Stats() {
		if s.TCP.Conns == 0 {
			t.Errorf("worker %d has none of %d connections", i, flows)
		}
		if s.Frag.Whole > 0 {
			reassemblers++
		}
		whole += s.Frag.Whole
	}
	if reassemblers != 1 || whole != 2*flows {
		t.Errorf("%d workers have put %d packets together, want one and %d", reassemblers, whole, 2*flows)
	}
}

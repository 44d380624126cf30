package stack_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// script takes values from a fuzzer's bytes; it yields zeros at the end.
type script struct{ b []byte }

func (s *script) u8() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

func (s *script) u16() uint16 { return uint16(s.u8())<<8 | uint16(s.u8()) }

func (s *script) bytes(n int) []byte {
	n = min(n, len(s.b))
	v := s.b[:n]
	s.b = s.b[n:]
	return v
}

// FuzzInput sends arbitrary segments of one connection, and mangled frames of all kinds, into a stack that has two. Nothing may panic
// or leak; what is delivered on the one is the stream's bytes in order, and the other one is not disturbed.
func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 1, 0x10, 100, 0, 1, 50, 0, 0, 101, 0, 1, 0x18, 100, 7, 5, 60, 9, 1, 9, 2, 9, 3})
	f.Add([]byte{1, 3, 20, 1, 1, 2, 0xff, 2, 40, 3, 4, 4, 4, 5, 200, 6, 0, 7, 100})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2048 {
			t.Skip("long")
		}
		p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: 128, Ring: 64}, Stack: stack.Config{TCP: tcp.Config{RecvBuffer: 64 << 10, TimeWait: time.Second}}})
		l := p.Listen(4)
		calm := p.Passive(l, 5000, "mss 1460,sackOK,ts * *", 30000)
		calm.TS = true
		other := p.Passive(l, 5001, "mss 1460,sackOK,ts * *,ws 2", 30000)
		z := &fuzzer{t, p, other, script{data}}
		for ops := 0; len(z.b) > 0 && ops < 200; ops++ {
			z.step()
			p.Take()
			z.read()
		}
		// Time for what goes on, and the peer's own address again.
		p.Idle(3 * time.Second)
		peer, _ := p.MACs()
		p.SendFrame(p.ARP(wire.ARPRequest, peer, tcptest.PeerAddr, wire.MAC{}, tcptest.StackAddr))
		p.Idle(time.Second)
		p.Take()
		other.Abort()
		p.Take()
		calm.WantState("ESTAB")
		calm.Write(100)
		calm.Expect("P. 1:101(100) ack 1")
		calm.Send("P. 1:101(100) ack 101")
		calm.Expect(". 101:101(0) ack 101")
		calm.WantRead(100)
		ping(t, p)
	})
}

type fuzzer struct {
	t    *testing.T
	p    *tcptest.Peer
	flow *tcptest.Flow
	script
}

func (z *fuzzer) step() {
	switch z.u8() % 8 {
	case 0, 1:
		z.segment()
	case 2:
		z.mangled()
	case 3:
		z.p.SendFrame(z.bytes(int(z.u8())))
	case 4:
		z.flow.Conn.TryWrite(tcptest.Bytes(0, int(z.u16())))
	case 5:
		z.p.Idle(time.Duration(z.u16()) * time.Millisecond)
	case 6:
		if z.u8() == 0 {
			z.flow.CloseWrite()
		}
	case 7:
		for range z.u8() % 4 {
			z.segment()
		}
	}
}

// segment sends a segment of the flow with right checksums: numbers near the interesting edges, any flags, window and options.
func (z *fuzzer) segment() {
	f := z.flow
	i := uint32(0)
	for _, c := range z.p.Stack.Conns() {
		if c.Remote.Port() == f.Port {
			i = uint32(c.BytesReceived)
		}
	}
	base := []uint32{0, i, i + 1, i + 65535, 1 << 31, i + 1000}[z.u8()%6]
	sq := base + uint32(int16(z.u16()))
	ack := uint32(int16(z.u16()))
	flags := uint16(z.u8())
	if flags&0x80 == 0 {
		flags |= wire.ACK // most are good for something
	}
	n := int(z.u16() % 1400)
	opts := make([]byte, z.u8()%11*4)
	copy(opts, z.bytes(len(opts)))
	n = min(n, 1460-len(opts))
	t := wire.TCP{SrcPort: f.Port, DstPort: f.StackPort, Seq: f.ISS + sq, Ack: f.IRS + ack, Flags: flags & 0x3f, Window: uint16(z.u8()) << 8}
	z.p.SendFrame(f.Frame(&t, opts, sq-1, n))
}

// mangled changes bytes of a valid frame. If the result is by chance a good segment of a connection it is left out: its payload would
// not be the stream's.
func (z *fuzzer) mangled() {
	peer, his := z.p.MACs()
	fr := &frames{peer, his}
	kinds := [][]byte{
		fr.tcp(func(s []byte) []byte { return s }), fr.icmp(wire.ICMPEcho, 0, []byte("12345678")), fr.arp(func(*wire.ARP) {}),
		fr.icmp(wire.ICMPUnreachable, 3, make([]byte, 32)), z.flow.Build("P. 1:101(100) ack 1"), fr.ip(wire.ProtoUDP, make([]byte, 20)),
	}
	b := kinds[int(z.u8())%len(kinds)]
	for range z.u8()%6 + 1 {
		b[int(z.u16())%len(b)] ^= z.u8()
	}
	if z.u8()&1 != 0 && len(b) > 34 { // a right IP checksum
		with(b, func([]byte) {})
	}
	if n := int(z.u8()); n < len(b) {
		b = b[:n]
	}
	var pk wire.Packet
	var t wire.TCP
	if wire.Parse(b, &pk, false) == wire.DropNone && pk.Proto == wire.ProtoTCP && wire.ParseTCP(&pk, &t, false) == wire.DropNone && t.SrcPort != 9000 {
		return
	}
	z.p.SendFrame(b)
}

// read takes what came and checks that it is the stream.
func (z *fuzzer) read() {
	for {
		if n, err := z.flow.Read(4096); n == 0 || err != nil {
			return
		}
	}
}

// ticks is a virtual clock.
type ticks struct{ now plugins.Time }

func (c *ticks) Now() plugins.Time { return c.now }

// adversary stands between two stacks and does with each frame what the next byte of the script says. When that has ended, the path is
// good.
type adversary struct {
	clock  *ticks
	stacks [2]*stack.Stack
	ports  [2]pmd.Port
	arenas [2]*mem.Arena
	script
	late  []lateFrame
	pause [2]plugins.Time // until when nothing arrives at a stack
}

type lateFrame struct {
	at   plugins.Time
	to   int
	data []byte
}

func newAdversary(t *testing.T, data []byte, cfg stack.Config) *adversary {
	a := &adversary{clock: &ticks{1e9}, script: script{data}}
	for i := range a.stacks {
		near, far, err := memlink.New(memlink.Config{Now: a.clock.Now, Virtual: true, Bufs: 512})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 { // the second one's address
			near, far = far, near
		}
		b, err := mem.NewBudget(mem.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		a.arenas[i] = mem.NewHeapArena(b)
		c := cfg
		c.Port, c.Clock, c.Seed, c.Arena = near, a.clock, uint64(1+i), a.arenas[i]
		c.Addrs = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", 1+i))}
		if a.stacks[i], err = stack.New(c); err != nil {
			t.Fatal(err)
		}
		a.ports[i] = far
	}
	return a
}

// round runs both stacks and moves frames; if nothing happened, time goes on to the next event.
func (a *adversary) round() {
	busy := a.stacks[0].Turn()
	busy = a.stacks[1].Turn() || busy
	for i := range a.ports {
		var rx [64]*pmd.Buf
		_, n := a.ports[i].Queue(0).Poll(nil, rx[:])
		for _, b := range rx[:n] {
			busy = true
			a.treat(1-i, append([]byte(nil), b.Bytes()...))
			b.Free()
		}
	}
	keep := a.late[:0]
	next := min(a.stacks[0].Deadline(), a.stacks[1].Deadline())
	for _, f := range a.late {
		if f.at <= a.clock.now {
			a.send(f.to, f.data)
			busy = true
			continue
		}
		next = min(next, f.at)
		keep = append(keep, f)
	}
	a.late = keep
	if busy {
		a.clock.now += 1000
	} else {
		a.clock.now = max(next, a.clock.now+1)
	}
}

func (a *adversary) treat(to int, f []byte) {
	v := a.u8()
	arg := int(v >> 3)
	if a.clock.now < a.pause[to] {
		a.late = append(a.late, lateFrame{a.pause[to], to, f})
		return
	}
	switch v & 7 {
	case 1:
		a.pause[to] = a.clock.now.Add(time.Duration(arg) * 40 * time.Millisecond)
		a.late = append(a.late, lateFrame{a.pause[to], to, f})
	case 2:
		forgeWindow(f, arg)
		a.send(to, f)
	case 3:
		return // lost
	case 4:
		a.send(to, f)
		a.send(to, f)
	case 5, 6:
		a.late = append(a.late, lateFrame{a.clock.now.Add(time.Duration(arg) * 7 * time.Millisecond), to, f})
	case 7:
		f[wire.EthLen+(arg*37)%(len(f)-wire.EthLen)] ^= 1 << (arg & 7)
		a.send(to, f)
	default:
		a.send(to, f)
	}
}

// forgeWindow changes the window of a segment, as a middlebox may that shapes by it: closed, silly, shrunk or too large.
func forgeWindow(f []byte, how int) {
	var pk wire.Packet
	var t wire.TCP
	if wire.Parse(f, &pk, false) != wire.DropNone || pk.Proto != wire.ProtoTCP || wire.ParseTCP(&pk, &t, false) != wire.DropNone || t.Flags&wire.SYN != 0 {
		return
	}
	w := [...]uint16{0, 0, 1, 100, t.Window / 2, t.Window - 1, t.Window * 2, 65535}[how&7]
	h := pk.Payload
	binary.BigEndian.PutUint16(h[14:], w)
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], 0)
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], wire.Fold(wire.Sum(h, wire.PseudoSum(pk.Src, pk.Dst, wire.ProtoTCP, len(h)))))
}

func (a *adversary) send(to int, f []byte) {
	q := a.ports[to].Queue(0)
	if b := q.Pool().Get(); b != nil { // else it is lost
		b.Append(f)
		if n, _ := q.Poll([]*pmd.Buf{b}, nil); n == 0 {
			q.Pool().Put(b)
		}
	}
}

func (a *adversary) close(t *testing.T) {
	for i := range a.stacks {
		if err := a.stacks[i].Close(); err != nil {
			t.Error(err)
		}
		var rx [64]*pmd.Buf
		for n := 1; n > 0; {
			_, n = a.ports[i].Queue(0).Poll(nil, rx[:])
			for _, b := range rx[:n] {
				b.Free()
			}
		}
		if err := a.ports[i].Close(); err != nil {
			t.Error(err)
		}
		if err := a.arenas[i].Close(); err != nil {
			t.Error(err)
		}
	}
}

// end is one end of a connection with what it has to send and to receive.
type end struct {
	c              *tcp.Conn
	wrote, read    int
	send, want     int
	eof, shut, bad bool
	rounds         uint
}

func (e *end) step(t *testing.T, buf []byte) {
	for e.wrote < e.send {
		n := min(len(buf), e.send-e.wrote)
		tcptest.Fill(buf[:n], uint64(e.wrote))
		k, err := e.c.TryWrite(buf[:n])
		e.wrote += k
		if err != nil {
			e.fail(t, err)
			break
		}
	}
	if e.wrote == e.send && !e.shut {
		e.shut = true
		e.c.CloseWrite()
	}
	// The reader sleeps for most of the rounds.
	for e.rounds++; !e.eof && !e.bad && e.rounds&3 == 0; {
		k, err := e.c.TryRead(buf)
		for i, b := range buf[:k] {
			if b != tcptest.Byte(uint64(e.read+i)) {
				t.Fatalf("byte %d is wrong", e.read+i)
			}
		}
		e.read += k
		if err == io.EOF {
			e.eof = true
			if e.read != e.want {
				t.Fatalf("the stream ended after %d of %d bytes", e.read, e.want)
			}
		} else if err != nil {
			e.fail(t, err)
			break
		}
	}
}

// fail takes an error: only that of a connection that ended counts.
func (e *end) fail(t *testing.T, err error) {
	if err == tcp.ErrWouldBlock {
		return
	}
	if err != tcp.Reset && err != tcp.TimedOut && err != tcp.Shutdown && err != tcp.Unreachable {
		t.Fatalf("error %v", err)
	}
	e.bad = true
}

// FuzzLink carries a stream in each direction over a path that loses, repeats, delays, reorders, holds up and corrupts frames and forges
// windows as the script says, and is good afterwards. Every byte arrives exactly, or the connection ends with an error.
func FuzzLink(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 3, 0, 0, 3, 3, 3, 0, 0, 4, 13, 45, 7}, uint16(20000), uint16(100), uint8(0))
	f.Add([]byte{5, 13, 21, 29, 37, 45, 53, 61, 69, 7, 15, 23, 31, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3}, uint16(60000), uint16(60000), uint8(3))
	f.Add([]byte{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, uint16(1), uint16(0), uint8(7))
	f.Add([]byte{0, 0, 0, 0, 2, 10, 18, 26, 34, 42, 50, 58, 2, 2, 2, 33, 2, 0, 2, 0, 10, 0, 57, 0, 2}, uint16(50000), uint16(30000), uint8(0xd0))
	f.Fuzz(func(t *testing.T, data []byte, there, back uint16, opts uint8) {
		if len(data) > 1024 {
			t.Skip("long")
		}
		cfg := stack.Config{TCP: tcp.Config{NoSACK: opts&1 != 0, NoTimestamps: opts&2 != 0, NoWScale: opts&4 != 0, NoDelay: opts&8 != 0, RecvBuffer: 8000 + int(opts)<<8}}
		cfg.Modules[plugins.Cong].Name = [...]string{"reno", "cubic", "bbr", "cdg"}[opts>>4&3]
		cfg.Modules[plugins.Rtx].Name = [...]string{"btree", "list"}[opts>>6&1]
		cfg.Modules[plugins.Pace].Name = [...]string{"edt", "none"}[opts>>7]
		a := newAdversary(t, data, cfg)
		defer a.close(t)
		l, err := a.stacks[1].Listen(netip.MustParseAddrPort("10.0.0.2:80"), 4)
		if err != nil {
			t.Fatal(err)
		}
		x := &end{send: int(there), want: int(back)}
		y := &end{send: int(back), want: int(there)}
		if x.c, err = a.stacks[0].Connect(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:80")); err != nil {
			t.Fatal(err)
		}
		defer x.c.Close()
		buf := make([]byte, 16<<10)
		began := a.clock.now
		limit := began.Add(30 * time.Minute)
		for !x.bad && !y.bad && !(x.eof && y.eof) { // an end whose peer is gone without a word may wait for ever
			if a.clock.now > limit {
				t.Fatalf("not done: there %d of %d, back %d of %d; %+v", y.read, y.want, x.read, x.want, a.stacks[0].Conns())
			}
			a.round()
			if x.c.Done() && x.c.Err() != tcp.OK && y.c == nil {
				if e := x.c.Err(); e != tcp.TimedOut && e != tcp.Reset && e != tcp.Unreachable {
					t.Fatalf("the handshake ended with %v", x.c.Err())
				}
				return
			}
			if y.c == nil {
				if y.c, _ = l.TryAccept(); y.c != nil {
					defer y.c.Close()
				}
			}
			for _, e := range []*end{x, y} {
				if e.c != nil {
					e.step(t, buf)
					e.bad = e.bad || e.c.Done() && e.c.Err() != tcp.OK // what it has written may be lost though it has read all
				}
			}
		}
		// A connection ends with an error only if the path was bad for a quarter of an hour (RFC 9293, 3.8.3 R2).
		if lasted := a.clock.now.Sub(began); (x.bad || y.bad) && lasted < 15*time.Minute {
			t.Fatalf("ended with an error after %v: %v, %v", lasted, x.c.Err(), y.c.Err())
		}
	})
}

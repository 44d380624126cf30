package attack

import (
	"encoding/binary"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// FuzzLive changes, drops, repeats, holds back and adds frames of a live connection as the program says. Its payload stays a function of
// its offset, so whatever the ends make of it, what they deliver is the stream, in order. Nothing may panic or leak; a second connection
// between the same stacks is not disturbed.
func FuzzLive(f *testing.F) {
	f.Add([]byte{0, 0, 0, 6, 0, 0, 7, 1, 0, 8, 0, 9, 0, 0, 10, 0, 1, 0, 10, 1, 0, 200, 0, 11, 3, 1, 2, 3, 12, 40, 13, 1, 2, 3, 14, 4, 0, 15, 5, 1, 2, 3, 4, 5}, uint8(0))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 14, 1, 0, 14, 17, 0, 14, 2, 0, 14, 4, 5, 0, 0, 14, 20, 0}, uint8(0x15))
	f.Add([]byte{0, 0, 0, 8, 8, 8, 8, 9, 2, 9, 0, 9, 1, 10, 3, 0, 0, 10, 3, 0, 1, 10, 3, 255, 255}, uint8(0x2a))
	f.Fuzz(func(t *testing.T, program []byte, opts uint8) {
		if len(program) > 1024 {
			t.Skip("long")
		}
		cfg := Config{Heap: true, Small: true, Stack: stack.Config{TCP: tcp.Config{
			TimeWait: time.Second, FinWait2: 2 * time.Second, NoSACK: opts&1 != 0, NoTimestamps: opts&2 != 0, NoWScale: opts&4 != 0,
			RecvBuffer: []int{4 << 20, 9000, 100_000, 2000}[opts>>3&3],
		}}}
		cfg.Stack.Modules[plugins.Cong].Name = [...]string{"reno", "cubic", "bbr", "cdg"}[opts>>5&3]
		n := New(t, cfg)
		chat := n.Chat()
		m := &meddler{n: n, program: program}
		n.OnPath = m.frame
		live := n.live()
		// The program ends, and what it left behind with it.
		n.Run(5*time.Second, func() bool { return len(m.program) == 0 || n.Rounds > 400_000 })
		m.program = nil
		n.Run(3*time.Second, func() bool { return n.Rounds > 400_000 })
		live.close()
		if n.Rounds > 300_000 {
			t.Errorf("%d rounds: two ends keep each other busy", n.Rounds)
		}
		heard := [2]int{chat.ends[0].read, chat.ends[1].read}
		n.Idle(3 * time.Second)
		for i := range heard {
			if got := chat.ends[i].read - heard[i]; got < 250*line {
				t.Errorf("end %d of the other connection has heard %d bytes in 3 s", i, got)
			}
		}
		if s := n.Stats().TCP; s.Conns != 1 || s.SynRecvs > 1 {
			t.Errorf("%d connections and %d half-open ones are left: %+v", s.Conns, s.SynRecvs, n.Victim.Conns())
		}
		chat.Close()
		n.steps = nil
		before := n.Rounds
		n.Idle(2 * time.Minute)
		if rounds := n.Rounds - before; rounds > 5000 {
			t.Errorf("%d rounds with nothing to do", rounds)
		}
		for i, st := range []*stack.Stack{n.Victim, n.Client} {
			if s := st.Stats()[0].TCP; s.Conns+s.TimeWaits+s.SynRecvs != 0 {
				t.Errorf("stack %d: %d connections, %d in TIME-WAIT, %d half-open: %+v", i, s.Conns, s.TimeWaits, s.SynRecvs, st.Conns())
			}
		}
		if used := n.Budget.Used(); used > 1<<20 {
			t.Errorf("%d bytes are still charged", used)
		}
	})
}

const livePort = 9

// liveConn is the connection that is meddled with: both ends write as long as they can, and read.
type liveConn struct {
	n    *Net
	l    *tcp.Listener
	ends [2]struct {
		c           *tcp.Conn
		wrote, read int
		over        bool
	}
	others []*tcp.Conn // that forged SYNs have opened
	buf    [4096]byte
	next   int
	done   bool
}

func (n *Net) live() *liveConn {
	l, err := n.Victim.Listen(netip.AddrPortFrom(VictimAddr, livePort), 8)
	if err != nil {
		n.T.Fatal(err)
	}
	c := &liveConn{n: n, l: l}
	if c.ends[0].c, err = n.Client.Connect(netip.AddrPort{}, netip.AddrPortFrom(VictimAddr, livePort)); err != nil {
		n.T.Fatal(err)
	}
	n.Each(c.step)
	return c
}

func (c *liveConn) step() {
	if c.done {
		return
	}
	for {
		a, err := c.l.TryAccept()
		if err != nil {
			break
		}
		if c.ends[1].c == nil {
			c.ends[1].c = a
		} else {
			c.others = append(c.others, a)
		}
	}
	c.next++
	for i := range c.ends {
		e := &c.ends[i]
		if e.c == nil || e.over {
			continue
		}
		size := 700 + 900*(c.next&3)
		if e.wrote < 40_000 {
			k, _ := e.c.TryWrite(Content(e.wrote, min(size, 40_000-e.wrote))) // an error shows when reading
			e.wrote += k
		} else {
			e.c.CloseWrite()
		}
		k, err := e.c.TryRead(c.buf[:])
		for j, b := range c.buf[:k] {
			if b != tcptest.Byte(uint64(e.read+j)) {
				c.n.T.Fatalf("end %d: byte %d is wrong", i, e.read+j)
			}
		}
		e.read += k
		switch err {
		case nil, tcp.ErrWouldBlock:
		case io.EOF, tcp.Reset, tcp.TimedOut, tcp.Refused, tcp.Unreachable:
			e.over = true
		default:
			c.n.T.Fatalf("end %d: %v", i, err)
		}
	}
}

// close ends the connection at both ends at once.
func (c *liveConn) close() {
	c.done = true
	c.n.Victim.CloseListener(c.l)
	for _, e := range c.ends {
		if e.c != nil {
			e.c.Abort()
		}
	}
	for _, o := range c.others {
		o.Abort()
	}
}

// meddler stands on the path of the live connection.
type meddler struct {
	n       *Net
	program []byte
	iss     [2]uint32 // of the client's stream and of the victim's
	known   [2]bool
	held    [][]byte // frames held back, and where they go
	to      []bool
}

func (m *meddler) u8() byte {
	if len(m.program) == 0 {
		return 0
	}
	v := m.program[0]
	m.program = m.program[1:]
	return v
}

func (m *meddler) u16() uint16 { return uint16(m.u8())<<8 | uint16(m.u8()) }

// frame says what arrives instead of f.
func (m *meddler) frame(toVictim bool, f []byte) (out [][]byte) {
	_, t, _, ok := Parse(f)
	if !ok || t.SrcPort != livePort && t.DstPort != livePort {
		return [][]byte{f}
	}
	dir := 1
	if toVictim {
		dir = 0
	}
	syn := t.Flags&wire.SYN != 0
	if syn && !m.known[dir] {
		m.iss[dir], m.known[dir] = t.Seq, true
	}
	op := m.u8() & 15
	switch {
	case op == 6:
		return nil
	case op == 7:
		for range m.u8()&3 + 2 {
			out = append(out, f)
		}
		return out
	case op == 8 && len(m.held) < 8:
		m.held, m.to = append(m.held, f), append(m.to, toVictim)
		return nil
	case op == 9 && len(m.held) > 0:
		i := int(m.u8()) % len(m.held)
		g, to := m.held[i], m.to[i]
		m.held, m.to = append(m.held[:i:i], m.held[i+1:]...), append(m.to[:i:i], m.to[i+1:]...)
		if to == toVictim {
			return [][]byte{f, g}
		}
		m.deliver(to, g)
		return [][]byte{f}
	case op == 10 && !syn:
		return [][]byte{m.header(dir, f)}
	case op == 11 && !syn:
		for i := range t.Opts {
			if v := m.u8(); v != 0 {
				t.Opts[i] = v // in f
			}
		}
		m.finish(dir, f)
		return [][]byte{f}
	case op == 12 && !syn:
		return [][]byte{m.resize(dir, f, int(m.u8())*6)}
	case op == 13:
		for range m.u8()&3 + 1 {
			f[wire.EthLen+int(m.u16())%(len(f)-wire.EthLen)] ^= 1 << (m.u8() & 7)
		}
		if _, g, _, ok := Parse(f); ok && g.SrcPort != t.SrcPort { // by chance a good segment: of nobody
			return nil
		} else if ok {
			m.finish(dir, f)
		}
		return [][]byte{f}
	case op == 14 && !syn && m.known[dir]:
		return [][]byte{f, m.forge(dir, f)}
	case op == 15:
		g := append([]byte(nil), f[:wire.EthLen]...)
		for range m.u8() {
			g = append(g, m.u8())
		}
		return [][]byte{f, g}
	}
	return [][]byte{f}
}

// deliver brings a frame to the end that it was for.
func (m *meddler) deliver(toVictim bool, f []byte) {
	to := 1
	if toVictim {
		to = 0
	}
	m.n.put(to, f)
}

const tcpAt = wire.EthLen + wire.IPv4Len

// header changes a field of the TCP header.
func (m *meddler) header(dir int, f []byte) []byte {
	h := f[tcpAt:]
	field, v := m.u8(), m.u16()
	add := func(at int) {
		binary.BigEndian.PutUint32(h[at:], binary.BigEndian.Uint32(h[at:])+uint32(int32(int16(v))))
	}
	switch field % 6 {
	case 0:
		add(4)
	case 1:
		add(8)
	case 2:
		h[13] ^= byte(v) &^ byte(wire.SYN)
	case 3:
		binary.BigEndian.PutUint16(h[14:], v)
	case 4:
		h[12] = byte(v)
	case 5:
		h[4+v%4] ^= byte(v >> 8) // far away
	}
	m.finish(dir, f)
	return f
}

// resize gives a segment n bytes of payload.
func (m *meddler) resize(dir int, f []byte, size int) []byte {
	hdr := int(f[tcpAt+12]>>4) * 4
	size = min(size, 1500-wire.IPv4Len-hdr)
	g := make([]byte, tcpAt+hdr+size)
	copy(g, f[:tcpAt+hdr])
	binary.BigEndian.PutUint16(g[wire.EthLen+2:], uint16(wire.IPv4Len+hdr+size))
	m.finish(dir, g)
	return g
}

// forge makes a segment with other flags near the numbers of f.
func (m *meddler) forge(dir int, f []byte) []byte {
	g := append([]byte(nil), f[:tcpAt+int(f[tcpAt+12]>>4)*4]...)
	binary.BigEndian.PutUint16(g[wire.EthLen+2:], uint16(len(g)-wire.EthLen))
	h := g[tcpAt:]
	h[13] = m.u8()
	binary.BigEndian.PutUint32(h[4:], binary.BigEndian.Uint32(h[4:])+uint32(int32(int8(m.u8()))))
	m.finish(dir, g)
	return g
}

// finish writes the payload that belongs to the segment's sequence number, and the checksums.
func (m *meddler) finish(dir int, f []byte) {
	ip, h := f[wire.EthLen:], f[tcpAt:]
	src, dst := wire.AddrFrom4([4]byte(ip[12:16])), wire.AddrFrom4([4]byte(ip[16:20]))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip[:wire.IPv4Len], 0)))
	if hdr := int(h[12]>>4) * 4; hdr >= wire.TCPLen && hdr < len(h) {
		off := binary.BigEndian.Uint32(h[4:]) - m.iss[dir] - 1
		if h[13]&byte(wire.SYN) != 0 {
			off++
		}
		for i := range h[hdr:] {
			h[hdr+i] = tcptest.Byte(uint64(off + uint32(i)))
		}
	}
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], 0)
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], wire.Fold(wire.Sum(h, wire.PseudoSum(src, dst, wire.ProtoTCP, len(h)))))
}

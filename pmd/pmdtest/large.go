package pmdtest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// large is a large frame under test.
type large struct {
	v6      bool
	payload int
	mss     int
	flags   byte // of TCP
	first   int  // payload bytes in the first buffer; the rest is spread over the others
}

const (
	fin, psh, ack, ece, cwr = 0x01, 0x08, 0x10, 0x40, 0x80

	largeSeq = 0xfffff000 // goes round
	largeID  = 0xfffe
	optLen   = 12
)

func (l *large) data() []byte {
	p := make([]byte, l.payload)
	for i := range p {
		p[i] = pattern(7, i)
	}
	return p
}

// build makes the frame in buffers of a pool; nil if there are too few. It is addressed from src to dst.
func (l *large) build(pool *pmd.Pool, dst, src []byte) *pmd.Buf {
	e := binary.BigEndian
	l3 := 20
	if l.v6 {
		l3 = 40
	}
	head := make([]byte, ethHeader+l3+20+optLen)
	copy(head, dst)
	copy(head[6:], src)
	ip, t := head[ethHeader:ethHeader+l3], head[ethHeader+l3:]
	tcpLen := len(t) + l.payload
	pseudo := uint32(6 + tcpLen)
	if l.v6 {
		e.PutUint16(head[12:], 0x86dd)
		copy(ip, []byte{6 << 4, 0, 0, 0, byte(tcpLen >> 8), byte(tcpLen), 6, 64})
		ip[8], ip[23], ip[24], ip[39] = 0xfd, 1, 0xfd, 2
		pseudo += sum16(ip[8:40])
	} else {
		e.PutUint16(head[12:], 0x0800)
		copy(ip, []byte{0x45, 0, byte((20 + tcpLen) >> 8), byte(20 + tcpLen), largeID >> 8, largeID & 0xff, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2})
		pseudo += sum16(ip[12:20])
	}
	copy(t, []byte{0x12, 0x34, 0x56, 0x78})
	e.PutUint32(t[4:], largeSeq)
	e.PutUint32(t[8:], 77)
	t[12], t[13] = byte((20+optLen)/4)<<4, l.flags
	e.PutUint16(t[14:], 500)
	e.PutUint16(t[16:], fold(pseudo))
	copy(t[20:], []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2})

	data := l.data()
	size := len(pool.At(0).Mem())
	n := min(l.first, size-pmd.Headroom-len(head), len(data))
	parts := 1 + (len(data)-n+size-1)/size
	b, got := pool.Chain(parts)
	if got < parts {
		if b != nil {
			pool.Put(b)
		}
		return nil
	}
	b.Append(head)
	b.Append(data[:n])
	data = data[n:]
	for m := b.More; m != nil; m = m.More {
		k := min(size, len(data))
		m.Append(data[:k])
		data = data[k:]
	}
	b.SegSize = uint16(l.mss)
	b.L2Len, b.L3Len, b.L4Len = ethHeader, uint8(l3), uint8(len(t))
	b.Flags |= pmd.TxTCPCsum
	if !l.v6 {
		b.Flags |= pmd.TxIPCsum
	}
	return b
}

// sum16 is the sum of p's words.
func sum16(p []byte) (s uint32) {
	for ; len(p) > 1; p = p[2:] {
		s += uint32(p[0])<<8 | uint32(p[1])
	}
	if len(p) == 1 {
		s += uint32(p[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pieces takes what a large frame was cut into.
type pieces struct {
	large
	src  []byte
	data []byte // so far
	n    int    // frames
	err  error  // the first
}

// take checks the next frame; foreign ones are passed over.
func (g *pieces) take(b *pmd.Buf) {
	f := b.Bytes()
	l3 := 20
	if g.v6 {
		l3 = 40
	}
	head := ethHeader + l3 + 20 + optLen
	if g.err != nil || len(f) <= head || !bytes.Equal(f[6:12], g.src) || f[ethHeader]>>4 == 6 != g.v6 || len(f) < 14+l3+4 ||
		!bytes.Equal(f[ethHeader+l3:][:4], []byte{0x12, 0x34, 0x56, 0x78}) {
		return
	}
	g.n++
	g.err = g.check(f, head, l3, b.Flags&pmd.RxPartial != 0)
	g.data = append(g.data, f[head:]...)
}

// check compares a frame with what a network card makes. whole says that it may be longer than a piece, and unfinished: nobody between the
// ports had reason to cut it.
func (g *pieces) check(f []byte, head, l3 int, whole bool) error {
	e := binary.BigEndian
	at, n := len(g.data), len(f)-head
	last := at+n == g.payload
	ip, t := f[ethHeader:ethHeader+l3], f[ethHeader+l3:]
	if n != g.mss && !last && !(whole && n%g.mss == 0) || n > g.mss && !whole || at+n > g.payload {
		return fmt.Errorf("%d bytes at %d of %d, in pieces of %d", n, at, g.payload, g.mss)
	}
	if got, want := e.Uint32(t[4:]), largeSeq+uint32(at); got != want {
		return fmt.Errorf("byte %d has the sequence number %d, want %d", at, got, want)
	}
	want := g.flags
	if at > 0 {
		want &^= cwr
	}
	if !last {
		want &^= fin | psh
	}
	if t[13] != want {
		return fmt.Errorf("flags %#x at %d, want %#x", t[13], at, want)
	}
	length, pseudo := int(e.Uint16(ip[4:])), sum16(ip[8:])
	if !g.v6 {
		length, pseudo = int(e.Uint16(ip[2:]))-l3, sum16(ip[12:])
		if got, id := e.Uint16(ip[4:]), uint16(largeID+at/g.mss); got != id {
			return fmt.Errorf("identification %d at %d, want %d", got, at, id)
		}
		if fold(sum16(ip)) != 0xffff {
			return fmt.Errorf("the checksum of the IPv4 header at %d is wrong", at)
		}
	}
	if length != len(t) {
		return fmt.Errorf("the IP header at %d says %d bytes, there are %d", at, length, len(t))
	}
	if !whole && fold(pseudo+6+uint32(len(t))+sum16(t)) != 0xffff {
		return fmt.Errorf("the TCP checksum at %d is wrong", at)
	}
	return nil
}

// testLarge wants ports with TSO to cut large frames as network cards do.
func testLarge(p *pair) {
	any := false
	for _, s := range p.sides() {
		if s.info.Caps&pmd.TSO == 0 {
			continue
		}
		any = true
		full := min(s.info.MTU, s.peer.info.MTU) - 40 - 20 - optLen
		for _, l := range []large{
			{payload: min(s.info.MaxTSO, 44*full), mss: full, flags: ack, first: 1 << 16},
			{payload: min(s.info.MaxTSO, 44*full), mss: full, flags: ack | psh | fin | ece | cwr, first: 0},
			{payload: 2*full + 1, mss: full, flags: ack | psh, first: 1},
			{payload: full, mss: full, flags: ack | psh | fin | cwr, first: 100},
			{payload: 10 * 200, mss: 200, flags: ack | fin, first: 333},
		} {
			for _, l.v6 = range []bool{false, true} {
				s.sendLarge(l)
			}
		}
	}
	if !any {
		p.Skip("the ports have no TSO")
	}
}

func (s *side) sendLarge(l large) {
	s.p.Helper()
	before := s.port.Stats()
	g := &pieces{large: l, src: s.info.MAC}
	s.peer.other = g.take
	defer func() { s.peer.other = nil }()
	b := l.build(s.port.Queue(0).Pool(), s.peer.info.MAC, s.info.MAC)
	if b == nil {
		s.p.Fatalf("%s: too few buffers for a large frame", s.info.Name)
	}
	frames, size := b.Wire()
	tx := []*pmd.Buf{b}
	until(patience, func() bool {
		if len(tx) > 0 {
			n, nrx := s.port.Queue(0).Poll(tx, s.rx)
			s.receive(0, s.rx[:nrx])
			tx = tx[n:]
		}
		s.turn()
		s.peer.turn()
		return len(g.data) >= l.payload || g.err != nil
	})
	switch {
	case g.err != nil:
		s.p.Errorf("%s: %+v: %v", s.info.Name, l, g.err)
	case !bytes.Equal(g.data, l.data()):
		s.p.Errorf("%s: %+v: %d bytes arrived in %d frames, or others than were sent", s.info.Name, l, len(g.data), g.n)
	}
	if st := s.port.Stats(); st.TxFrames-before.TxFrames != uint64(frames) || st.TxBytes-before.TxBytes != uint64(size) {
		s.p.Errorf("%s: %+v: %d frames and %d bytes are counted, want %d and %d", s.info.Name, l, st.TxFrames-before.TxFrames, st.TxBytes-before.TxBytes, frames, size)
	}
}

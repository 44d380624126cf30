package wire

import (
	"bytes"
	"testing"
)

// FuzzUDP parses arbitrary datagrams of both families. What is accepted is what PutUDP writes, but for a missing checksum and what lies
// behind the datagram.
func FuzzUDP(f *testing.F) {
	a4, b4 := AddrFrom4([4]byte{10, 0, 0, 1}), AddrFrom4([4]byte{10, 0, 0, 2})
	a6, b6 := Addr{0: 0xfd, 15: 1}, Addr{0: 0xfd, 15: 2}
	for _, data := range []string{"", "a", "odd", "even"} {
		b := make([]byte, UDPLen+len(data))
		PutUDP(b, a4, b4, 1000, 53, []byte(data))
		f.Add(b, true)
		PutUDP(b, a6, b6, 1000, 53, []byte(data))
		f.Add(b, false)
	}
	f.Add([]byte{0, 1, 0, 2, 0, 8, 0, 0}, true)
	f.Add([]byte{0, 1, 0, 2, 0, 8, 0, 0}, false)
	f.Fuzz(func(t *testing.T, b []byte, v4 bool) {
		p := Packet{Src: a6, Dst: b6, Payload: b}
		if v4 {
			p.Src, p.Dst = a4, b4
		}
		var u UDP
		if ParseUDP(&p, &u, false) != DropNone {
			return
		}
		n := UDPLen + len(u.Data)
		again := make([]byte, n)
		PutUDP(again, p.Src, p.Dst, u.SrcPort, u.DstPort, u.Data)
		none := b[6]|b[7] == 0
		if none && !v4 {
			t.Fatal("no checksum over IPv6")
		}
		if !bytes.Equal(again[:6], b[:6]) || !bytes.Equal(again[8:], b[8:n]) || !none && !bytes.Equal(again[6:8], b[6:8]) {
			t.Fatalf("%x is written as %x", b, again)
		}
	})
}

package wire

import "testing"

// Options that are whole are skipped, but for source routes that go on from here (RFC 791, 3.1; RFC 7126, 4.3).
func TestIPv4Options(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []byte
		want Drop
	}{
		{"no-operations and end", []byte{1, 1, 0, 0xff}, DropNone},
		{"router alert", []byte{148, 4, 0, 0}, DropNone},
		{"record route", []byte{7, 7, 4, 0, 0, 0, 0, 1}, DropNone},
		{"record route beyond the header", []byte{7, 80, 4, 0}, DropIPOption},
		{"length 0", []byte{68, 0, 0, 0}, DropIPOption},
		{"length 1", []byte{68, 1, 0, 0}, DropIPOption},
		{"type without length", []byte{1, 1, 1, 68}, DropIPOption},
		{"loose source route that goes on", []byte{131, 7, 4, 10, 0, 0, 9, 0}, DropIPOption},
		{"loose source route that has ended", []byte{131, 7, 8, 10, 0, 0, 9, 0}, DropNone},
		{"strict source route that goes on", []byte{137, 7, 4, 10, 0, 0, 9, 0}, DropIPOption},
		{"source route without pointer", []byte{131, 2, 1, 1}, DropIPOption},
	} {
		b := make([]byte, IPv4Len+len(c.opts)+8)
		PutIPv4(b, AddrFrom4([4]byte{10, 0, 0, 2}), AddrFrom4([4]byte{10, 0, 0, 1}), ProtoUDP, 0, 64, 0, len(b))
		b[0] = byte(0x40 | (IPv4Len+len(c.opts))/4)
		copy(b[IPv4Len:], c.opts)
		var p Packet
		if got := parseIPv4(b, &p, true); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		} else if got == DropNone && len(p.Payload) != 8 {
			t.Errorf("%s: %d bytes of payload", c.name, len(p.Payload))
		}
	}
}

package wire

import (
	"bytes"
	"net/netip"
	"testing"
)

// The vectors that go with the default key.
var toeplitzVectors = []struct {
	src, dst         string
	sport, dport     uint16
	addrs, withPorts uint32
}{
	{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x323e8fc2, 0x51ccc178},
	{"199.92.111.2", "65.69.140.83", 14230, 4739, 0xd718262a, 0xc626b0ea},
	{"24.19.198.95", "12.22.207.184", 12898, 38024, 0xd2d0a5de, 0x5c2b394a},
	{"38.27.205.30", "209.142.163.6", 48228, 2217, 0x82989176, 0xafc7327f},
	{"153.39.163.191", "202.188.127.2", 44251, 1303, 0x5d1809c5, 0x10e828a2},
	{"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x2cc18cd5, 0x40207d3d},
	{"3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0x0f0c461c, 0xdde51bbf},
	{"3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x4b61e985, 0x02d1feef},
}

func TestToeplitz(t *testing.T) {
	h, err := NewToeplitz(RSSKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range toeplitzVectors {
		src, dst := AddrFrom(netip.MustParseAddr(v.src)), AddrFrom(netip.MustParseAddr(v.dst))
		if got := h.HashAddrs(src, dst); got != v.addrs {
			t.Errorf("%s to %s: addresses %#08x, want %#08x", v.src, v.dst, got, v.addrs)
		}
		if got := h.Hash(src, dst, v.sport, v.dport); got != v.withPorts {
			t.Errorf("%s to %s: %#08x, want %#08x", v.src, v.dst, got, v.withPorts)
		}
	}
	if _, err := NewToeplitz(RSSKey[:39]); err == nil {
		t.Error("a short key was accepted")
	}
}

func TestToeplitzSymmetric(t *testing.T) {
	h, err := NewToeplitz(bytes.Repeat([]byte{0x6d, 0x5a}, 20))
	if err != nil {
		t.Fatal(err)
	}
	v := toeplitzVectors[0]
	src, dst := AddrFrom(netip.MustParseAddr(v.src)), AddrFrom(netip.MustParseAddr(v.dst))
	if a, b := h.Hash(src, dst, v.sport, v.dport), h.Hash(dst, src, v.dport, v.sport); a != 0x9fcc9fcc || b != a {
		t.Errorf("%#08x and %#08x", a, b)
	}
}

func BenchmarkToeplitz(b *testing.B) {
	h, _ := NewToeplitz(RSSKey)
	for b.Loop() {
		h.Hash(ipA, ipB, 1234, 80)
	}
}

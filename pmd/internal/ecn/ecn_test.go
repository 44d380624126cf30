package ecn

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func checksum(p []byte) uint16 {
	var sum uint32
	for ; len(p) > 1; p = p[2:] {
		sum += uint32(binary.BigEndian.Uint16(p))
	}
	if len(p) == 1 {
		sum += uint32(p[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func ipv4(ecn byte, vlan bool) []byte {
	f := make([]byte, 12, 100)
	if vlan {
		f = append(f, 0x81, 0x00, 0, 5)
	}
	f = append(f, 0x08, 0x00)
	ip := make([]byte, 40)
	ip[0], ip[1], ip[8], ip[9] = 0x45, 0x28|ecn, 64, 6
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:20]))
	return append(f, ip...)
}

func ipv6(ecn byte) []byte {
	f := append(make([]byte, 12, 100), 0x86, 0xdd)
	ip := make([]byte, 60)
	ip[0], ip[1] = 0x6a, 0x80|ecn<<4
	return append(f, ip...)
}

func TestMark(t *testing.T) {
	for _, vlan := range []bool{false, true} {
		for ecn := range byte(4) {
			f := ipv4(ecn, vlan)
			marked := Mark(f)
			ip := f[len(f)-40:]
			want := ecn
			if ecn == 1 || ecn == 2 {
				want = 3
			}
			if marked != (want != ecn) || ip[1] != 0x28|want || checksum(ip[:20]) != 0 {
				t.Errorf("ECN %d, VLAN %v: marked %v, TOS %#x, checksum %#x", ecn, vlan, marked, ip[1], checksum(ip[:20]))
			}
		}
	}
	for ecn := range byte(4) {
		f := ipv6(ecn)
		want := ecn
		if ecn == 1 || ecn == 2 {
			want = 3
		}
		if marked := Mark(f); marked != (want != ecn) || f[15] != 0x80|want<<4 || f[14] != 0x6a {
			t.Errorf("IPv6, ECN %d: marked %v, header % x", ecn, marked, f[14:18])
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add(ipv4(1, false))
	f.Add(ipv4(2, true))
	f.Add(ipv6(1))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		old := bytes.Clone(p)
		if !Mark(p) {
			if !bytes.Equal(p, old) {
				t.Error("changed without a mark")
			}
			return
		}
		if Mark(p) {
			t.Error("marked twice")
		}
	})
}

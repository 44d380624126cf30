package capture

import (
	"encoding/binary"
	"net/netip"
)

// frame is what a filter looks at. Fields that the frame does not have are zero.
type frame struct {
	length           int
	etherType        uint16
	proto            uint8
	flags            uint8 // of TCP
	ports            bool  // srcPort and dstPort are valid
	srcPort, dstPort uint16
	src, dst         netip.Addr
}

// parse reads as many headers as are there; a capture shows malformed frames too.
func (f *frame) parse(b []byte) {
	f.length = len(b)
	if len(b) < 14 {
		return
	}
	f.etherType = binary.BigEndian.Uint16(b[12:])
	b = b[14:]
	switch f.etherType {
	case 0x0800:
		f.ipv4(b)
	case 0x86dd:
		f.ipv6(b)
	case 0x0806:
		if len(b) >= 28 { // RFC 826: the protocol addresses, as pcap-filter's host matches them
			f.src = netip.AddrFrom4([4]byte(b[14:18]))
			f.dst = netip.AddrFrom4([4]byte(b[24:28]))
		}
	}
}

func (f *frame) ipv4(b []byte) {
	if len(b) < 20 {
		return
	}
	f.proto = b[9]
	f.src, f.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	hlen := int(b[0]&15) * 4
	offset := binary.BigEndian.Uint16(b[6:]) & 0x1fff
	if hlen < 20 || hlen > len(b) || offset != 0 {
		return // a later fragment has no transport header
	}
	f.transport(b[hlen:])
}

func (f *frame) ipv6(b []byte) {
	if len(b) < 40 {
		return
	}
	f.proto = b[6]
	f.src, f.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	for b = b[40:]; ; {
		n := 8
		switch f.proto {
		case 0, 43, 60: // hop-by-hop, routing, destination options
			if len(b) >= 2 {
				n = 8 * (1 + int(b[1]))
			}
		case 44: // fragment
			if len(b) >= 8 && binary.BigEndian.Uint16(b[2:])&^7 != 0 {
				return // a later one has no transport header
			}
		default:
			f.transport(b)
			return
		}
		if len(b) < n {
			return
		}
		f.proto, b = b[0], b[n:]
	}
}

func (f *frame) transport(b []byte) {
	if (f.proto != 6 && f.proto != 17) || len(b) < 4 {
		return
	}
	f.ports = true
	f.srcPort, f.dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if f.proto == 6 && len(b) >= 14 {
		f.flags = b[13]
	}
}

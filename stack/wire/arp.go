package wire

import "encoding/binary"

// ARPLen is the length of an ARP body for Ethernet and IPv4.
const ARPLen = 28

// Operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is the body of an ARP packet for Ethernet and IPv4: sender and target, hardware and protocol addresses (RFC 826).
type ARP struct {
	Op  uint16
	SHA MAC
	SPA [4]byte
	THA MAC
	TPA [4]byte
}

// arpHeader is Ethernet, IPv4, and their address lengths.
const arpHeader = 1<<48 | EtherTypeIPv4<<32 | 6<<24 | 4<<16

// ParseARP parses an ARP body; bytes behind it are padding.
func ParseARP(b []byte) (a ARP, d Drop) {
	if len(b) < ARPLen {
		return a, DropARPShort
	}
	h := binary.BigEndian.Uint64(b)
	a.Op = uint16(h)
	if h&^0xffff != arpHeader || a.Op != ARPRequest && a.Op != ARPReply {
		return a, DropARPType
	}
	a.SHA, a.SPA = MAC(b[8:14]), [4]byte(b[14:18])
	a.THA, a.TPA = MAC(b[18:24]), [4]byte(b[24:28])
	return a, DropNone
}

// PutARP writes a to b[:28].
func PutARP(b []byte, a *ARP) {
	_ = b[ARPLen-1]
	binary.BigEndian.PutUint64(b, arpHeader|uint64(a.Op))
	copy(b[8:14], a.SHA[:])
	copy(b[14:18], a.SPA[:])
	copy(b[18:24], a.THA[:])
	copy(b[24:28], a.TPA[:])
}

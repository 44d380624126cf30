package autoconf

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// identifier is the address of this interface in a network of 64 bits: stable there, and another in every other network (RFC 7217, 5).
// F is HMAC-SHA-256 with the secret as its key. The identifiers that are reserved (RFC 5453) are passed over.
func (h *Host) identifier(network netip.Prefix, counter uint8) netip.Prefix {
	p := network.Masked().Addr().As16()
	for n := byte(0); ; n++ {
		f := hmac.New(sha256.New, h.cfg.Secret)
		f.Write(p[:8])
		f.Write([]byte(h.cfg.Name))
		f.Write(h.cfg.MAC[:])
		f.Write([]byte{counter, n})
		id := f.Sum(nil)
		if iid := binary.BigEndian.Uint64(id); iid == 0 || iid>>32 == 0x02005eff || iid >= 0xfdffffffffffff80 && iid <= 0xfdffffffffffffff {
			continue
		}
		copy(p[8:], id)
		return netip.PrefixFrom(netip.AddrFrom16(p), 64)
	}
}

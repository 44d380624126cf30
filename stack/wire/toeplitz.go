package wire

import (
	"encoding/binary"
	"fmt"
)

// RSSKey is the key that most ports come with.
var RSSKey = []byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

const (
	rssInput  = 36           // bytes hashed for IPv6 and ports
	rssMinKey = rssInput + 4 // each input bit sees 32 bits of key
)

// Toeplitz is the hash by which ports spread flows over their queues (RSS), with the table of one key: 36 KiB, of which IPv4
// touches 12.
type Toeplitz struct {
	tab [rssInput][256]uint32
}

// NewToeplitz prepares a key of at least 40 bytes.
func NewToeplitz(key []byte) (*Toeplitz, error) {
	if len(key) < rssMinKey {
		return nil, fmt.Errorf("wire: RSS key of %d bytes, want at least %d", len(key), rssMinKey)
	}
	t := new(Toeplitz)
	for i := range t.tab {
		window := uint64(binary.BigEndian.Uint32(key[i:]))<<8 | uint64(key[i+4]) // key bits [8i, 8i+40)
		for bit := range 8 {
			k := uint32(window >> (8 - bit))
			for v := range 256 {
				if v&(0x80>>bit) != 0 {
					t.tab[i][v] ^= k
				}
			}
		}
	}
	return t, nil
}

// Hash returns the hash of a packet with these addresses and ports, as the receiving port computes it.
func (t *Toeplitz) Hash(src, dst Addr, srcPort, dstPort uint16) uint32 {
	h, n := t.addrs(src, dst)
	return h ^ t.tab[n][srcPort>>8] ^ t.tab[n+1][byte(srcPort)] ^ t.tab[n+2][dstPort>>8] ^ t.tab[n+3][byte(dstPort)]
}

// HashAddrs returns the hash over the addresses alone, which ports use for what is not TCP or UDP.
func (t *Toeplitz) HashAddrs(src, dst Addr) uint32 {
	h, _ := t.addrs(src, dst)
	return h
}

// addrs returns the hash of the addresses and the number of bytes hashed.
func (t *Toeplitz) addrs(src, dst Addr) (h uint32, n int) {
	from := 0
	if src.Is4() && dst.Is4() {
		from = 12
	}
	for _, v := range src[from:] {
		h ^= t.tab[n][v]
		n++
	}
	for _, v := range dst[from:] {
		h ^= t.tab[n][v]
		n++
	}
	return h, n
}

package vnet

import (
	"encoding/binary"
	"errors"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// ErrLarge is the error of Cutter.Start for a large frame whose headers and lengths do not fit together.
var ErrLarge = errors.New("vnet: the frame does not hold what its lengths say")

// Cutter cuts one large frame at a time into the frames that a network card makes of it, with all checksums. The zero Cutter is ready for
// use.
type Cutter struct {
	part []byte   // the rest of the present buffer
	more *pmd.Buf // the buffers behind it
	head []byte   // the headers of the whole
	left int      // payload bytes to come
	size int      // per frame
	l3   int      // offset of the IP header
	l4   int      // offset of the TCP header
	v6   bool
	past bool   // the first frame has been made
	seq  uint32 // of the next frame
	id   uint16
	sum  uint16 // of the addresses and the protocol
}

// Start begins with a large frame (see pmd.Buf.Large), which must stay unchanged while Pending.
func (c *Cutter) Start(b *pmd.Buf) error {
	*c = Cutter{}
	f, head := b.Bytes(), b.HeaderLen()
	l3, l4 := int(b.L2Len), int(b.L2Len)+int(b.L3Len)
	size := b.Size()
	if b.SegSize == 0 || l3 < 14 || b.L3Len < 20 || b.L4Len < 20 || len(f) < head || size <= head || b.Flags&pmd.TxTCPCsum == 0 {
		return ErrLarge
	}
	ip := f[l3:l4]
	switch ip[0] >> 4 {
	case 4:
		if ip[9] != protocolTCP || b.Flags&pmd.TxIPCsum == 0 || int(binary.BigEndian.Uint16(ip[2:])) != size-l3 {
			return ErrLarge
		}
		c.id, c.sum = binary.BigEndian.Uint16(ip[4:]), sum(ip[12:20])
	case 6:
		if len(ip) < 40 || ip[6] != protocolTCP || int(binary.BigEndian.Uint16(ip[4:])) != size-l4 {
			return ErrLarge
		}
		c.v6, c.sum = true, sum(ip[8:40])
	default:
		return ErrLarge
	}
	c.sum = add(c.sum, protocolTCP)
	c.head, c.part, c.more = f[:head], f[head:], b.More
	c.left, c.size, c.l3, c.l4 = size-head, int(b.SegSize), l3, l4
	c.seq = binary.BigEndian.Uint32(f[l4+4:])
	return nil
}

// Pending reports whether Next has more frames to give.
func (c *Cutter) Pending() bool { return c.left > 0 }

// Len is the length of the next frame.
func (c *Cutter) Len() int { return len(c.head) + min(c.size, c.left) }

// Next writes the next frame to f, whose length is Len.
func (c *Cutter) Next(f []byte) {
	n := min(c.size, c.left)
	copy(f, c.head)
	for data := f[len(c.head):]; len(data) > 0; {
		if len(c.part) == 0 {
			c.part, c.more = c.more.Bytes(), c.more.More
			continue
		}
		k := copy(data, c.part)
		data, c.part = data[k:], c.part[k:]
	}
	c.left -= n
	e := binary.BigEndian
	t := f[c.l4:]
	if c.v6 {
		e.PutUint16(f[c.l3+4:], uint16(len(t)))
	} else {
		ip := f[c.l3:c.l4]
		e.PutUint16(ip[2:], uint16(len(ip)+len(t)))
		e.PutUint16(ip[4:], c.id)
		ip[10], ip[11] = 0, 0
		e.PutUint16(ip[10:], ^sum(ip))
		c.id++
	}
	e.PutUint32(t[4:], c.seq)
	c.seq += uint32(n)
	if c.past {
		t[13] &^= flagCWR
	}
	if c.left > 0 {
		t[13] &^= flagFIN | flagPSH
	}
	c.past = true
	t[tcpCsumOffset], t[tcpCsumOffset+1] = 0, 0
	e.PutUint16(t[tcpCsumOffset:], ^add(add(sum(t), c.sum), uint16(len(t))))
}

// Complete computes the checksums that b, which is not large, leaves to the port, in f, which is its frame or a copy. It reports false if
// the lengths in b do not fit the frame.
func Complete(f []byte, b *pmd.Buf) bool {
	l3, l4 := int(b.L2Len), int(b.L2Len)+int(b.L3Len)
	if b.Flags&pmd.TxIPCsum != 0 && !completeIP(f, l3, l4) {
		return false
	}
	if b.Flags&pmd.TxTCPCsum != 0 {
		if l3 < 14 || b.L3Len < 20 || l4+20 > len(f) {
			return false
		}
		// The field holds the pseudo-header's sum, which so becomes a part of it.
		t := f[l4:]
		binary.BigEndian.PutUint16(t[tcpCsumOffset:], ^sum(t))
	}
	return true
}

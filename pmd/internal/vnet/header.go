// Package vnet knows struct virtio_net_hdr, which packet sockets and tap devices put before each frame, and cuts the super-frames
// that it announces (generic segmentation offload) into the frames that a wire would have carried.
package vnet

import (
	"encoding/binary"
	"math/bits"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// HeaderLen is the length of a Header in memory.
const HeaderLen = 10

// MaxFrame is the longest super-frame that is accepted: an IP packet of 64 KiB, an Ethernet header and two VLAN tags.
const MaxFrame = 65535 + 14 + 8

// Values of Header.Flags and Header.GSOType (virtio 1.2, 5.1.6).
const (
	NeedsCsum uint8 = 1 // the checksum at CsumStart+CsumOffset is not completed
	DataValid uint8 = 2 // the checksum was verified

	GSONone  uint8 = 0
	GSOTCPv4 uint8 = 1
	GSOTCPv6 uint8 = 4
	GSOECN   uint8 = 0x80 // added to the type: CWR is set
)

// Header is a struct virtio_net_hdr.
type Header struct {
	Flags, GSOType        uint8
	HdrLen                uint16
	GSOSize               uint16 // TCP payload bytes per segment
	CsumStart, CsumOffset uint16
}

// Parse reads a header from the first HeaderLen bytes of p, in the processor's byte order as the kernel's legacy interfaces have it.
func Parse(p []byte) Header {
	_ = p[HeaderLen-1]
	e := binary.NativeEndian
	return Header{
		Flags: p[0], GSOType: p[1], HdrLen: e.Uint16(p[2:]), GSOSize: e.Uint16(p[4:]),
		CsumStart: e.Uint16(p[6:]), CsumOffset: e.Uint16(p[8:]),
	}
}

// Put writes h to the first HeaderLen bytes of p.
func (h Header) Put(p []byte) {
	_ = p[HeaderLen-1]
	e := binary.NativeEndian
	p[0], p[1] = h.Flags, h.GSOType
	e.PutUint16(p[2:], h.HdrLen)
	e.PutUint16(p[4:], h.GSOSize)
	e.PutUint16(p[6:], h.CsumStart)
	e.PutUint16(p[8:], h.CsumOffset)
}

// tcpCsumOffset is the offset of the checksum in a TCP header.
const tcpCsumOffset = 16

// completeIP computes the checksum of the IPv4 header f[l3:l4]. It reports false if there is none.
func completeIP(f []byte, l3, l4 int) bool {
	if l4-l3 < 20 || l4 > len(f) {
		return false
	}
	ip := f[l3:l4]
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
	return true
}

// Transmit prepares a frame for a device that reads a Header: it writes hdr, completes the IPv4 header checksum where b asks for it
// (a Header cannot), and has the device complete the TCP checksum, and cut the frame if it is large. frame is b's frame, or the copy that
// is sent; of a large one, its first buffer. It reports false if the lengths in b do not fit the frame.
func Transmit(hdr, frame []byte, b *pmd.Buf) bool {
	var h Header
	if b.Flags&(pmd.TxIPCsum|pmd.TxTCPCsum) != 0 {
		l3, l4 := int(b.L2Len), int(b.L2Len)+int(b.L3Len)
		if b.Flags&pmd.TxIPCsum != 0 && !completeIP(frame, l3, l4) {
			return false
		}
		if b.Flags&pmd.TxTCPCsum != 0 {
			if b.L2Len < 14 || b.L3Len < 20 || l4+20 > len(frame) {
				return false
			}
			h = Header{Flags: NeedsCsum, CsumStart: uint16(l4), CsumOffset: tcpCsumOffset}
		}
	}
	h.HdrLen = uint16(len(frame)) // the kernel copies it in one piece: see package afpacket on copies
	if b.SegSize != 0 && !h.large(frame, b) {
		return false
	}
	h.Put(hdr)
	return true
}

// large has the device cut the frame.
func (h *Header) large(frame []byte, b *pmd.Buf) bool {
	head := b.HeaderLen()
	if h.Flags&NeedsCsum == 0 || b.L4Len < 20 || head > len(frame) {
		return false
	}
	h.GSOType, h.GSOSize, h.HdrLen = GSOTCPv4, b.SegSize, uint16(head)
	if frame[b.L2Len]>>4 == 6 {
		h.GSOType = GSOTCPv6
	}
	if frame[h.CsumStart+13]&flagCWR != 0 {
		h.GSOType |= GSOECN
	}
	return true
}

// sum is the Internet checksum of p (RFC 1071), not complemented.
func sum(p []byte) uint16 {
	var s, c uint64
	for ; len(p) >= 8; p = p[8:] {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(p), c)
	}
	var rest [8]byte
	copy(rest[:], p)
	s, c = bits.Add64(s, binary.BigEndian.Uint64(rest[:]), c)
	s, c = bits.Add64(s, c, 0)
	s += c
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

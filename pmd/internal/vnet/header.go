// Package vnet knows struct virtio_net_hdr, which packet sockets and tap devices put before each frame, and cuts the super-frames
// that it announces (generic segmentation offload) into the frames that a wire would have carried.
package vnet

import (
	"encoding/binary"

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

// Transmit prepares a frame for a device that reads a Header: it writes hdr, completes the IPv4 header checksum where b asks for it
// (a Header cannot), and has the device complete the TCP checksum. frame is b's frame, or the copy that is sent. It reports false if
// the lengths in b do not fit the frame.
func Transmit(hdr, frame []byte, b *pmd.Buf) bool {
	var h Header
	if b.Flags&(pmd.TxIPCsum|pmd.TxTCPCsum) != 0 {
		l3, l4 := int(b.L2Len), int(b.L2Len)+int(b.L3Len)
		if b.Flags&pmd.TxIPCsum != 0 {
			if b.L3Len < 20 || l4 > len(frame) {
				return false
			}
			ip := frame[l3:l4]
			ip[10], ip[11] = 0, 0
			binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
		}
		if b.Flags&pmd.TxTCPCsum != 0 {
			if b.L2Len < 14 || b.L3Len < 20 || l4+20 > len(frame) {
				return false
			}
			h = Header{Flags: NeedsCsum, CsumStart: uint16(l4), CsumOffset: tcpCsumOffset}
		}
	}
	h.HdrLen = uint16(len(frame)) // the kernel copies it in one piece: see package afpacket on copies
	h.Put(hdr)
	return true
}

// sum is the Internet checksum of p (RFC 1071), not complemented.
func sum(p []byte) uint16 {
	var s uint32
	for ; len(p) >= 2; p = p[2:] {
		s += uint32(binary.BigEndian.Uint16(p))
	}
	if len(p) == 1 {
		s += uint32(p[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

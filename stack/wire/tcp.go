package wire

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Flags of a TCP segment. AE is RFC 9768's, the NS bit of old.
const (
	FIN uint16 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
	AE
)

// TCPChecksum is the offset of the checksum in the TCP header.
const TCPChecksum = 16

// TCP is a parsed segment.
type TCP struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            uint16
	Window, Urgent   uint16 // Window as on the wire, unscaled
	Opts, Payload    []byte
}

// SeqLen is how many sequence numbers the segment takes (SEG.LEN of RFC 9293, 3.4).
func (t *TCP) SeqLen() uint32 {
	n := uint32(len(t.Payload))
	if t.Flags&SYN != 0 {
		n++
	}
	if t.Flags&FIN != 0 {
		n++
	}
	return n
}

// ParseTCP parses p.Payload. csumDone says that the port verified the TCP checksum. t is undefined unless it returns DropNone.
func ParseTCP(p *Packet, t *TCP, csumDone bool) Drop {
	b := p.Payload
	if len(b) < TCPLen {
		return DropTCPShort
	}
	hdr := int(b[12]>>4) * 4
	if hdr < TCPLen || hdr > len(b) {
		return DropTCPOffset
	}
	if !csumDone && Fold(Sum(b, PseudoSum(p.Src, p.Dst, ProtoTCP, len(b)))) != 0 {
		return DropTCPChecksum // RFC 9293, MUST-3
	}
	t.SrcPort, t.DstPort = binary.BigEndian.Uint16(b[0:]), binary.BigEndian.Uint16(b[2:])
	t.Seq, t.Ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	t.Flags = binary.BigEndian.Uint16(b[12:]) & 0x1ff
	t.Window, t.Urgent = binary.BigEndian.Uint16(b[14:]), binary.BigEndian.Uint16(b[18:])
	t.Opts, t.Payload = b[TCPLen:hdr:hdr], b[hdr:]
	return DropNone
}

// PutTCP writes t's fixed header to b[:20], for a header of hdrLen bytes with its options, a multiple of 4. The checksum is 0
// and t.Opts and t.Payload are not looked at.
func PutTCP(b []byte, t *TCP, hdrLen int) {
	_ = b[TCPLen-1]
	binary.BigEndian.PutUint32(b[0:], uint32(t.SrcPort)<<16|uint32(t.DstPort))
	binary.BigEndian.PutUint32(b[4:], t.Seq)
	binary.BigEndian.PutUint32(b[8:], t.Ack)
	binary.BigEndian.PutUint32(b[12:], uint32(hdrLen/4)<<28|uint32(t.Flags&0x1ff)<<16|uint32(t.Window))
	binary.BigEndian.PutUint32(b[16:], uint32(t.Urgent))
}

// Bits of Options.Set.
const (
	OptMSS uint8 = 1 << iota
	OptWScale
	OptSACKPerm
	OptTS
	OptSACK
)

// MaxWScale is the largest shift count; larger ones count as this (RFC 7323, 2.3).
const MaxWScale = 14

// Options are the TCP options that we know. A field counts only if its bit is in Set.
type Options struct {
	Set           uint8
	WScale, NSack uint8
	MSS           uint16
	TSVal, TSEcr  uint32
	Sack          [4]seq.Range // the first NSack
}

// Kinds and lengths of options.
const (
	kindEOL      = 0
	kindNOP      = 1
	kindMSS      = 2
	kindWScale   = 3
	kindSACKPerm = 4
	kindSACK     = 5
	kindTS       = 8
)

// tsAligned is how nearly every segment's options begin: NOP, NOP, timestamps (RFC 7323, appendix A).
const tsAligned = kindNOP<<24 | kindNOP<<16 | kindTS<<8 | 10

// ParseOptions parses the options of a segment. Unknown options, and known ones with a wrong length, are skipped by their
// length. It returns false at an option whose length is 0 or 1 or reaches past the end; what was parsed before it stays
// (RFC 9293, 3.1 and MUST-7).
func ParseOptions(b []byte, o *Options) bool {
	o.Set, o.NSack = 0, 0
	if len(b) >= 12 && binary.BigEndian.Uint32(b) == tsAligned {
		o.Set = OptTS
		o.TSVal, o.TSEcr = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		if len(b) == 12 {
			return true
		}
		b = b[12:]
	}
	for len(b) > 0 {
		switch b[0] {
		case kindEOL:
			return true
		case kindNOP:
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return false
		}
		n := int(b[1])
		o.parse(b[:n])
		b = b[n:]
	}
	return true
}

// parse takes one option, b[1] of whose bytes are there.
func (o *Options) parse(b []byte) {
	switch {
	case b[0] == kindMSS && len(b) == 4:
		o.Set |= OptMSS
		o.MSS = binary.BigEndian.Uint16(b[2:])
	case b[0] == kindWScale && len(b) == 3:
		o.Set |= OptWScale
		o.WScale = min(b[2], MaxWScale)
	case b[0] == kindSACKPerm && len(b) == 2:
		o.Set |= OptSACKPerm
	case b[0] == kindTS && len(b) == 10:
		o.Set |= OptTS
		o.TSVal, o.TSEcr = binary.BigEndian.Uint32(b[2:]), binary.BigEndian.Uint32(b[6:])
	case b[0] == kindSACK && len(b) >= 10 && len(b)%8 == 2:
		o.Set |= OptSACK
		o.NSack = 0
		for b = b[2:]; len(b) >= 8 && int(o.NSack) < len(o.Sack); b = b[8:] {
			o.Sack[o.NSack] = seq.Range{Start: binary.BigEndian.Uint32(b), End: binary.BigEndian.Uint32(b[4:])}
			o.NSack++
		}
	}
}

// The Put functions for options append to b; with enough capacity they allocate nothing. Each writes a multiple of 4 bytes.

// PutMSS appends the MSS option, 4 bytes.
func PutMSS(b []byte, mss uint16) []byte { return append(b, kindMSS, 4, byte(mss>>8), byte(mss)) }

// PutWScale appends NOP and the window scale option, 4 bytes.
func PutWScale(b []byte, shift uint8) []byte { return append(b, kindNOP, kindWScale, 3, shift) }

// PutSACKPerm appends two NOPs and SACK-permitted, 4 bytes.
func PutSACKPerm(b []byte) []byte { return append(b, kindNOP, kindNOP, kindSACKPerm, 2) }

// PutTS appends two NOPs and timestamps, 12 bytes.
func PutTS(b []byte, val, ecr uint32) []byte {
	b = append(b, kindNOP, kindNOP, kindTS, 10)
	b = binary.BigEndian.AppendUint32(b, val)
	return binary.BigEndian.AppendUint32(b, ecr)
}

// PutSACK appends two NOPs and the blocks, 4+8n bytes. Nothing is appended without blocks.
func PutSACK(b []byte, blocks []seq.Range) []byte {
	if len(blocks) == 0 {
		return b
	}
	b = append(b, kindNOP, kindNOP, kindSACK, byte(2+8*len(blocks)))
	for _, r := range blocks {
		b = binary.BigEndian.AppendUint32(b, r.Start)
		b = binary.BigEndian.AppendUint32(b, r.End)
	}
	return b
}

// PutOptions appends all that is in o.Set, in the shortest aligned form: at most 20 bytes for the options of a SYN. SACK
// blocks must fit beside the rest: 4, or 3 with timestamps (RFC 2018, 3).
func PutOptions(b []byte, o *Options) []byte {
	if o.Set&OptMSS != 0 {
		b = PutMSS(b, o.MSS)
	}
	start := len(b)
	if o.Set&OptTS != 0 {
		b = PutTS(b, o.TSVal, o.TSEcr)
		if o.Set&OptSACKPerm != 0 { // in place of the NOPs
			b[start], b[start+1] = kindSACKPerm, 2
		}
	} else if o.Set&OptSACKPerm != 0 {
		b = PutSACKPerm(b)
	}
	if o.Set&OptWScale != 0 {
		b = PutWScale(b, o.WScale)
	}
	if o.Set&OptSACK != 0 {
		b = PutSACK(b, o.Sack[:o.NSack])
	}
	return b
}

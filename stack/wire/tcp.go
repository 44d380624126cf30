package wire

import (
	"encoding/binary"
	"math/bits"

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
	OptAccECN
	OptFastOpen
	OptUserTimeout
)

// MaxWScale is the largest shift count; larger ones count as this (RFC 7323, 2.3).
const MaxWScale = 14

// Options are the TCP options that we know. A field counts only if its bit is in Set.
type Options struct {
	Set           uint8
	WScale, NSack uint8
	MSS           uint16
	UserTimeout   uint16 // see UserTimeoutOf
	TSVal, TSEcr  uint32
	Sack          [4]seq.Range // the first NSack
	// ECNBytes are the counters of an AccECN option by IP-ECN codepoint, modulo 2^24; bit c of ECNSet says whether codepoint c is there.
	ECNBytes [4]uint32
	ECNSet   uint8
	Cookie   [MaxCookie]byte // of TCP Fast Open, the first NCookie; none: the peer asks for one
	NCookie  uint8
}

// Kinds and lengths of options. The first three are those that every implementation knows (RFC 9293, MUST-4).
const (
	kindEOL      = 0
	kindNOP      = 1
	kindMSS      = 2
	kindWScale   = 3
	kindSACKPerm = 4
	kindSACK     = 5
	kindTS       = 8
	kindTimeout  = 28
	kindFastOpen = 34
	kindAccECN0  = 172
	kindAccECN1  = 174
)

// tsAligned is how nearly every segment's options begin: NOP, NOP, timestamps (RFC 7323, appendix A).
const tsAligned = kindNOP<<24 | kindNOP<<16 | kindTS<<8 | 10

// ParseOptions parses the options of a segment, wherever they begin (RFC 9293, MUST-64). Unknown options, and known ones with a wrong
// length, are skipped by their length (MUST-6). It returns false at an option whose length is 0 or 1 or reaches past the end; what was parsed before it stays
// (RFC 9293, 3.1 and MUST-7).
func ParseOptions(b []byte, o *Options) bool {
	o.Set, o.NSack, o.ECNSet, o.NCookie = 0, 0, 0, 0
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
	case b[0] == kindTimeout && len(b) == UserTimeoutLen:
		o.Set |= OptUserTimeout
		o.UserTimeout = binary.BigEndian.Uint16(b[2:])
	case b[0] == kindFastOpen && (len(b) == 2 || len(b) >= 2+MinCookie && len(b) <= 2+MaxCookie && len(b)%2 == 0):
		o.Set |= OptFastOpen // RFC 7413, 4.1.1
		o.NCookie = uint8(copy(o.Cookie[:], b[2:]))
	case (b[0] == kindAccECN0 || b[0] == kindAccECN1) && len(b) <= 11 && len(b)%3 == 2:
		o.Set |= OptAccECN // RFC 9768, 3.2.3
		o.ECNSet = 0
		for i := 0; 2+3*i < len(b); i++ {
			c := accECNOrder[(b[0]-kindAccECN0)/2][i]
			o.ECNBytes[c] = binary.BigEndian.Uint32(b[1+3*i:]) & 0xffffff
			o.ECNSet |= 1 << c
		}
	}
}

// Codepoints of the IP-ECN field (RFC 3168, 5).
const (
	NotECT = 0
	ECT1   = 1
	ECT0   = 2
	CE     = 3
)

// accECNOrder is the order of the counters in AccECN options of kind 172 and 174 (RFC 9768, table 5).
var accECNOrder = [2][3]uint8{{ECT0, CE, ECT1}, {ECT1, CE, ECT0}}

// MinCookie and MaxCookie bound the length of a Fast Open cookie (RFC 7413, 4.1.1).
const (
	MinCookie = 4
	MaxCookie = 16
)

// The Put functions for options write a length with each (RFC 9293, MUST-68). They append to b; with enough capacity they allocate nothing. Each writes a multiple of 4 bytes.

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

// AccECNLen is the length of an AccECN option with n counters and its padding.
func AccECNLen(n int) int { return (2 + 3*n + 3) &^ 3 }

// PutAccECN appends an AccECN option with the first n of the counters in order 0 (ECT(0), CE, ECT(1)) or 1 (ECT(1), CE, ECT(0)), and
// NOPs behind it: 4, 8, 8 or 12 bytes.
func PutAccECN(b []byte, order uint8, n int, bytes *[4]uint32) []byte {
	b = append(b, kindAccECN0+2*order, byte(2+3*n))
	for _, c := range accECNOrder[order][:n] {
		v := bytes[c]
		b = append(b, byte(v>>16), byte(v>>8), byte(v))
	}
	return pad(b)
}

// PutFastOpen appends a Fast Open option, which asks for a cookie if cookie is empty, and NOPs behind it.
func PutFastOpen(b, cookie []byte) []byte {
	b = append(b, kindFastOpen, byte(2+len(cookie)))
	return pad(append(b, cookie...))
}

// pad pads without an end of options, behind which only zeros could be (RFC 9293, MUST-69).
func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, kindNOP)
	}
	return b
}

// putAccECNSet appends an AccECN option with the counters in o.ECNSet: in order 1, as Linux, or if that does not fit the set in order 0.
func putAccECNSet(b []byte, o *Options) []byte {
	order := uint8(1)
	if o.ECNSet&(1<<ECT1) == 0 {
		order = 0
	}
	return PutAccECN(b, order, bits.OnesCount8(o.ECNSet), &o.ECNBytes)
}

// PutOptions appends all that is in o.Set, in the order of Linux and in the shortest aligned form: at most 20 bytes for the options of a SYN without those of
// Fast Open, AccECN and the user timeout. SACK blocks must fit beside the rest: 4, or 3 with timestamps (RFC 2018, 3).
// ECNSet must be the first counters of one of the two orders.
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
	}
	if o.Set&OptAccECN != 0 {
		b = putAccECNSet(b, o)
	}
	if o.Set&(OptTS|OptSACKPerm) == OptSACKPerm {
		b = PutSACKPerm(b)
	}
	if o.Set&OptWScale != 0 {
		b = PutWScale(b, o.WScale)
	}
	if o.Set&OptUserTimeout != 0 {
		b = PutUserTimeout(b, o.UserTimeout)
	}
	if o.Set&OptFastOpen != 0 {
		b = PutFastOpen(b, o.Cookie[:o.NCookie])
	}
	if o.Set&OptSACK != 0 {
		b = PutSACK(b, o.Sack[:o.NSack])
	}
	return b
}

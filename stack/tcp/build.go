package tcp

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

const (
	tcpAt4 = wire.EthLen + wire.IPv4Len // offset of the TCP header
	tcpAt6 = wire.EthLen + wire.IPv6Len
	maxHdr = tcpAt6 + wire.TCPLen // length of the longest header template
	tsLen  = 12                   // timestamps with their padding
	// maxSACKLen is the length of the largest SACK option that we send.
	maxSACKLen = 36
)

// header is what all segments of a flow share: a template and its sums. Engines keep those of the flows that sent lately, so that
// an idle flow costs no memory for it.
type header struct {
	flow   plugins.Flow
	ipSum  uint16 // of the template, folded
	tcpSum uint16 // of the template and the pseudo-header, folded
	tcpAt  uint8  // offset of the TCP header: tcpAt4 or tcpAt6
	b      [maxHdr]byte
}

// numHeaders is how many headers an engine keeps; a flow's place is given by its slot.
const numHeaders = 256

// prepareHeader makes sure that the flow's header is there, with the present link address of the next hop. emit needs it.
func (e *Engine) prepareHeader(c *Conn) bool {
	mac, ok := e.env.Link.Resolve(&c.neigh, c.Tuple.Remote)
	if !ok {
		return false
	}
	h := &e.headers[c.slot%numHeaders]
	if h.flow == c.flow() && mac == wire.MAC(h.b[:6]) && h.tcpSum|h.ipSum != 0 {
		return true
	}
	at := e.template(&h.b, &c.Tuple, mac, c.Tuned())
	h.flow, h.tcpAt = c.flow(), uint8(at)
	h.ipSum = reduce(wire.Sum(h.b[wire.EthLen:at], 0))
	h.tcpSum = reduce(wire.Sum(h.b[at:at+wire.TCPLen], wire.PseudoSum(c.Tuple.Local, c.Tuple.Remote, wire.ProtoTCP, 0)))
	return true
}

// template writes the headers that all segments of a flow share, and returns the offset of the TCP header; lengths, ID, checksums,
// numbers, flags and window are 0. They come from the connection's own address (RFC 9293, MUST-45), with the TTL and the DiffServ field
// that the application has set (MUST-48, MUST-49).
func (e *Engine) template(h *[maxHdr]byte, k *Tuple, mac wire.MAC, set *Tuning) (at int) {
	if k.Remote.Is4() {
		at = tcpAt4
		wire.PutEthernet(h[:], mac, e.env.MAC, wire.EtherTypeIPv4)
		wire.PutIPv4(h[wire.EthLen:], k.Local, k.Remote, wire.ProtoTCP, set.diffServ(), set.ttl(), 0, 0)
		binary.BigEndian.PutUint16(h[wire.EthLen+10:], 0)
	} else {
		at = tcpAt6
		wire.PutEthernet(h[:], mac, e.env.MAC, wire.EtherTypeIPv6)
		wire.PutIPv6(h[wire.EthLen:], k.Local, k.Remote, wire.ProtoTCP, set.diffServ(), set.ttl(), e.flowLabel(k), 0)
	}
	wire.PutTCP(h[at:], &wire.TCP{SrcPort: k.LocalPort, DstPort: k.RemotePort}, wire.TCPLen)
	binary.BigEndian.PutUint16(h[at+12:], 0)
	return at
}

// flowLabel is the IPv6 flow label of a connection: a keyed hash of its tuple, never 0 (RFC 6437, 3).
func (e *Engine) flowLabel(k *Tuple) uint32 {
	a, b, c, d, w := k.words()
	return uint32(e.env.Keys.Timestamp.siphash(a, b, c, d, w, wire.ProtoTCP)%0xfffff) + 1
}

// reduce folds a sum to 16 bits, so that more can be added without overflow.
func reduce(s uint64) uint16 { return ^wire.Fold(s) }

// window is what the segment's window field says, and moves the right edge that the peer knows.
func (c *Conn) window() uint16 {
	w := (c.rcvAdv - c.rcvNxt) >> c.rcvScale
	return uint16(min(w, 0xffff))
}

// tsVal is the timestamp clock: one tick per millisecond with an offset per connection (RFC 7323, 5.4).
func (e *Engine) tsVal(c *Conn) uint32 { return tsTick(e.now) + c.tsOffset }

func tsTick(t plugins.Time) uint32 { return uint32(t / 1e6) }

// emit builds one segment of the connection and puts it into the FIFO. off is the stream offset of its n payload bytes. It
// returns false, having done nothing, if there is no buffer or no room.
func (e *Engine) emit(c *Conn, sq uint32, flags uint16, off uint64, n uint32) bool {
	if e.env.Fifo.Room() == 0 {
		e.Stats.TxFull++
		return false
	}
	b := e.env.Pool.Get()
	if b == nil {
		e.Stats.NoBuffers++
		return false
	}
	var opt [40]byte
	opts := opt[:0]
	optSum := uint64(0)
	if c.tsOK {
		val := e.tsVal(c)
		opts = wire.PutTS(opts, val, c.tsRecent)
		optSum = tsWord + uint64(val) + uint64(c.tsRecent)
	}
	plain := len(opts)
	acks := flags&wire.ACK != 0
	var sack []byte
	if acks && c.hasSACK() {
		// The blocks must not make a segment longer than the path allows (RFC 9293, 3.7.1: options count against the data).
		if acks = n+maxSACKLen <= c.mss; acks || n == 0 {
			var b [maxSACKLen]byte
			sack, acks = e.sackOptions(c, b[:0]), true
		}
	}
	tos := uint8(0)
	if c.x != nil && c.x.ecn != nil {
		flags, opts, sack, tos = c.ecnOutput(sq, flags, n, opts, sack)
	}
	if len(sack) > 0 {
		opts = append(opts, sack...)
	}
	if c.x != nil {
		if u := c.x.timeout; u != nil && u.due {
			opts = u.output(c, n, opts)
		}
	}
	if len(opts) != plain {
		optSum = wire.Sum(opts, 0)
	}
	tcpLen := wire.TCPLen + len(opts) + int(n)
	t := &e.headers[c.slot%numHeaders]
	at := int(t.tcpAt)
	b.SetLen(at + tcpLen)
	f := b.Bytes()
	if at == tcpAt4 {
		*(*[tcpAt4 + wire.TCPLen]byte)(f) = *(*[tcpAt4 + wire.TCPLen]byte)(t.b[:])
		if tos != 0 {
			f[wire.EthLen+1] |= tos
		}
		c.ipID++
		binary.BigEndian.PutUint32(f[wire.EthLen+2:], uint32(wire.IPv4Len+tcpLen)<<16|uint32(c.ipID))
	} else {
		*(*[maxHdr]byte)(f) = t.b
		if tos != 0 {
			f[wire.EthLen+1] |= tos << 4
		}
		binary.BigEndian.PutUint16(f[wire.EthLen+4:], uint16(tcpLen))
	}
	h := f[at:]
	e.advertise(c)
	binary.BigEndian.PutUint32(h[4:], sq)
	binary.BigEndian.PutUint32(h[8:], c.rcvNxt)
	word := uint32((wire.TCPLen+len(opts))/4)<<28 | uint32(flags)<<16 | uint32(c.window())
	binary.BigEndian.PutUint32(h[12:], word)
	copy(h[wire.TCPLen:], opts)
	// From registers: to read what was just written, in other sizes, would wait for the stores.
	own := uint64(sq) + uint64(c.rcvNxt) + uint64(word) + optSum
	e.finish(c, t, b, f, h, opts, own, tos, off, n)
	e.env.Fifo.Push(b)
	e.sentSegment(c, acks, n)
	if len(sack) > 0 && c.ooo.Fresh() > 0 { // more has changed than one acknowledgement reports
		c.ackNow = true
	}
	return true
}

// tsWord is the first word of the timestamps option with its padding.
const tsWord = 0x0101080a

// finish copies the payload and completes the checksums in one pass, or leaves them to the port (RFC 9293, MUST-2). own is the sum of what
// this segment's TCP header has beside the template, tos what its IP header has.
func (e *Engine) finish(c *Conn, t *header, b *pmd.Buf, f, h, opts []byte, own uint64, tos uint8, off uint64, n uint32) {
	tcpLen := wire.TCPLen + len(opts) + int(n)
	sum := uint64(t.tcpSum) + uint64(tcpLen)
	data := h[wire.TCPLen+len(opts):]
	if e.env.Caps&pmd.TxCsum != 0 {
		e.copyPayload(c, data, off, n)
		b.Flags |= pmd.TxTCPCsum
		if t.tcpAt == tcpAt4 {
			b.Flags |= pmd.TxIPCsum
		}
		b.L2Len, b.L3Len, b.L4Len = wire.EthLen, t.tcpAt-wire.EthLen, uint8(wire.TCPLen+len(opts))
		binary.BigEndian.PutUint16(h[wire.TCPChecksum:], c.pseudo(t, tcpLen)) // the port adds everything else
		return
	}
	if t.tcpAt == tcpAt4 {
		binary.BigEndian.PutUint16(f[wire.EthLen+10:], wire.Fold(uint64(t.ipSum)+uint64(tos)+uint64(wire.IPv4Len+tcpLen)+uint64(c.ipID)))
	}
	sum += own
	if n > 0 {
		var p [4][]byte
		if c.snd.Slices(off, int(n), &p) == 1 {
			sum = wire.SumCopy(data, p[0], sum)
		} else {
			e.copyPayload(c, data, off, n)
			sum = wire.Sum(data, sum)
		}
	}
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], wire.Fold(sum))
}

// copyPayload copies n bytes from stream offset off on. One look at the stream yields four pieces, which may be small if memory was
// short when they were written.
func (e *Engine) copyPayload(c *Conn, dst []byte, off uint64, n uint32) {
	for dst = dst[:n]; len(dst) > 0; {
		var p [4][]byte
		pieces := c.snd.Slices(off, len(dst), &p)
		if pieces == 0 {
			panic("tcp: a segment of bytes that are not in the stream")
		}
		for _, s := range p[:pieces] {
			k := copy(dst, s)
			dst, off = dst[k:], off+uint64(k)
		}
	}
}

// sentSegment does the bookkeeping of any segment that left. acks says that it told the peer all there is to acknowledge.
func (e *Engine) sentSegment(c *Conn, acks bool, n uint32) {
	e.Stats.SegsOut++
	c.count.SegsOut++
	if n > 0 {
		e.Stats.BytesOut += uint64(n)
		c.count.DataSegsOut++
		c.lastSend = e.now
		if c.ackPend > 0 && e.now.Sub(c.lastData) < c.ato {
			c.pingpong = true // a reply within the delay: acknowledgements ride on data
		}
	}
	if acks {
		c.ackNow = false
		c.ackPend = 0
		c.lastAckSent = c.rcvNxt
		c.dsackLo, c.dsackHi = 0, 0
		if c.quickAcks > 0 {
			c.quickAcks--
		}
		c.stopTimer(timerDelAck)
	}
}

// hasSACK reports whether an acknowledgement has blocks to report.
func (c *Conn) hasSACK() bool {
	return c.sackOK && (c.dsackLo != c.dsackHi || c.ooo.Len() > 0 || c.finEarly())
}

// finEarly reports whether the peer's FIN has come, and something before it has not.
func (c *Conn) finEarly() bool { return c.finSeen && !c.finRcvd }

// sackRoom is how many changed ranges an acknowledgement reports for sure: as many blocks as fit beside the timestamps (RFC 2018, 3), and
// one less where an AccECN option may take the last one's place.
func (c *Conn) sackRoom() (n int) {
	n = 4
	if c.tsOK {
		n = 3
	}
	if c.x != nil && c.x.ecn != nil && c.x.ecn.options {
		n--
	}
	return n
}

// sackOptions appends the SACK option: a D-SACK first (RFC 2883, 4), then the most recent ranges (RFC 2018, 4).
func (e *Engine) sackOptions(c *Conn, opts []byte) []byte {
	var blocks [4]seq.Range
	room := 4
	if c.tsOK {
		room = 3
	}
	n := 0
	if c.dsackLo != c.dsackHi {
		blocks[n] = seq.Range{Start: c.dsackLo, End: c.dsackHi}
		n++
		e.Stats.DSACKsSent++
	}
	first := n
	n += c.ooo.Recent(blocks[n:room], c.sackRoom()-n, c.rcvNxt-uint32(c.rcvOff))
	if c.finEarly() { // the FIN's number is part of the sequence: a probe that repeats it is answered by a block
		joined := false
		for i := first; i < n && !joined; i++ {
			if joined = blocks[i].End == c.finSeq; joined {
				blocks[i].End++
			}
		}
		if !joined && n < room {
			blocks[n] = seq.Range{Start: c.finSeq, End: c.finSeq + 1}
			n++
		}
	}
	return wire.PutSACK(opts, blocks[:n])
}

// rcvSeq is the sequence number of stream offset off.
func (c *Conn) rcvSeq(off uint64) uint32 { return c.rcvNxt + uint32(off-c.rcvOff) }

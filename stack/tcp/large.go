package tcp

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Where the port has TSO, full segments that leave together are one large frame (pmd.Buf.Large): headers are made, the FIFO and the port's
// ring are gone through, once for all of them. What is sent, and what the log and the modules are told, is the same as without.

// largeBacklog is how many buffers large frames may have in the FIFO behind their first ones, so that what waits there stays a few pieces.
const largeBacklog = 256

// largeSegs is how many full segments of c fit a large frame; 0 if they have to leave one by one.
func (e *Engine) largeSegs(c *Conn) uint32 {
	if e.env.MaxTSO == 0 || e.env.Caps&(pmd.TSO|pmd.TxCsum) != pmd.TSO|pmd.TxCsum {
		return 0
	}
	if n := uint32(min(e.env.MaxTSO, maxBurst)) / c.mss; n > 1 && (c.x == nil || c.x.ecn == nil || !c.x.ecn.sendsCWR()) {
		return n
	}
	return 0
}

// sendsCWR reports whether the next data segment has the flag CWR. Not all ports leave it to the first frame of a large one
// (virtio 1.2, 5.1.6.2.1: only with VIRTIO_NET_F_HOST_ECN), and with AccECN all segments have to say the same (RFC 9768, 3.2.2).
func (x *ecnState) sendsCWR() bool {
	if x.mode == ecnClassic {
		return x.cwr
	}
	return (aceStart+x.rCE)<<aceShift&uint32(wire.CWR) != 0
}

// emitLarge puts n bytes of payload from stream offset off, several full segments and perhaps a last one that is not, into the FIFO as one
// frame. FIN and PSH of flags are the last segment's. If there are too few buffers it is less, in full segments and without these flags.
// It returns how many bytes; 0 if not even two segments fit, or if there is no room.
func (e *Engine) emitLarge(c *Conn, sq uint32, flags uint16, off uint64, n uint32) uint32 {
	if e.env.Fifo.Room() == 0 || e.env.Fifo.Extra() >= largeBacklog {
		e.Stats.TxFull++
		return 0
	}
	var opt [tsLen]byte
	opts := opt[:0]
	if c.tsOK {
		opts = wire.PutTS(opts, e.tsVal(c), c.tsRecent)
	}
	t := &e.headers[c.slot%numHeaders]
	at := int(t.tcpAt)
	head := at + wire.TCPLen + len(opts)
	b, k := e.largeBuf(head, n, c.mss)
	if k < n {
		if n = k; n == 0 {
			return 0
		}
		flags &^= wire.FIN | wire.PSH
	}
	tos := uint8(0)
	if c.x != nil && c.x.ecn != nil {
		flags, opts, _, tos = c.ecnOutput(sq, flags, c.mss, opts, nil)
	}
	segs := (n + c.mss - 1) / c.mss
	e.largeHeader(c, b, sq, flags, opts, tos, n)
	c.ipID += uint16(segs) // each has its own
	e.copyLarge(c, b, head, off, n)
	e.env.Fifo.Push(b)
	e.sentSegment(c, !c.hasSACK(), n)
	e.Stats.SegsOut += uint64(segs - 1)
	e.Stats.LargeFrames++
	c.count.SegsOut += uint64(segs - 1)
	c.count.DataSegsOut += uint64(segs - 1)
	return n
}

// largeBuf takes buffers for head bytes of headers and n of payload, or for as many whole segments as there are buffers for. It returns the
// first, and the payload that fits; 0 if that is not more than one segment.
func (e *Engine) largeBuf(head int, n, mss uint32) (b *pmd.Buf, fits uint32) {
	pool := e.env.Pool
	size := len(pool.At(0).Mem())
	first := max(size-pmd.Headroom-head, 0)
	parts := 1 + (max(int(n)-first, 0)+size-1)/size
	b, got := pool.Chain(parts)
	if got == parts {
		return b, n
	}
	e.Stats.NoBuffers++
	if got == 0 {
		return nil, 0
	}
	if fits = uint32(first+(got-1)*size) / mss * mss; fits <= mss {
		pool.Put(b)
		return nil, 0
	}
	return b, fits
}

// largeHeader writes the headers of a large frame, which speak of all of it.
func (e *Engine) largeHeader(c *Conn, b *pmd.Buf, sq uint32, flags uint16, opts []byte, tos uint8, n uint32) {
	t := &e.headers[c.slot%numHeaders]
	at := int(t.tcpAt)
	tcpLen := wire.TCPLen + len(opts) + int(n)
	b.SetLen(at + wire.TCPLen + len(opts))
	f := b.Bytes()
	copy(f, t.b[:at+wire.TCPLen])
	b.Flags |= pmd.TxTCPCsum
	if at == tcpAt4 {
		b.Flags |= pmd.TxIPCsum
		f[wire.EthLen+1] |= tos
		binary.BigEndian.PutUint32(f[wire.EthLen+2:], uint32(wire.IPv4Len+tcpLen)<<16|uint32(c.ipID+1))
	} else {
		f[wire.EthLen+1] |= tos << 4
		binary.BigEndian.PutUint16(f[wire.EthLen+4:], uint16(tcpLen))
	}
	e.advertise(c)
	h := f[at:]
	binary.BigEndian.PutUint32(h[4:], sq)
	binary.BigEndian.PutUint32(h[8:], c.rcvNxt)
	binary.BigEndian.PutUint32(h[12:], uint32((wire.TCPLen+len(opts))/4)<<28|uint32(flags)<<16|uint32(c.window()))
	copy(h[wire.TCPLen:], opts)
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], c.pseudo(t, tcpLen))
	b.SegSize = uint16(c.mss)
	b.L2Len, b.L3Len, b.L4Len = wire.EthLen, t.tcpAt-wire.EthLen, uint8(wire.TCPLen+len(opts))
}

// copyLarge copies the payload behind the headers, into all buffers.
func (e *Engine) copyLarge(c *Conn, b *pmd.Buf, head int, off uint64, n uint32) {
	for at := head; ; at = 0 {
		k := min(n, uint32(b.Cap()-at))
		b.SetLen(at + int(k))
		e.copyPayload(c, b.Bytes()[at:], off, k)
		if off, n = off+uint64(k), n-k; n == 0 {
			return
		}
		b = b.More
	}
}

// pseudo is the pseudo-header's sum, which the checksum field holds of a segment of n bytes whose checksum the port completes.
func (c *Conn) pseudo(t *header, n int) uint16 {
	ports := uint64(c.Tuple.LocalPort) + uint64(c.Tuple.RemotePort)
	return ^wire.Fold(uint64(t.tcpSum) + uint64(n) + 2*0xffff - uint64(reduce(ports)))
}

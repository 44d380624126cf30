package tcp

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// run is the flow of the segment before, within one burst: what follows it there in order is taken as part of it.
type run struct {
	c     *Conn
	n     int  // segments that were taken so
	never bool // for measurements
}

// coalesce takes a segment that does nothing but continue the one before it, in the same burst (as generic receive offload does): its
// bytes go to their place in the stream, and everything that the first one has settled for the connection (window, acknowledgement,
// timestamps, timers, the decision to acknowledge) is not looked at again. It returns false if there is more to the segment.
//
// The order of segments stays: one is either taken at once, or processed at once.
func (e *Engine) coalesce(c *Conn, t *wire.TCP) bool {
	n := uint32(len(t.Payload))
	if t.Flags&^wire.PSH != wire.ACK || n == 0 || t.Seq != c.rcvNxt || t.Ack != c.sndUna || uint32(t.Window)<<c.sndScale != c.sndWnd ||
		c.state != Established || c.finSeen || c.orphan || n > c.rcvAdv-c.rcvNxt || c.ooo.Len() > 0 || !seq.After(t.Seq, c.lastAckSent) ||
		c.x != nil && !c.x.plainSegment(e.ipECN) || !c.sameOptions(t.Opts) {
		return false
	}
	c.sndWl1 = t.Seq
	c.count.SegsIn++
	c.count.DataSegsIn++
	e.Stats.BytesIn += uint64(n)
	e.Stats.Coalesced++
	if e.run.n == 0 {
		e.Stats.CoalescedBatches++
	}
	e.run.n++
	var o wire.Options // all that measureRTT looks at
	if c.tsOK {
		o.Set, o.TSEcr = wire.OptTS, binary.BigEndian.Uint32(t.Opts[8:])
	}
	e.measureRTT(c, t, &o)
	e.inOrder(c, t.Payload, t.Flags&wire.PSH != 0)
	return true
}

// sameOptions reports whether a segment has timestamps that are not older than the last, in the usual place, if the connection has
// any, and nothing else. TS.Recent stays: the segment does not cover the last acknowledgement sent (RFC 7323, 4.3).
func (c *Conn) sameOptions(b []byte) bool {
	if !c.tsOK {
		return len(b) == 0
	}
	return len(b) == tsLen && binary.BigEndian.Uint32(b) == 0x0101080a && int32(binary.BigEndian.Uint32(b[4:])-c.tsRecent) >= 0
}

// plainSegment reports whether a segment with this IP-ECN field is nothing special to a connection with ECN or Fast Open: AccECN counts
// segments, and a mark is echoed.
func (x *extra) plainSegment(ipECN uint8) bool {
	if x.fo != nil && x.fo.pending {
		return false
	}
	return x.ecn == nil || x.ecn.mode == ecnClassic && ipECN != wire.CE
}

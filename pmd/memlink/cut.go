package memlink

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
)

// A port with TSO does what the hardware of a network card does: it cuts large frames, into buffers of its own, and completes checksums.

// sendCutting sends frames one by one.
func (q *queue) sendCutting(tx []*pmd.Buf, now plugins.Time) (n int) {
	for _, b := range tx[:min(len(tx), q.port.link.cfg.Ring)] {
		switch {
		case b.Large():
			if !q.sendLarge(b, now) {
				return n
			}
		case !q.finish(b):
			q.refuse(b)
		default:
			if q.sendWire(tx[n:n+1], now, false) == 0 {
				return n
			}
		}
		n++
	}
	return n
}

// sendWire sends frames as they are.
func (q *queue) sendWire(tx []*pmd.Buf, now plugins.Time, one bool) int {
	switch {
	case q.outPath != nil:
		return q.sendPath(tx, now, one)
	case q.port.link.cfg.Steer != nil:
		return q.sendSteered(tx)
	}
	return q.sendRing(tx)
}

// finish completes checksums. It reports whether the frame can be sent.
func (q *queue) finish(b *pmd.Buf) bool {
	if b.Flags&(pmd.TxIPCsum|pmd.TxTCPCsum) == 0 {
		return true
	}
	if !vnet.Complete(b.Bytes(), b) {
		return false
	}
	b.Flags &^= pmd.TxIPCsum | pmd.TxTCPCsum
	return true
}

// refuse drops a frame that cannot be sent.
func (q *queue) refuse(b *pmd.Buf) {
	q.n.txErrors++
	q.stats.txErrors.Store(q.n.txErrors)
	q.drop(b)
}

// sendLarge sends what b is cut into, and reports whether it took b: there has to be room, and a buffer, for each.
func (q *queue) sendLarge(b *pmd.Buf, now plugins.Time) bool {
	cfg := &q.port.link.cfg
	k, _ := b.Wire()
	head := b.HeaderLen()
	if b.Size()-head > cfg.TSO || head+int(b.SegSize) > q.port.link.maxFrame || k > min(cfg.Ring, q.cuts.Len()) || q.cutter.Start(b) != nil {
		q.refuse(b)
		return true
	}
	if q.outPath == nil && q.TxRoom() < k || q.port.holds && q.outPath.keptBy(q, now) >= cfg.Ring {
		return false
	}
	if q.cuts.Free() < k {
		if q.cuts.Collect(); q.cuts.Free() < k {
			return false
		}
	}
	q.wire = q.wire[:0]
	for q.cutter.Pending() {
		f := q.cuts.Get()
		f.SetLen(q.cutter.Len())
		q.cutter.Next(f.Bytes())
		q.wire = append(q.wire, f)
	}
	q.cutter = vnet.Cutter{}
	q.drop(b)
	q.sendWire(q.wire, now, true)
	return true
}

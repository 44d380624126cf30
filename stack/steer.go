package stack

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// everyWorker is the answer of steering for frames that all workers need.
const everyWorker = -1

// thisWorker is the answer of steering for frames that any worker may process: datagrams, whose endpoints all workers know, and ICMP
// errors about them.
const thisWorker = -2

// steering decides which worker a frame belongs to: one table over one hash, whether the port or this code computes it. A flow's
// frames therefore reach one worker only, whichever queue they arrive on.
type steering struct {
	hash     *wire.Toeplitz
	table    []uint16 // worker of hash % len
	portHash bool     // the port's hash is ours: same key, over the 4-tuple
}

// indirection is the size of the table that we use where the port has none of its own.
const indirection = 128

// newSteering makes the table for n workers. Where the port steers by a hash that it tells, worker i owns queue i and the port's own
// table decides; else entries go round the workers.
func newSteering(info pmd.Info, queues, n int) (*steering, error) {
	if queues > n {
		return nil, fmt.Errorf("stack: port %s has %d queues and there are %d workers: nobody would poll the others", info.Name, queues, n)
	}
	key := wire.RSSKey
	s := &steering{}
	if info.Caps&pmd.RSSHash != 0 && len(info.RSSKey) > 0 && len(info.RSSTable) > 0 && queues == n {
		key, s.portHash = info.RSSKey, true
		s.table = info.RSSTable
	} else {
		s.table = make([]uint16, indirection)
		for i := range s.table {
			s.table[i] = uint16(i % n)
		}
	}
	var err error
	s.hash, err = wire.NewToeplitz(key)
	return s, err
}

func (s *steering) worker(h uint32) int { return int(s.table[h%uint32(len(s.table))]) }

// tuple is the worker that a connection's received segments come to: remote end first, as they arrive.
func (s *steering) tuple(k *tcp.Tuple) int {
	return s.worker(s.hash.Hash(k.Remote, k.Local, k.RemotePort, k.LocalPort))
}

// frame is the worker that a received frame belongs to, or everyWorker. An ICMP error goes where the segments of the flow that it
// quotes go.
func (s *steering) frame(b *pmd.Buf, p *wire.Packet) int {
	switch {
	case p.EtherType == wire.EtherTypeARP:
		return everyWorker
	case p.Frag: // no ports behind the first
	case p.Proto == wire.ProtoUDP:
		return thisWorker
	case p.Proto == wire.ProtoTCP && len(p.Payload) >= 4:
		// Behind extension headers ports may not find the TCP header.
		if s.portHash && b.Flags&pmd.RxHash != 0 && (p.Family == wire.IPv4 || p.L4 == wire.IPv6Len) {
			return s.worker(b.Hash)
		}
		l4 := p.Payload
		return s.worker(s.hash.Hash(p.Src, p.Dst, uint16(l4[0])<<8|uint16(l4[1]), uint16(l4[2])<<8|uint16(l4[3])))
	case p.Proto == wire.ProtoICMPv6 && len(p.Payload) >= wire.ICMPLen && isControl6(p.Payload[0]):
		return everyWorker
	case p.Proto == wire.ProtoICMP && len(p.Payload) > wire.ICMPLen && p.Payload[0] != wire.ICMPEcho,
		p.Proto == wire.ProtoICMPv6 && len(p.Payload) > wire.ICMPLen && p.Payload[0] < wire.ICMP6Echo:
		var q wire.Quote
		if wire.ParseQuote(p.Payload[4:], &q) && q.Proto == wire.ProtoTCP {
			return s.worker(s.hash.Hash(q.Dst, q.Src, q.DstPort, q.SrcPort))
		}
	}
	return s.worker(s.hash.HashAddrs(p.Src, p.Dst))
}

// isControl6 reports whether all workers need ICMPv6 messages of a type: neighbour discovery, MLD.
func isControl6(typ uint8) bool { return typ >= wire.ICMP6MLDQuery && typ <= wire.ICMP6Redirect }

// copyToOthers gives every other worker its own copy of a frame.
func (w *Worker) copyToOthers(b *pmd.Buf) {
	for i := range w.out {
		if i == w.index {
			continue
		}
		c := w.pool.Get()
		if c == nil {
			w.Stats.NoBuffers++
			return
		}
		if !c.Append(b.Bytes()) {
			w.pool.Put(c)
			return
		}
		c.Flags = b.Flags
		w.out[i].add(c)
	}
}

// exchange hands frames to the workers that they belong to, and takes what others handed to this one. It reports whether any came.
func (w *Worker) exchange() bool {
	for i := range w.out {
		if w.out[i].head != nil {
			other := w.stack.workers[i]
			other.inbox.push(w.out[i])
			w.out[i] = chain{}
			other.kicked()
		}
	}
	moved := false
	for b := w.inbox.take(); b != nil; {
		next := b.Next
		b.Next = nil
		moved = true
		w.Stats.Taken++
		var p wire.Packet
		if d := w.parse(b, &p); d != wire.DropNone {
			w.drop(b, d)
		} else {
			w.input(b, &p)
		}
		b = next
	}
	if w.queue != nil && w.takeTx() {
		moved = true
	}
	return moved
}

// takeTx moves frames of workers without a queue to the FIFO, as far as there is room; the rest waits. They are copied into
// this queue's own buffers unless the port takes those of any pool.
func (w *Worker) takeTx() (moved bool) {
	if w.txWait == nil {
		w.txWait = w.txbox.take()
	}
	for w.txWait != nil && w.fifo.Room() > 0 {
		b := w.txWait
		if !w.anyPool || w.stack.except != nil { // the exception path's buffers do not outlive it
			if b = w.ownCopy(b); b == nil {
				break
			}
		}
		next := w.txWait.Next
		if b != w.txWait {
			w.free(w.txWait)
		}
		w.txWait = next
		b.Next = nil
		w.fifo.Push(b)
		moved = true
	}
	return moved
}

func (w *Worker) ownCopy(b *pmd.Buf) *pmd.Buf {
	c := w.pool.Copy(b) // fits: pools of one stack have buffers of one size, and the exception path keeps to the MTU
	if c == nil {
		w.Stats.NoBuffers++
	}
	return c
}

// handOver gives the frames of this turn to the worker that owns the queue. What that has not taken yet bounds what may follow. It
// reports whether there were any.
func (w *Worker) handOver() bool {
	var c chain
	for w.fifo.Len() > 0 && w.owner.txbox.empty() {
		for _, b := range w.fifo.Front(fifoDepth) {
			c.add(b)
		}
		w.fifo.Drop(len(w.fifo.Front(fifoDepth)))
	}
	if c.head == nil {
		return false
	}
	w.owner.txbox.push(c)
	w.owner.kicked()
	return true
}

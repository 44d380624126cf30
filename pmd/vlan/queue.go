package vlan

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// batch is the number of frames that are received at once.
const batch = 64

// shared is a queue of the parent. One thread uses it.
type shared struct {
	below   pmd.Queue
	parker  pmd.Parker // below, if it is one
	parent  *parent
	subs    []*sub
	rx      [batch]*pmd.Buf
	foreign atomic.Uint64

	parks int // ports that are parked
	empty bool
}

// sub is the share of one port in a queue.
type sub struct {
	*shared
	port    *Port
	waiting *pmd.Fifo // received while others were polled
	stats   counters
}

// counters are written by the queue's owner and read by anyone.
type counters struct {
	rxFrames, rxBytes, rxDropped        atomic.Uint64
	txFrames, txBytes, txErrors, txFull atomic.Uint64
}

func newShared(t *parent, below pmd.Queue) *shared {
	q := &shared{below: below, parent: t}
	q.parker, _ = below.(pmd.Parker)
	return q
}

func (q *shared) queue(p *Port) pmd.Queue {
	s := &sub{shared: q, port: p, waiting: pmd.NewFifo(Waiting)}
	q.subs = append(q.subs, s)
	return s
}

var _ pmd.Parker = (*sub)(nil)

// Pool is the parent queue's.
func (s *sub) Pool() *pmd.Pool { return s.below.Pool() }

// TxRoom is the parent queue's.
func (s *sub) TxRoom() int { return s.below.TxRoom() }

// Uncompleted is the parent queue's: what other ports have sent counts too, so that a frame counts as sent too late, never too early.
func (s *sub) Uncompleted() int { return pmd.Uncompleted(s.below) }

// WakeFD is the parent queue's: it wakes for the frames of all ports.
func (s *sub) WakeFD() int { return s.below.WakeFD() }

// Park parks the parent's queue with the first of its ports.
func (s *sub) Park() bool {
	if s.parks == 0 {
		s.empty = true
		if s.parker != nil {
			s.empty = s.parker.Park()
		}
	}
	s.parks++
	return s.empty && s.waiting.Len() == 0
}

// Unpark ends the sleep of the parent's queue with the last of its ports.
func (s *sub) Unpark() {
	if s.parks == 0 {
		return
	}
	if s.parks--; s.parks == 0 && s.parker != nil {
		s.parker.Unpark()
	}
}

// Poll sends and receives. See pmd.Queue.
func (s *sub) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	nrx = s.take(rx)
	var in []*pmd.Buf
	if room := len(rx) - nrx; room > 0 {
		in = s.rx[:min(room, batch)]
	}
	if s.port.cfg.ID != Untagged {
		tx, ntx = s.tag(tx)
	}
	offered := len(tx)
	if offered > 0 {
		s.sizes(tx, 1) // what is taken must not be looked at again
	}
	n, k := s.below.Poll(tx, in)
	if n < offered {
		s.sizes(tx[n:], -1)
		s.stats.txFull.Add(1)
		if s.port.cfg.ID != Untagged {
			for _, b := range tx[n:] {
				untag(b)
			}
		}
	}
	for i, b := range in[:k] {
		in[i] = nil
		if to := s.deliver(b); to == s {
			rx[nrx] = b
			nrx++
		}
	}
	return ntx + n, nrx
}

// sizes counts frames as sent, or takes that back.
func (s *sub) sizes(tx []*pmd.Buf, sign int) {
	frames, bytes := 0, 0
	for _, b := range tx {
		k, n := b.Wire()
		frames += k
		bytes += n
	}
	if s.port.cfg.ID != Untagged {
		bytes -= frames * tagLen
	}
	s.stats.txFrames.Add(uint64(sign * frames))
	s.stats.txBytes.Add(uint64(sign * bytes))
}

// take hands out what has waited.
func (s *sub) take(rx []*pmd.Buf) (n int) {
	for n < len(rx) && s.waiting.Len() > 0 {
		front := s.waiting.Front(len(rx) - n)
		n += copy(rx[n:], front)
		s.waiting.Drop(len(front))
	}
	return n
}

// deliver finds the port of a received frame and takes its tag off. Unless that is s, the frame waits there, or is dropped; then it
// returns another than s.
func (s *sub) deliver(b *pmd.Buf) *sub {
	f := b.Bytes()
	id := uint16(Untagged)
	tagged := len(f) >= ethLen+tagLen && binary.BigEndian.Uint16(f[macsLen:]) == etherType
	if tagged {
		id = binary.BigEndian.Uint16(f[ethLen:]) & 0xfff
	}
	var port *Port
	if id <= MaxID {
		port = s.parent.byID[id]
	}
	if port == nil {
		s.foreign.Add(1)
		s.free(b)
		return nil
	}
	if tagged {
		untag(b)
	}
	to := s.subs[port.index]
	if to != s && (port.closed.Load() || !to.waiting.Push(b)) {
		to.stats.rxDropped.Add(1)
		s.free(b)
		return nil
	}
	to.stats.rxFrames.Add(1)
	to.stats.rxBytes.Add(uint64(b.Len()))
	return to
}

// tag puts tags on frames, up to the first that has no room for one, and returns those. If that is the first of all, it is dropped.
func (s *sub) tag(tx []*pmd.Buf) (tagged []*pmd.Buf, dropped int) {
	for i, b := range tx {
		if b.Len() >= ethLen && b.Push(tagLen) {
			f := b.Bytes()
			copy(f, f[tagLen:tagLen+macsLen])
			binary.BigEndian.PutUint16(f[macsLen:], etherType)
			binary.BigEndian.PutUint16(f[ethLen:], s.port.cfg.ID) // priority 0
			if b.L2Len > 0 {
				b.L2Len += tagLen
			}
			continue
		}
		if i > 0 {
			return tx[:i], 0
		}
		s.stats.txErrors.Add(1)
		s.free(b)
		return nil, 1
	}
	return tx, 0
}

// untag takes a frame's tag off.
func untag(b *pmd.Buf) {
	f := b.Bytes()
	copy(f[tagLen:], f[:macsLen])
	b.Pull(tagLen)
	if b.L2Len > tagLen {
		b.L2Len -= tagLen
	}
}

// free returns a frame to its pool; drivers without copies receive those of their peers.
func (q *shared) free(b *pmd.Buf) {
	if p := q.below.Pool(); b.Pool() == p {
		p.Put(b)
	} else {
		b.Free()
	}
}

// drain frees what waits. The queue is idle.
func (q *shared) drain() {
	for _, s := range q.subs {
		for s.waiting.Len() > 0 {
			for _, b := range s.waiting.Front(Waiting) {
				q.free(b)
			}
			s.waiting.Drop(len(s.waiting.Front(Waiting)))
		}
	}
}

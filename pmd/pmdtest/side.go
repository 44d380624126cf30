package pmdtest

import (
	"slices"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// side is one port with what it received.
type side struct {
	p    *pair
	port pmd.Port
	info pmd.Info
	peer *side

	next uint32 // sequence number of the next frame that it sends
	size []int  // by sequence number
	rx   []*pmd.Buf

	last   []int64 // by queue: highest sequence number received
	count  int     // test frames received
	frames uint64  // all frames received
	bytes  uint64
	sent   uint64 // frames that Poll took
	sentB  uint64

	// keep, if set, gets each test frame that arrives at queue q and owns it; otherwise it is checked and freed.
	keep func(q int, b *pmd.Buf)
	// other, if set, sees each foreign frame.
	other func(b *pmd.Buf)
}

func newSide(p *pair, port pmd.Port) *side {
	s := &side{p: p, port: port, info: port.Info(), rx: make([]*pmd.Buf, 256)}
	s.last = slices.Repeat([]int64{-1}, port.NumQueues())
	return s
}

// build takes a buffer from queue q's pool and makes a frame of it, or returns nil if there is none. The frame's sequence
// number is used up when Poll takes it.
func (s *side) build(q, size int, seq uint32) *pmd.Buf {
	b := s.port.Queue(q).Pool().Get()
	if b != nil {
		fill(b, s.peer.info.MAC, s.info.MAC, header{s.p.run, seq}, size)
	}
	return b
}

// burst builds n frames, as many as the pool yields.
func (s *side) burst(q, n int, size func(i int) int) []*pmd.Buf {
	var bs []*pmd.Buf
	for i := range n {
		b := s.build(q, size(i), s.next+uint32(i))
		if b == nil {
			break
		}
		bs = append(bs, b)
	}
	return bs
}

// some is burst, but waits until there is at least one frame.
func (s *side) some(q, n int, size func(i int) int) (bs []*pmd.Buf) {
	s.p.Helper()
	if n > 0 && !until(patience, func() bool {
		if bs = s.burst(q, n, size); len(bs) == 0 {
			s.turn()
			s.peer.turn()
		}
		return len(bs) > 0
	}) {
		s.p.Fatalf("pool %s stays empty: its buffers do not come back", s.port.Queue(q).Pool().Name())
	}
	return bs
}

// offer polls queue q once with the frames, receives what arrives, and returns the frames that were refused.
func (s *side) offer(q int, tx []*pmd.Buf) []*pmd.Buf {
	s.p.Helper()
	n := len(tx)
	size := make([]int, n) // a frame that was taken must not be looked at
	for i, b := range tx {
		size[i] = b.Len()
	}
	ntx, nrx := s.port.Queue(q).Poll(tx, s.rx)
	if ntx < 0 || ntx > n || nrx < 0 || nrx > len(s.rx) {
		s.p.Fatalf("Poll of %d frames into room for %d returned %d, %d", n, len(s.rx), ntx, nrx)
	}
	for _, l := range size[:ntx] {
		s.account(l)
	}
	s.receive(q, s.rx[:nrx])
	return tx[ntx:]
}

// account notes that Poll took a frame of n bytes.
func (s *side) account(n int) {
	s.next++
	s.size = append(s.size, n)
	s.sent++
	s.sentB += uint64(n)
}

// turn polls all queues once, for reception only, and returns how many test frames arrived.
func (s *side) turn() int {
	s.p.Helper()
	before, all := s.count, s.frames
	for q := range s.port.NumQueues() {
		_, n := s.port.Queue(q).Poll(nil, s.rx)
		s.receive(q, s.rx[:n])
	}
	if s.frames == all && s.p.o.Idle != nil {
		s.p.o.Idle()
	}
	return s.count - before
}

// receive checks frames that arrived at queue q, and frees them.
func (s *side) receive(q int, bs []*pmd.Buf) {
	s.p.Helper()
	for _, b := range bs {
		if b == nil {
			s.p.Fatal("Poll returned a nil frame")
		}
		s.frames++
		s.bytes += uint64(b.Len())
		h, size, ok := parse(b.Bytes())
		if !ok || h.run != s.p.run {
			if s.other != nil {
				s.other(b)
			}
			s.free(q, b)
			continue
		}
		s.count++
		if s.keep != nil {
			s.keep(q, b)
			continue
		}
		s.check(q, b, h, size)
		s.free(q, b)
	}
}

// check wants a frame that the peer sent, intact, once, and after those that came before it in the same queue.
func (s *side) check(q int, b *pmd.Buf, h header, size int) {
	s.p.Helper()
	if int(h.seq) >= len(s.peer.size) {
		s.p.Fatalf("frame %d arrived, which Poll did not take", h.seq)
	}
	if want := s.peer.size[h.seq]; size != want || !exact(b.Bytes(), s.info.MAC, s.peer.info.MAC, h, want) {
		s.p.Fatalf("frame %d of %d bytes arrived changed, with %d bytes:\n% x", h.seq, want, b.Len(), b.Bytes())
	}
	if int64(h.seq) <= s.last[q] {
		s.p.Fatalf("frame %d arrived after frame %d", h.seq, s.last[q])
	}
	s.last[q] = int64(h.seq)
}

// free returns a frame as a worker would: to its own pool if it is the queue's, else to wherever it came from.
func (s *side) free(q int, b *pmd.Buf) {
	if p := s.port.Queue(q).Pool(); b.Pool() == p {
		p.Put(b)
	} else {
		b.Free()
	}
}

// sendAll offers the frames until all are taken, while both sides receive.
func (s *side) sendAll(q int, tx []*pmd.Buf) {
	s.p.Helper()
	if !until(patience, func() bool {
		tx = s.offer(q, tx)
		for s.peer.turn() > 0 {
		}
		return len(tx) == 0
	}) {
		s.p.Fatalf("the port does not take the last %d frames", len(tx))
	}
}

// await polls both sides until s has received n test frames in all.
func (s *side) await(n int) {
	s.p.Helper()
	if !until(patience, func() bool {
		s.turn()
		s.peer.turn()
		return s.count >= n
	}) {
		s.p.Fatalf("%d of %d frames arrived at %s", s.count, n, s.info.Name)
	}
	s.p.drain()
	if s.count != n {
		s.p.Fatalf("%d frames arrived at %s, %d were sent", s.count, s.info.Name, n)
	}
}

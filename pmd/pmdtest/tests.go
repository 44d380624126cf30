package pmdtest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// testInfo wants a description that a stack can work with.
func testInfo(p *pair) {
	for _, s := range p.sides() {
		i, n := s.info, s.port.NumQueues()
		if i.Driver == "" || i.Name == "" {
			p.Errorf("driver %q, name %q: want both", i.Driver, i.Name)
		}
		if len(i.MAC) != 6 || i.MAC[0]&1 != 0 || bytes.Equal(i.MAC, make([]byte, 6)) {
			p.Errorf("%s: MAC %v is not a unicast Ethernet address", i.Name, i.MAC)
		}
		if i.MTU < 68 || i.MTU > 65535 { // RFC 791: every link carries 68 bytes
			p.Errorf("%s: MTU %d", i.Name, i.MTU)
		}
		if (i.Caps&pmd.TSO != 0) != (i.MaxTSO > 0) {
			p.Errorf("%s: caps %b, MaxTSO %d: want both or neither", i.Name, i.Caps, i.MaxTSO)
		}
		if i.Caps&pmd.TSO != 0 && (i.Caps&pmd.TxCsum == 0 || i.MaxTSO < 2*i.MTU || i.MaxTSO > pmd.MaxLarge-pmd.MaxHeaders) {
			p.Errorf("%s: TSO with caps %b, MaxTSO %d, MTU %d", i.Name, i.Caps, i.MaxTSO, i.MTU)
		}
		if i.Caps&pmd.RSSHash != 0 && (len(i.RSSKey) < 40 || len(i.RSSTable) == 0) {
			p.Errorf("%s: RSSHash with a key of %d and a table of %d", i.Name, len(i.RSSKey), len(i.RSSTable))
		}
		for h, q := range i.RSSTable {
			if int(q) >= n {
				p.Errorf("%s: RSSTable[%d] is queue %d of %d", i.Name, h, q, n)
			}
		}
		if n < 1 {
			p.Fatalf("%s: %d queues", i.Name, n)
		}
		for q := range n {
			pool := s.port.Queue(q).Pool()
			b := pool.Get()
			if b == nil {
				p.Fatalf("%s: pool %s has no buffer", i.Name, pool.Name())
			}
			if b.Len() != 0 || b.Off() != pmd.Headroom || b.Cap() < i.MTU+ethHeader {
				p.Errorf("%s: fresh buffer: length %d, offset %d, room %d", i.Name, b.Len(), b.Off(), b.Cap())
			}
			pool.Put(b)
			if room := s.port.Queue(q).TxRoom(); room <= 0 {
				p.Errorf("%s: TxRoom of an idle queue is %d", i.Name, room)
			}
		}
	}
	if bytes.Equal(p.a.info.MAC, p.b.info.MAC) {
		p.Errorf("both ports have MAC %v", p.a.info.MAC)
	}
}

// testSizes wants frames of every size byte-exact and in order, both ways, through each queue.
func testSizes(p *pair) {
	for _, s := range p.sides() {
		largest := min(s.info.MTU, s.peer.info.MTU) + ethHeader
		for q := range s.port.NumQueues() {
			for size := minFrame; size <= largest; {
				bs := s.some(q, min(32, largest-size+1), func(i int) int { return size + i })
				size += len(bs)
				s.sendAll(q, bs)
			}
			s.peer.await(int(s.sent))
		}
	}
}

// testBothDirections sends both ways at once.
func testBothDirections(p *pair) {
	const frames = 2000
	size := func(i int) int { return minFrame + i*97%1000 }
	var rest [2][]*pmd.Buf
	if !until(patience, func() bool {
		done := true
		for i, s := range p.sides() {
			if len(rest[i]) == 0 {
				rest[i] = s.burst(0, min(16, frames-int(s.sent)), size)
			}
			rest[i] = s.offer(0, rest[i])
			done = done && s.sent == frames
		}
		for p.a.turn()+p.b.turn() > 0 {
		}
		return done
	}) {
		p.Fatalf("after %d and %d of %d frames the ports take no more", p.a.sent, p.b.sent, frames)
	}
	p.a.await(frames)
	p.b.await(frames)
}

// testBurst offers more than the ring holds: what is refused stays the caller's, unchanged, and can be sent again.
func testBurst(p *pair) {
	for _, s := range p.sides() {
		before, dropped := s.port.Stats(), s.peer.port.Stats().RxDropped
		all := s.burst(0, s.port.Queue(0).Pool().Len(), func(i int) int { return minFrame + i%1200 })
		if p.o.TxRing > 0 && len(all) <= p.o.TxRing {
			p.Fatalf("%s: a pool with %d free buffers cannot fill a ring of %d", s.info.Name, len(all), p.o.TxRing)
		}
		first, base := len(all), s.next
		rest := s.offer(0, all)
		if p.o.TxRing > 0 {
			if first-len(rest) > p.o.TxRing {
				p.Errorf("%s: Poll took %d frames, its ring has %d", s.info.Name, first-len(rest), p.o.TxRing)
			}
			if full := s.port.Stats().TxFull - before.TxFull; len(rest) == 0 || full != 1 {
				p.Errorf("%s: Poll of %d frames left %d, TxFull rose by %d", s.info.Name, first, len(rest), full)
			}
		}
		for i, b := range rest {
			n := first - len(rest) + i
			if h := (header{p.run, base + uint32(n)}); !exact(b.Bytes(), s.peer.info.MAC, s.info.MAC, h, minFrame+n%1200) {
				p.Fatalf("%s: refused frame %d was changed", s.info.Name, n)
			}
		}
		s.sendAll(0, rest)
		p.drain()
		s.arrived(dropped)
	}
}

// testRoom wants each Poll to take at least TxRoom frames.
func testRoom(p *pair) {
	for _, s := range p.sides() {
		q := s.port.Queue(0)
		dropped := s.peer.port.Stats().RxDropped
		for range 8 {
			room := q.TxRoom()
			if room < 0 {
				p.Fatalf("%s: TxRoom is %d", s.info.Name, room)
			}
			bs := s.burst(0, min(room, q.Pool().Len()), func(int) int { return minFrame })
			if len(bs) == 0 {
				break
			}
			n := len(bs)
			rest := s.offer(0, bs)
			if len(rest) > 0 {
				p.Errorf("%s: TxRoom was %d, Poll took %d of %d", s.info.Name, room, n-len(rest), n)
			}
			s.sendAll(0, rest)
		}
		p.drain()
		s.arrived(dropped)
	}
}

// arrived wants every frame that s sent to have arrived, but for those that the peer counted as dropped since.
func (s *side) arrived(droppedBefore uint64) {
	s.p.Helper()
	if !until(patience, func() bool {
		s.peer.turn()
		lost := int(s.sent) - s.peer.count
		return lost == 0 || s.p.o.DropsUncounted || lost > 0 && s.peer.port.Stats().RxDropped-droppedBefore >= uint64(lost)
	}) {
		s.p.Fatalf("%s took %d frames, %d arrived, and the peer counts %d dropped",
			s.info.Name, s.sent, s.peer.count, s.peer.port.Stats().RxDropped-droppedBefore)
	}
}

// testEcho sends received buffers back, as an answer to a ping does.
func testEcho(p *pair) {
	const frames = 300
	a, b := p.a, p.b
	back := make([][]*pmd.Buf, b.port.NumQueues())
	b.keep = func(q int, f *pmd.Buf) {
		copy(f.Bytes(), a.info.MAC)
		copy(f.Bytes()[6:], b.info.MAC)
		back[q] = append(back[q], f)
	}
	a.keep = func(q int, f *pmd.Buf) {
		h, _, _ := parse(f.Bytes())
		if want := a.size[h.seq]; !exact(f.Bytes(), a.info.MAC, b.info.MAC, h, want) {
			p.Fatalf("frame %d of %d bytes came back changed", h.seq, want)
		}
		a.free(q, f)
	}
	var rest []*pmd.Buf
	if !until(patience, func() bool {
		if len(rest) == 0 {
			rest = a.burst(0, min(8, frames-int(a.sent)), func(i int) int { return minFrame + i*150 })
		}
		rest = a.offer(0, rest)
		b.turn()
		for q := range back {
			n, _ := b.port.Queue(q).Poll(back[q], nil)
			back[q] = slices.Delete(back[q], 0, n)
		}
		a.turn()
		return a.count == frames
	}) {
		p.Fatalf("%d of %d frames came back", a.count, frames)
	}
	p.drain()
}

// testExhaustion holds all of the receiver's buffers: frames may then be dropped and counted, and all is well again when the
// buffers come back.
func testExhaustion(p *pair) {
	a, b := p.a, p.b
	var held []*pmd.Buf
	total := 0
	for q := range b.port.NumQueues() {
		pool := b.port.Queue(q).Pool()
		total += pool.Len()
		for f := pool.Get(); f != nil; f = pool.Get() {
			held = append(held, f)
		}
		if pool.Get() != nil {
			p.Fatalf("pool %s yields a buffer after it yielded none", pool.Name())
		}
	}
	b.keep = func(_ int, f *pmd.Buf) { held = append(held, f) }
	before := b.port.Stats()
	for int(a.sent) < min(2*total, 20000) {
		rest := a.offer(0, a.burst(0, 32, func(int) int { return minFrame }))
		for _, f := range rest {
			a.free(0, f)
		}
		b.turn()
		if len(rest) > 0 || a.port.Queue(0).Pool().Free() == 0 {
			break // the sender is held up: nothing is lost that way
		}
	}
	p.drain()
	for _, f := range held {
		f.Free()
	}
	held, b.keep = nil, nil
	p.drain()
	a.arrived(before.RxDropped)
	if n := b.port.Stats().RxErrors - before.RxErrors; n != 0 {
		p.Errorf("%s: %d receive errors for want of buffers", b.info.Name, n)
	}
	count, sent := b.count, a.sent
	for a.sent-sent < 64 {
		a.sendAll(0, a.some(0, 16, func(i int) int { return minFrame + i }))
	}
	b.await(count + 64)
}

// testRemoteFree frees received buffers on another goroutine, for longer than the pool lasts without them.
func testRemoteFree(p *pair) {
	a, b := p.a, p.b
	ch := make(chan *pmd.Buf, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for f := range ch {
			f.Free()
		}
	})
	b.keep = func(_ int, f *pmd.Buf) { ch <- f }
	n := 3 * max(a.port.Queue(0).Pool().Len(), b.port.Queue(0).Pool().Len())
	done := until(2*patience, func() bool {
		a.sendAll(0, a.some(0, min(32, n-int(a.sent)), func(int) int { return minFrame }))
		return int(a.sent) == n
	})
	p.drain()
	close(ch)
	wg.Wait()
	if !done {
		p.Fatalf("the sender got buffers for %d of %d frames", a.sent, n)
	}
	for _, s := range p.sides() {
		for q := range s.port.NumQueues() {
			CheckLeaks(p, s.port.Queue(q).Pool())
		}
	}
}

// testStats wants the counters to say what happened.
func testStats(p *pair) {
	var before [2]pmd.Stats
	for i, s := range p.sides() {
		before[i] = s.port.Stats()
	}
	for _, s := range p.sides() {
		for range 20 {
			s.sendAll(0, s.some(0, 25, func(i int) int { return minFrame + i*37 }))
		}
		s.peer.await(int(s.sent))
	}
	for i, s := range p.sides() {
		var d pmd.Stats
		if !until(patience, func() bool {
			s.turn()
			st, o := s.port.Stats(), before[i]
			d = pmd.Stats{RxFrames: st.RxFrames - o.RxFrames, RxBytes: st.RxBytes - o.RxBytes, TxFrames: st.TxFrames - o.TxFrames,
				TxBytes: st.TxBytes - o.TxBytes, TxErrors: st.TxErrors - o.TxErrors, RxErrors: st.RxErrors - o.RxErrors}
			return d == pmd.Stats{RxFrames: s.frames, RxBytes: s.bytes, TxFrames: s.sent, TxBytes: s.sentB}
		}) {
			p.Errorf("%s: sent %d frames (%d bytes), received %d (%d); counters rose by %+v",
				s.info.Name, s.sent, s.sentB, s.frames, s.bytes, d)
		}
	}
}

// testAllocs wants Poll to allocate nothing.
func testAllocs(p *pair) {
	if p.o.Allocates {
		p.Skip("the driver says that Poll allocates")
	}
	for _, s := range p.sides() {
		for q := range s.port.NumQueues() {
			s.port.Queue(q).Pool().Track(false)
		}
	}
	p.a.port.Stats()     // what is set up once is not counted
	run := p.run + 1<<31 // foreign: these frames are not checked
	tx := make([]*pmd.Buf, 16)
	qa, qb := p.a.port.Queue(0), p.b.port.Queue(0)
	if n := testing.AllocsPerRun(500, func() {
		n := 0
		for n < len(tx) {
			if tx[n] = qa.Pool().Get(); tx[n] == nil {
				break
			}
			fill(tx[n], p.b.info.MAC, p.a.info.MAC, header{run, 0}, 512)
			n++
		}
		ntx, nrx := qa.Poll(tx[:n], p.a.rx)
		p.a.receive(0, p.a.rx[:nrx])
		for _, f := range tx[ntx:n] {
			p.a.free(0, f)
		}
		_, nrx = qb.Poll(nil, p.b.rx)
		p.b.receive(0, p.b.rx[:nrx])
		if p.o.Idle != nil {
			p.o.Idle()
		}
	}); n != 0 {
		p.Errorf("a turn allocates %v times", n)
	}
	p.drain()
	if p.b.frames == 0 {
		p.Error("nothing arrived")
	}
}

//go:noinline
func leakOne(q pmd.Queue) bool { return q.Pool().Get() != nil }

// testLeak wants Close to say where a buffer that did not come back was taken.
func testLeak(p *pair) {
	q := p.a.port.Queue(0)
	q.Pool().Track(true)
	p.a.sendAll(0, p.a.some(0, 10, func(int) int { return minFrame }))
	p.b.await(int(p.a.sent))
	if !leakOne(q) {
		p.Fatal("no buffer to leak")
	}
	p.closed = true
	err := errors.Join(p.a.port.Close(), p.b.port.Close())
	pmd.Forgive(err)
	var leak *pmd.LeakError
	if !errors.As(err, &leak) {
		p.Fatalf("Close with a buffer out returned %v, want a *pmd.LeakError", err)
	}
	if leak.Count != 1 || !strings.Contains(err.Error(), "pmdtest.leakOne:") {
		p.Errorf("want one buffer, taken at leakOne: %v", err)
	}
}

// testCloseTwice wants an error from a second Close.
func testCloseTwice(p *pair) {
	p.close()
	p.closed = true
	for _, s := range p.sides() {
		if err := s.port.Close(); err == nil {
			p.Errorf("second Close of %s returned nil", s.info.Name)
		}
	}
}

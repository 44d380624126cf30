// Package trace is a middleware that copies the frames of a port for a capture. While no capture runs it costs one atomic load per
// Poll. A capture has one bounded ring per queue: a worker that finds it full counts the frame as dropped and goes on.
package trace

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
)

// maxLink is the length of an Ethernet header with a VLAN tag.
const maxLink = 14 + 4

// Port is the port below with its frames visible to captures.
type Port struct {
	pmd.Port
	now    func() plugins.Time
	queues []*queue
	outer  []pmd.Queue // the queues as seen from outside: parkers if those below are

	mu      sync.Mutex
	running *Capture
}

// New wraps a port. now is the clock that stamps copies; it is read once per Poll with frames to copy.
func New(p pmd.Port, now func() plugins.Time) *Port {
	t := &Port{Port: p, now: now}
	for i := range p.NumQueues() {
		q := &queue{Queue: p.Queue(i), port: t}
		if i := p.Info(); i.Caps&pmd.TxCsum != 0 {
			q.piece = make([]byte, i.MTU+maxLink)
		}
		t.queues = append(t.queues, q)
		if k, ok := p.Queue(i).(pmd.Parker); ok {
			t.outer = append(t.outer, &parker{q, k})
		} else {
			t.outer = append(t.outer, q)
		}
	}
	return t
}

// Queue implements pmd.Port.
func (p *Port) Queue(i int) pmd.Queue { return p.outer[i] }

// Warnings implements pmd.Adviser for the port below.
func (p *Port) Warnings() []string {
	if a, ok := p.Port.(pmd.Adviser); ok {
		return a.Warnings()
	}
	return nil
}

// LinkAdvice implements pmd.Adviser for the port below.
func (p *Port) LinkAdvice() string {
	if a, ok := p.Port.(pmd.Adviser); ok {
		return a.LinkAdvice()
	}
	return ""
}

// Close stops the capture, if one runs, and closes the port below.
func (p *Port) Close() error {
	p.mu.Lock()
	c := p.running
	p.mu.Unlock()
	if c != nil {
		c.Stop()
	}
	return p.Port.Close()
}

type queue struct {
	pmd.Queue
	port  *Port
	armed atomic.Pointer[ring]

	cutter vnet.Cutter
	piece  []byte // as it will be on the wire; nil if the port completes no checksums
}

// parker is a queue whose queue below is a pmd.Parker.
type parker struct {
	*queue
	below pmd.Parker
}

func (p *parker) Park() bool { return p.below.Park() }
func (p *parker) Unpark()    { p.below.Unpark() }

// Uncompleted implements pmd.Completer for the queue below.
func (q *queue) Uncompleted() int { return pmd.Uncompleted(q.Queue) }

// Poll implements pmd.Queue.
func (q *queue) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	r := q.armed.Load()
	if r == nil {
		return q.Queue.Poll(tx, rx)
	}
	return q.copyPoll(r, tx, rx)
}

// copyPoll copies what is sent before Poll takes it, and publishes the copies of what Poll took.
func (q *queue) copyPoll(r *ring, tx, rx []*pmd.Buf) (ntx, nrx int) {
	const chunk = 64 // copies are wasted on what the port refuses, so a long batch is offered in parts
	var now plugins.Time
	stamped := false
	stamp := func() plugins.Time {
		if !stamped {
			now, stamped = q.port.now(), true
		}
		return now
	}
	for ntx < len(tx) {
		part := tx[ntx:min(ntx+chunk, len(tx))]
		n, k := q.sendPart(r, part, rx[nrx:], stamp())
		ntx += n
		nrx += k
		if n < len(part) {
			break
		}
	}
	if len(tx) == 0 {
		_, nrx = q.Queue.Poll(nil, rx)
	}
	if nrx > 0 {
		q.received(r, rx[:nrx], stamp())
	}
	return ntx, nrx
}

// sendPart polls the queue below with up to 64 frames, of which those that are taken appear in the ring.
func (q *queue) sendPart(r *ring, tx, rx []*pmd.Buf, now plugins.Time) (ntx, nrx int) {
	var staged, dropped [64 + 1]uint64 // by frame: what has a slot, and for what there was none, up to it
	first := r.pending
	for i, b := range tx {
		staged[i+1], dropped[i+1] = staged[i], dropped[i]
		if f := b.Bytes(); r.keep == nil || r.keep(f) {
			n, lost := q.stageSent(r, b, now)
			staged[i+1] += n
			dropped[i+1] += lost
		}
	}
	ntx, nrx = q.Queue.Poll(tx, rx)
	r.publish(first + staged[ntx])
	if n := dropped[ntx]; n > 0 {
		r.dropped.Add(n)
	}
	return ntx, nrx
}

// stageSent copies a frame as it will be on the wire: with its checksums, and a large one in pieces.
func (q *queue) stageSent(r *ring, b *pmd.Buf, now plugins.Time) (staged, dropped uint64) {
	if !b.Large() || b.HeaderLen()+int(b.SegSize) > len(q.piece) || q.cutter.Start(b) != nil {
		f := b.Bytes()
		if b.Flags&(pmd.TxIPCsum|pmd.TxTCPCsum) != 0 && !b.Large() && len(f) <= len(q.piece) {
			f = q.piece[:copy(q.piece, f)]
			vnet.Complete(f, b)
		}
		if !r.stage(f, pcap.Out, now) {
			return 0, 1
		}
		return 1, 0
	}
	for q.cutter.Pending() {
		f := q.piece[:q.cutter.Len()]
		q.cutter.Next(f)
		if r.stage(f, pcap.Out, now) {
			staged++
		} else {
			dropped++
		}
	}
	return staged, dropped
}

func (q *queue) received(r *ring, rx []*pmd.Buf, now plugins.Time) {
	for _, b := range rx {
		if f := b.Bytes(); (r.keep == nil || r.keep(f)) && !r.stage(f, pcap.In, now) {
			r.dropped.Add(1)
		}
	}
	r.publish(r.pending)
}

// Options of a capture.
type Options struct {
	// Keep says which frames to copy; nil keeps all. The workers call it, each on its own thread.
	Keep func(frame []byte) bool
	// Snap is the longest part of a frame that is copied; 0 is a whole frame of the port's MTU.
	Snap int
	// Slots is the number of frames that each queue's ring holds, a power of two; 0 is 1024. With Snap it is the capture's memory.
	Slots int
}

// Capture is a running capture. One goroutine drains it; Stop and Dropped may be called from any.
type Capture struct {
	port  *Port
	rings []*ring
	done  atomic.Bool
}

// ErrBusy is what Start returns while another capture runs.
var ErrBusy = errors.New("trace: a capture is running on this port")

// Start begins a capture on all queues.
func (p *Port) Start(o Options) (*Capture, error) {
	if o.Snap == 0 {
		o.Snap = p.Info().MTU + maxLink
	}
	if o.Slots == 0 {
		o.Slots = 1024
	}
	if o.Snap < 1 || o.Snap > pcap.DefaultSnap {
		return nil, fmt.Errorf("trace: snap length %d is not in 1 … %d", o.Snap, pcap.DefaultSnap)
	}
	if o.Slots < 1 || o.Slots&(o.Slots-1) != 0 || o.Slots > 1<<20 {
		return nil, fmt.Errorf("trace: %d slots are not a power of two up to 2^20", o.Slots)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		return nil, ErrBusy
	}
	c := &Capture{port: p}
	for _, q := range p.queues {
		r := newRing(o.Slots, o.Snap, o.Keep)
		c.rings = append(c.rings, r)
		q.armed.Store(r)
	}
	p.running = c
	return c, nil
}

// Stop ends the copying. What was copied can still be drained.
func (c *Capture) Stop() {
	p := c.port
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.done.Swap(true) {
		return
	}
	for _, q := range p.queues {
		q.armed.Store(nil)
	}
	p.running = nil
}

// Stopped reports whether the capture was stopped, by Stop or because the port was closed.
func (c *Capture) Stopped() bool { return c.done.Load() }

// Dropped is the number of frames that Keep kept and for which there was no room.
func (c *Capture) Dropped() (n uint64) {
	for _, r := range c.rings {
		n += r.dropped.Load()
	}
	return n
}

// Frame is a copied frame. Data is valid until the function that gets it returns.
type Frame struct {
	At     plugins.Time
	Dir    pcap.Direction
	Data   []byte // the first Snap bytes
	Length int    // of the whole frame
}

// Drain writes what has been copied so far, in the order of time, and returns how many frames that were. epoch is the Unix time, in
// ns, at which the port's clock is 0. It returns the writer's error, which is pcap.ErrCount when the capture is complete.
func (c *Capture) Drain(w *pcap.Writer, epoch int64) (n int, err error) {
	return c.Each(func(f Frame) error { return w.Write(epoch+int64(f.At), f.Dir, f.Data, f.Length) })
}

// Each calls f with what has been copied so far, in the order of time, until f returns an error, and returns how many frames f took.
// A frame that f does not take comes again.
func (c *Capture) Each(f func(Frame) error) (n int, err error) {
	for {
		// The queues' rings are each in order; merge them.
		r := slices.MinFunc(c.rings, func(a, b *ring) int {
			x, y := a.peek(), b.peek()
			switch {
			case x == nil && y == nil:
				return 0
			case y == nil || x != nil && x.at < y.at:
				return -1
			case x == nil || x.at > y.at:
				return 1
			}
			return 0
		})
		s := r.peek()
		if s == nil {
			return n, nil
		}
		if err := f(Frame{s.at, s.dir, s.data[:s.n], s.length}); err != nil {
			return n, err
		}
		r.advance()
		n++
	}
}

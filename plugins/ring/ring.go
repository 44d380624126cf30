// Package ring is a single-producer, single-consumer ring of fixed-size records between two goroutines or two processes.
//
// The same code runs over a Go slice (and so under the race detector) and over shared memory. Each side keeps its own cursor
// privately and only publishes it, once per batch, on cache lines of its own; of the peer's cursor it keeps a checked copy.
// Nothing that the peer writes is trusted: a cursor that leaves its bounds ends the ring with ErrCursor, and a record is
// copied out once, so that what is validated is what is used.
package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrCursor says that the peer published a cursor out of bounds.
var ErrCursor = errors.New("ring: peer's cursor is out of bounds")

// Cursor is the position that one side publishes, alone on two cache lines (processors fetch lines in pairs). The zero
// Cursor is the start. 128 bytes.
type Cursor struct {
	pos    atomic.Uint64
	parked atomic.Uint32 // the consumer waits for the doorbell
	_      [128 - 12]byte
}

// Pos is the published position: how many records this side has written or consumed since the start.
func (c *Cursor) Pos() uint64 { return c.pos.Load() }

// Producer is the writing side. It is used by one goroutine.
type Producer[T any] struct {
	slots     []T
	mask      uint64
	tail      *Cursor // ours
	head      *Cursor // the consumer's
	next      uint64  // the next slot to write
	published uint64
	consumed  uint64 // checked copy of the consumer's cursor
	err       error
}

// Consumer is the reading side. It is used by one goroutine.
type Consumer[T any] struct {
	slots     []T
	mask      uint64
	head      *Cursor // ours
	tail      *Cursor // the producer's
	next      uint64  // the next slot to read
	published uint64
	produced  uint64 // checked copy of the producer's cursor
	err       error
}

func checkCap(n int) error {
	if n < 1 || n&(n-1) != 0 {
		return fmt.Errorf("ring: capacity %d is not a power of two", n)
	}
	return nil
}

// NewProducer returns the writing side of a fresh ring over slots, whose number is a power of two. tail is written by this
// side, head by the consumer; both are zero.
func NewProducer[T any](slots []T, tail, head *Cursor) (*Producer[T], error) {
	if err := checkCap(len(slots)); err != nil {
		return nil, err
	}
	return &Producer[T]{slots: slots, mask: uint64(len(slots) - 1), tail: tail, head: head}, nil
}

// NewConsumer returns the reading side of a fresh ring over slots. head is written by this side, tail by the producer.
func NewConsumer[T any](slots []T, head, tail *Cursor) (*Consumer[T], error) {
	if err := checkCap(len(slots)); err != nil {
		return nil, err
	}
	return &Consumer[T]{slots: slots, mask: uint64(len(slots) - 1), head: head, tail: tail}, nil
}

// Cap is the number of slots.
func (p *Producer[T]) Cap() int { return len(p.slots) }

// Push copies *v into the next slot; the consumer sees it after Publish. It reports false if the ring is full or broken.
func (p *Producer[T]) Push(v *T) bool {
	if p.next-p.consumed > p.mask {
		if p.Consumed(); p.err != nil || p.next-p.consumed > p.mask {
			return false
		}
	}
	p.slots[p.next&p.mask] = *v
	p.next++
	return true
}

// Next is the position (counted from the start of the ring) of the record that the next Push writes.
func (p *Producer[T]) Next() uint64 { return p.next }

// Publish shows the consumer what was pushed, if anything, and reports whether it is parked and must be woken for it.
func (p *Producer[T]) Publish() (wake bool) {
	if p.next == p.published {
		return false
	}
	p.published = p.next
	p.tail.pos.Store(p.next)
	return p.Parked()
}

// Parked reports whether the consumer waits for the doorbell.
func (p *Producer[T]) Parked() bool {
	// The consumer sets parked and then reads the cursor again; the cursor is stored and then parked is read here. Atomics
	// are sequentially consistent, so at least one of the two sees the other.
	return p.head.parked.Load() != 0
}

// Consumed reads the consumer's cursor and returns how many records it has consumed since the start.
func (p *Producer[T]) Consumed() uint64 {
	h := p.head.pos.Load()
	if h == p.consumed || p.err != nil {
		return p.consumed
	}
	// Neither backwards nor beyond what was published. Differences stay right when cursors wrap.
	if h-p.consumed > p.published-p.consumed {
		p.err = ErrCursor
		return p.consumed
	}
	p.consumed = h
	return h
}

// Outstanding is the number of records that were pushed and not consumed, as of the last look at the consumer's cursor.
func (p *Producer[T]) Outstanding() int { return int(p.next - p.consumed) }

// Room reads the consumer's cursor and returns how many records Push takes now.
func (p *Producer[T]) Room() int {
	if p.Consumed(); p.err != nil {
		return 0
	}
	return len(p.slots) - p.Outstanding()
}

// Err is ErrCursor once the peer has broken the protocol, else nil.
func (p *Producer[T]) Err() error { return p.err }

// Len reads the producer's cursor and returns how many records Pop has to give.
func (c *Consumer[T]) Len() int {
	if c.err != nil {
		return 0
	}
	if t := c.tail.pos.Load(); t != c.produced {
		// Neither backwards nor further than the slots that were given back.
		if t-c.produced > c.published+uint64(len(c.slots))-c.produced {
			c.err = ErrCursor
			return 0
		}
		c.produced = t
	}
	return int(c.produced - c.next)
}

// Pop copies up to len(dst) records into dst and returns their number. The producer gets the slots back with Publish.
func (c *Consumer[T]) Pop(dst []T) int {
	n := min(c.Len(), len(dst))
	if n == 0 {
		return 0
	}
	at := int(c.next & c.mask)
	k := copy(dst[:n], c.slots[at:])
	copy(dst[k:n], c.slots)
	c.next += uint64(n)
	return n
}

// Publish gives the slots of everything that was popped back to the producer.
func (c *Consumer[T]) Publish() {
	if c.next != c.published {
		c.published = c.next
		c.head.pos.Store(c.next)
	}
}

// Err is ErrCursor once the peer has broken the protocol, else nil.
func (c *Consumer[T]) Err() error { return c.err }

// Park says that this side is about to wait for the doorbell. It reports false, and does not park, if there is something to pop.
func (c *Consumer[T]) Park() bool {
	c.head.parked.Store(1)
	if c.Len() > 0 {
		c.head.parked.Store(0)
		return false
	}
	return true
}

// Unpark says that this side is awake.
func (c *Consumer[T]) Unpark() { c.head.parked.Store(0) }

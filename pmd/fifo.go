package pmd

// Fifo is a bounded first-in-first-out queue of frames that wait for a port: what the port refuses stays. One goroutine uses it.
type Fifo struct {
	ring []*Buf
	head uint32 // next out
	tail uint32 // next in

	more  []uint16 // by slot: buffers behind the first
	extra int      // their sum
}

// NewFifo makes a queue for at least n frames (rounded up to a power of two).
func NewFifo(n int) *Fifo {
	size := 1
	for size < n {
		size <<= 1
	}
	return &Fifo{ring: make([]*Buf, size), more: make([]uint16, size)}
}

// Len is the number of frames waiting.
func (f *Fifo) Len() int { return int(f.tail - f.head) }

// Room is the number of frames that fit.
func (f *Fifo) Room() int { return len(f.ring) - f.Len() }

// Extra is the number of buffers that large frames have behind their first.
func (f *Fifo) Extra() int { return f.extra }

// Pushed is the number of frames that were ever put in, modulo 2^32.
func (f *Fifo) Pushed() uint32 { return f.tail }

// Taken is the number of frames that have left, modulo 2^32.
func (f *Fifo) Taken() uint32 { return f.head }

// Push appends b and reports whether there was room.
func (f *Fifo) Push(b *Buf) bool {
	if f.tail-f.head == uint32(len(f.ring)) {
		return false
	}
	f.ring[f.tail&uint32(len(f.ring)-1)] = b
	if b.More != nil {
		f.weigh(b)
	}
	f.tail++
	return true
}

// weigh counts the buffers of a large frame, whose place is the next.
func (f *Fifo) weigh(b *Buf) {
	n := uint16(0)
	for m := b.More; m != nil; m = m.More {
		n++
	}
	f.more[f.tail&uint32(len(f.ring)-1)] = n
	f.extra += int(n)
}

// Front returns up to max of the oldest frames, contiguous in memory, without taking them.
func (f *Fifo) Front(max int) []*Buf {
	i := int(f.head & uint32(len(f.ring)-1))
	n := min(f.Len(), max, len(f.ring)-i)
	return f.ring[i : i+n]
}

// Drop removes the n oldest frames, which Front returned.
func (f *Fifo) Drop(n int) {
	for i := 0; i < n; i++ {
		at := (f.head + uint32(i)) & uint32(len(f.ring)-1)
		f.ring[at] = nil
		if f.extra > 0 {
			f.extra -= int(f.more[at])
			f.more[at] = 0
		}
	}
	f.head += uint32(n)
}

package memlink

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// entry is a frame on its way. Entries with the same release time leave in the order in which they came.
type entry struct {
	at  plugins.Time
	seq uint64
	buf *pmd.Buf
}

func (e *entry) before(f *entry) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// line holds frames ordered by release time. Like netem's tfifo it appends what comes in order to a list and keeps only the rest
// in a tree (here a binary heap). What no later frame can overtake moves from there to the list, so that jitter costs as much as it
// reorders, however many frames are on their way. It allocates only while it grows.
type line struct {
	seq  uint64
	fifo []entry // a ring; its length is a power of two
	head int
	n    int
	heap []entry
}

func (l *line) len() int { return l.n + len(l.heap) }

// push adds a frame that is released at a time. Later frames are expected not to be released before floor.
func (l *line) push(at, floor plugins.Time, b *pmd.Buf) {
	e := entry{at, l.seq, b}
	l.seq++
	for len(l.heap) > 0 && l.heap[0].at <= floor && !l.heap[0].before(l.tail()) {
		l.append(l.heap[0])
		l.popHeap()
	}
	if at > floor || l.n > 0 && at < l.tail().at {
		l.pushHeap(e)
		return
	}
	l.append(e)
}

// none is before everything.
var none = entry{at: -1 << 63}

// tail is the last entry of the list.
func (l *line) tail() *entry {
	if l.n == 0 {
		return &none
	}
	return &l.fifo[(l.head+l.n-1)&(len(l.fifo)-1)]
}

func (l *line) append(e entry) {
	if l.n == len(l.fifo) {
		l.grow()
	}
	l.fifo[(l.head+l.n)&(len(l.fifo)-1)] = e
	l.n++
}

func (l *line) grow() {
	bigger := make([]entry, max(64, 2*len(l.fifo)))
	for i := range l.n {
		bigger[i] = l.fifo[(l.head+i)&(len(l.fifo)-1)]
	}
	l.fifo, l.head = bigger, 0
}

// next is the earliest release time, or Never.
func (l *line) next() plugins.Time {
	at := plugins.Never
	if l.n > 0 {
		at = l.fifo[l.head].at
	}
	if len(l.heap) > 0 {
		at = min(at, l.heap[0].at)
	}
	return at
}

// pop returns the earliest frame. The line must not be empty.
func (l *line) pop() *pmd.Buf {
	if l.n == 0 || len(l.heap) > 0 && l.heap[0].before(&l.fifo[l.head]) {
		return l.popHeap()
	}
	e := &l.fifo[l.head]
	b := e.buf
	e.buf = nil
	l.head = (l.head + 1) & (len(l.fifo) - 1)
	l.n--
	return b
}

func (l *line) pushHeap(e entry) {
	h := append(l.heap, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	l.heap = h
}

func (l *line) popHeap() *pmd.Buf {
	h := l.heap
	b := h[0].buf
	n := len(h) - 1
	e := h[n]
	h[n].buf = nil
	h = h[:n]
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&e) {
			break
		}
		h[i] = h[c]
		i = c
	}
	if n > 0 {
		h[i] = e
	}
	l.heap = h
	return b
}

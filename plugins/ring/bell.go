package ring

import (
	"sync/atomic"
	"time"
)

// Bell wakes a parked consumer, in this process or in another one that maps it. It is a futex word, not an eventfd: the flags
// of an inherited descriptor belong to both processes, so a module could clear O_NONBLOCK on an eventfd, fill its counter,
// and block the worker that rings; waking a futex never blocks and needs no descriptor. The waiter only reads the word, so a
// read-only mapping is enough for it.
type Bell struct{ word atomic.Uint32 }

// Seen returns the value to pass to Wait. Read it before the last look at the rings.
func (b *Bell) Seen() uint32 { return b.word.Load() }

// Ring wakes the waiter. It does not block.
func (b *Bell) Ring() {
	b.word.Add(1)
	futexWake(&b.word)
}

// Wait blocks until Ring was called after Seen returned seen, or until timeout has passed (never, if negative). It may return
// early.
func (b *Bell) Wait(seen uint32, timeout time.Duration) { futexWait(&b.word, seen, timeout) }

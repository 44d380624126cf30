package stack

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// A hold keeps the Go scheduler's other processors from being idle while the poller is busy. When a goroutine becomes runnable and a
// processor is idle, the scheduler wakes a thread for it: a system call of the poller for nearly every wake-up of an application,
// and a thread that steals the application or the poller itself, with all that is warm in the cache. With no processor idle there is
// nobody to wake: the application runs on the poller's processor, at its next yield.
//
// Where there are several pollers each is left a processor, also while it sleeps: it would have to wait for one when it wakes, and its
// peers' threads would meet on one core.
//
// Each holding goroutine sleeps in a raw system call: the kernel can use the core for others. Every holdFor it gives the processor back
// for a pause, in which the scheduler looks at kernel sockets and runs what else waits. An application that computes for long ends the
// hold, so that all processors work.
type hold struct {
	word   atomic.Uint32
	wanted atomic.Bool
	others int32 // pollers beside this one, when it began
	mu     sync.Mutex
	engage *sync.Cond
	n      int          // holding goroutines
	limit  int          // how many of them hold
	ended  bool         // they are to end
	since  plugins.Time // of the present run of short rounds
	last   plugins.Time // last round
}

const (
	// holdFor bounds how long a goroutine that the poller does not run itself, or a kernel socket, waits for a processor.
	holdFor = time.Millisecond
	pause   = 20 * time.Microsecond
	// holdAfter is how long the poller is busy with short rounds before it holds; longRound is a round that ends it.
	holdAfter = 2 * time.Millisecond
	longRound = 300 * time.Microsecond
	// maxHeld is how many processors are held at the most. Where there are more, some are idle, and a hold would not help: such
	// machines have cores to spare for workers that spin.
	maxHeld = 3
)

// pollers counts those of the process that run or sleep.
var pollers atomic.Int32

// round is called once per round of the poller, at its time.
func (h *hold) round(now plugins.Time) {
	gap := now.Sub(h.last)
	h.last = now
	switch {
	case gap > longRound || h.wanted.Load() && pollers.Load()-1 > h.others:
		h.since = now
		h.release()
	case !h.wanted.Load() && now.Sub(h.since) > holdAfter:
		h.start()
	}
}

// release lets the processors go.
func (h *hold) release() {
	if h.wanted.Load() {
		h.wanted.Store(false)
		rawWake(&h.word)
	}
}

// start holds all processors but the pollers', unless these are too many.
func (h *hold) start() {
	h.others = max(pollers.Load()-1, 0)
	n := runtime.GOMAXPROCS(0) - 1 - int(h.others)
	if n < 1 || n > maxHeld {
		h.since = h.last // look again later: it can be changed
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engage == nil {
		h.engage = sync.NewCond(&h.mu)
	}
	for ; h.n < n; h.n++ {
		go h.run(h.n)
	}
	h.limit = n
	h.wanted.Store(true)
	h.engage.Broadcast()
}

// end ends the holding goroutines. The hold can be used again afterwards.
func (h *hold) end() {
	h.release()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.ended = true; h.n > 0; {
		h.engage.Broadcast()
		h.engage.Wait()
	}
	h.ended = false
}

// run is the holding goroutine of this index.
func (h *hold) run(index int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.ended {
		if !h.wanted.Load() || index >= h.limit {
			h.engage.Wait()
			continue
		}
		h.mu.Unlock()
		for seen := h.word.Load(); h.wanted.Load(); seen = h.word.Load() {
			rawWait(&h.word, seen, holdFor)
			time.Sleep(pause) // not Gosched: the scheduler looks at kernel sockets only when it finds nothing to run
		}
		h.mu.Lock()
	}
	h.n--
	h.engage.Broadcast()
}

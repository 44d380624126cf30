package stack

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// spin runs w on a thread of its own, pinned to its core, and never sleeps. Applications are woken by a notifier goroutine: a
// goroutine made runnable by a locked thread would land in that thread's own run queue, from which others must steal it.
func (w *Worker) spin(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var set unix.CPUSet
	set.Set(w.core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		ready <- fmt.Errorf("stack: worker %d: pinning to core %d: %w", w.index, w.core, err)
		return
	}
	ready <- nil
	for !w.stopping.Load() {
		w.turn()
		w.notify.flush()
	}
	w.finish()
	w.notify.close()
}

// notifier wakes application goroutines on behalf of a locked, spinning worker.
type notifier struct {
	ring   []atomic.Pointer[tcp.Waiter]
	tail   uint64 // the worker's
	_      [64]byte
	posted atomic.Uint64
	_      [56]byte
	taken  atomic.Uint64
	_      [56]byte
	parked atomic.Bool
	closed atomic.Bool
	fd     int
	full   atomic.Uint64 // times that the ring was full and a waiter was woken directly
}

const notifierRing = 1 << 14

func newNotifier() (*notifier, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	n := &notifier{ring: make([]atomic.Pointer[tcp.Waiter], notifierRing), fd: fd}
	go n.run()
	return n, nil
}

// wake queues a waiter. It is the worker's.
func (n *notifier) wake(w *tcp.Waiter) {
	if !w.Armed() {
		return
	}
	if n.tail-n.taken.Load() == notifierRing {
		n.full.Add(1)
		w.Wake()
		return
	}
	n.ring[n.tail%notifierRing].Store(w)
	n.tail++
}

// flush publishes what wake queued, once per turn.
func (n *notifier) flush() {
	if n.posted.Load() == n.tail {
		return
	}
	n.posted.Store(n.tail)
	if n.parked.Load() {
		n.kick()
	}
}

func (n *notifier) kick() {
	var one = [8]byte{0: 1}
	unix.Write(n.fd, one[:]) //nolint:errcheck // the counter is full: it is readable
}

func (n *notifier) close() {
	n.closed.Store(true)
	n.kick()
}

// notifierSpin is how long the notifier looks for work before it parks.
const notifierSpin = 100 * time.Microsecond

func (n *notifier) run() {
	var clock Monotonic
	idle := clock.Now()
	for {
		if n.drain() {
			idle = clock.Now()
		} else if n.closed.Load() {
			unix.Close(n.fd)
			return
		} else if clock.Now().Sub(idle) > notifierSpin {
			n.parked.Store(true)
			if n.posted.Load() == n.taken.Load() && !n.closed.Load() {
				var b [8]byte
				unix.Read(n.fd, b[:]) //nolint:errcheck // interrupted: look again
			}
			n.parked.Store(false)
			idle = clock.Now()
		}
		runtime.Gosched()
	}
}

func (n *notifier) drain() bool {
	t, end := n.taken.Load(), n.posted.Load()
	if t == end {
		return false
	}
	for ; t != end; t++ {
		w := n.ring[t%notifierRing].Load()
		n.taken.Store(t + 1)
		w.Wake()
	}
	return true
}

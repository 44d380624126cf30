package stack

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// spinner runs the spinning workers of one core in turn, on a thread pinned to it, and never sleeps. Applications are woken by a
// notifier goroutine: a goroutine made runnable by a locked thread would land in that thread's own run queue, from which others
// must steal it.
type spinner struct {
	core    int
	tid     int // of its thread
	workers atomic.Pointer[[]*Worker]
	notify  *notifier
}

// spinners are the spinners of the process, by core.
var spinners = struct {
	sync.Mutex
	byCore map[int]*spinner
}{byCore: map[int]*spinner{}}

// startSpinning gives w to the spinner of its core, which is made if there is none.
func startSpinning(w *Worker) error {
	spinners.Lock()
	defer spinners.Unlock()
	s := spinners.byCore[w.core]
	if s == nil {
		s = &spinner{core: w.core}
		s.workers.Store(&[]*Worker{})
		var err error
		if s.notify, err = newNotifier(); err != nil {
			return err
		}
		ready := make(chan error)
		go s.run(ready)
		if err := <-ready; err != nil {
			s.notify.close()
			return fmt.Errorf("stack: worker %d: %w", w.index, err)
		}
		spinners.byCore[w.core] = s
		// The core belongs to the spinner now, unless it is the only one there is.
		setAffinity(func(set *unix.CPUSet) { set.Clear(w.core) })
	}
	w.notify = s.notify
	ws := append(slices.Clone(*s.workers.Load()), w)
	s.workers.Store(&ws)
	return nil
}

// stopSpinning takes w, which has ended, from its spinner. The last one ends it.
func stopSpinning(w *Worker) {
	spinners.Lock()
	defer spinners.Unlock()
	s := spinners.byCore[w.core]
	ws := slices.DeleteFunc(slices.Clone(*s.workers.Load()), func(x *Worker) bool { return x == w })
	if len(ws) == 0 {
		setAffinity(func(set *unix.CPUSet) { set.Set(w.core) })
		delete(spinners.byCore, w.core)
		s.workers.Store(nil)
		return
	}
	s.workers.Store(&ws)
}

func (s *spinner) run(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	s.tid = unix.Gettid()
	var set unix.CPUSet
	set.Set(s.core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		ready <- fmt.Errorf("pinning to core %d: %w", s.core, err)
		return
	}
	ready <- nil
	for ws := s.workers.Load(); ws != nil; ws = s.workers.Load() {
		for _, w := range *ws {
			if w.stopping.Load() {
				w.finish()
			} else {
				w.turn()
			}
		}
		s.notify.flush()
	}
	s.notify.close()
}

// setAffinity changes which cores the process's threads may use, other than those of spinners. Threads made later inherit it. It does
// what it can: without it things work, only slower.
func setAffinity(change func(set *unix.CPUSet)) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		var set unix.CPUSet
		if err != nil || isSpinner(tid) || unix.SchedGetaffinity(tid, &set) != nil {
			continue
		}
		if change(&set); set.Count() > 0 {
			_ = unix.SchedSetaffinity(tid, &set) // the thread may have ended
		}
	}
}

func isSpinner(tid int) bool {
	for _, s := range spinners.byCore {
		if s.tid == tid {
			return true
		}
	}
	return false
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

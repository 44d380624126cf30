package stack

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// Poller runs all adaptive workers of a process in turn, on one goroutine. It yields after every round, so that applications run to
// completion on the same processor, and sleeps when there is nothing to do.
//
// One goroutine for all: two yielding goroutines migrate between processors thousands of times a second and cost each other most
// of their speed.
type Poller struct {
	mu      sync.Mutex
	workers atomic.Pointer[[]*Worker]
	running bool
	parked  atomic.Bool
	wakeFD  int // eventfd
	hold    hold
	seat    seat
	clock   Monotonic
	fds     []unix.PollFd // of the last sleep
}

// DefaultPoller runs the adaptive workers of every stack that has no Poller of its own.
var DefaultPoller Poller

// spinFor is how long the poller goes on polling after the last work before it sleeps; sleepAhead is how far the next deadline must
// lie ahead for a sleep to be worth it (a sleeping thread wakes 30 µs late or more, and 80 µs where punctual has no effect).
const (
	spinFor    = 200 * time.Microsecond
	sleepAhead = 500 * time.Microsecond
	// pollEvery bounds a sleep while some port has no file descriptor that wakes it.
	pollEvery = time.Millisecond
	maxSleep  = time.Second
)

func (p *Poller) add(w *Worker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			return err
		}
		p.wakeFD = fd
	}
	var ws []*Worker
	if old := p.workers.Load(); old != nil {
		ws = slices.Clone(*old)
	}
	ws = append(ws, w)
	p.workers.Store(&ws)
	if !p.running {
		p.running = true
		go p.run()
	} else {
		p.wake()
	}
	return nil
}

// remove takes w out. Its current turn may still be running; w.stopped tells when it has ended.
func (p *Poller) remove(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ws := slices.DeleteFunc(slices.Clone(*p.workers.Load()), func(x *Worker) bool { return x == w })
	p.workers.Store(&ws)
	p.wake()
}

// wake ends a sleep.
func (p *Poller) wake() {
	if p.parked.Load() {
		var one = [8]byte{0: 1}
		unix.Write(p.wakeFD, one[:]) //nolint:errcheck // the counter is full: it is readable
	}
}

func (p *Poller) run() {
	pollers.Add(1)
	defer pollers.Add(-1)
	p.seat.take()
	defer p.seat.giveUp()
	idleSince := p.clock.Now()
	for {
		ws := *p.workers.Load()
		if len(ws) == 0 {
			p.mu.Lock()
			if len(*p.workers.Load()) == 0 {
				p.running = false
				unix.Close(p.wakeFD)
				p.hold.end()
				p.mu.Unlock()
				return
			}
			p.mu.Unlock()
			continue
		}
		busy := false
		for _, w := range ws {
			if w.stopping.Load() {
				w.finish()
				continue
			}
			if w.turn() {
				busy = true
			}
		}
		now := ws[0].last()
		p.hold.round(now)
		if now.Sub(p.seat.looked) > lookEvery {
			p.seat.look(now)
		}
		if busy {
			idleSince = now
		} else if now.Sub(idleSince) > spinFor && p.sleep(ws, now) {
			idleSince = p.clock.Now()
			continue
		}
		runtime.Gosched()
	}
}

// sleep waits until a port, an application or a deadline wants a turn. It returns false if there was no time to sleep.
func (p *Poller) sleep(ws []*Worker, now plugins.Time) bool {
	until := now.Add(maxSleep)
	p.fds = append(p.fds[:0], unix.PollFd{Fd: int32(p.wakeFD), Events: unix.POLLIN})
	for _, w := range ws {
		until = min(until, w.deadline())
		if fd := w.wakeFD(); fd >= 0 {
			p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		} else if w.queue != nil {
			until = min(until, now.Add(pollEvery))
		}
	}
	if until.Sub(now) < sleepAhead {
		return false
	}
	p.hold.release()
	p.parked.Store(true)
	defer p.parked.Store(false)
	idle := true
	for _, w := range ws {
		idle = w.park() && idle
	}
	if idle {
		for _, w := range ws {
			w.turns.sleep(now)
		}
		if until < now.Add(maxSleep) {
			punctual()
		}
		p.seat.sleep()
		ts := unix.NsecToTimespec(int64(until - now))
		unix.Ppoll(p.fds, &ts, nil) //nolint:errcheck // interrupted or timed out: poll
		var drain [8]byte
		unix.Read(p.wakeFD, drain[:]) //nolint:errcheck // empty if something else woke us
		woke := p.clock.Now()
		p.seat.look(woke)
		for _, w := range ws {
			w.turns.woke(woke)
		}
	}
	for _, w := range ws {
		w.unpark()
	}
	return true
}

// punctual makes the kernel wake this thread at the time that it asks for, and not up to 50 µs later together with others. It is the
// thread's own property, and goroutines move between threads, so that it is set before each sleep that has an end.
func punctual() {
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) //nolint:errcheck // then it wakes later
}

func (w *Worker) wakeFD() int {
	if w.queue == nil {
		return -1
	}
	return w.queue.WakeFD()
}

// park prepares a sleep; it returns false if there is work.
func (w *Worker) park() bool {
	if w.pending() {
		return false
	}
	if q, ok := w.queue.(pmd.Parker); ok {
		return q.Park()
	}
	return true
}

func (w *Worker) unpark() {
	if q, ok := w.queue.(pmd.Parker); ok {
		q.Unpark()
	}
}

package stack

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// A seat is the core that a poller's thread runs on. Two threads that never block on their own share a core by turns of several
// milliseconds, while another core is idle: the kernel balances by load, over a longer time, and where a thread wakes it looks at few
// cores. A poller that finds itself on the core of another moves its thread.
type seat struct {
	where  atomic.Uint64 // thread and core, as place has them; 0: it sleeps
	looked plugins.Time
}

// lookEvery is how often a poller that does not sleep looks where it is.
const lookEvery = 500 * time.Microsecond

// seats are those of the pollers of the process that run or sleep.
var seats struct {
	sync.Mutex
	all atomic.Pointer[[]*seat]
}

func changeSeats(change func([]*seat) []*seat) {
	seats.Lock()
	defer seats.Unlock()
	all := change(slices.Clone(*seats.all.Load()))
	seats.all.Store(&all)
}

func init() { seats.all.Store(new([]*seat)) }

// place is a thread and the core that it runs on.
func place(tid int, core int32) uint64 { return uint64(tid)<<32 | uint64(uint32(core)) }

// take begins to use s, giveUp ends it.
func (s *seat) take() {
	s.sleep()
	changeSeats(func(all []*seat) []*seat { return append(all, s) })
}

func (s *seat) giveUp() {
	changeSeats(func(all []*seat) []*seat { return slices.DeleteFunc(all, func(x *seat) bool { return x == s }) })
}

// sleep frees the seat until the next look.
func (s *seat) sleep() { s.where.Store(0) }

// look finds out which core the calling thread runs on, and leaves it if another poller is there.
func (s *seat) look(now plugins.Time) {
	s.looked = now
	all := *seats.all.Load()
	if len(all) < 2 {
		return
	}
	tid, core := unix.Gettid(), thisCore()
	s.where.Store(place(tid, core))
	if taken := s.taken(all, tid); taken.IsSet(int(core)) {
		s.where.Store(place(tid, leave(&taken)))
	}
}

// taken is the cores of the other pollers, seen from thread tid.
func (s *seat) taken(all []*seat, tid int) (cores unix.CPUSet) {
	for _, x := range all {
		// Goroutines move between threads: one that was last seen on this thread is elsewhere now.
		if w := x.where.Load(); x != s && w != 0 && int(w>>32) != tid {
			cores.Set(int(uint32(w)))
		}
	}
	return cores
}

// leave moves the calling thread to a core that is not taken, if it may use one, and returns the core that it is on then.
func leave(taken *unix.CPUSet) int32 {
	runtime.LockOSThread() // what is changed here is the thread's
	defer runtime.UnlockOSThread()
	var allowed, free unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return thisCore()
	}
	for i := range free {
		free[i] = allowed[i] &^ taken[i]
	}
	if free.Count() == 0 || unix.SchedSetaffinity(0, &free) != nil {
		return thisCore()
	}
	core := thisCore()
	_ = unix.SchedSetaffinity(0, &allowed) // it stays where it is until the kernel finds a reason
	return core
}

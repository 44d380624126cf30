package ring

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Values of linux/futex.h. Neither is private: the word may lie in memory that two processes share.
const (
	futexOpWait = 0
	futexOpWake = 1
)

// futexWake wakes one waiter. RawSyscall: it takes well below a microsecond and must not make a polling worker give up its P.
func futexWake(word *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1, 0, 0, 0)
}

// shortWait is the longest sleep in which a thread keeps its P. To give it up and take it back rouses the runtime's monitor, which costs
// as much as the sleep itself; to keep it holds up whoever stops the world.
const shortWait = time.Millisecond

// futexWait sleeps while *word is seen. EAGAIN, EINTR and ETIMEDOUT all mean "look again".
func futexWait(word *atomic.Uint32, seen uint32, timeout time.Duration) {
	if timeout < 0 {
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(seen), 0, 0, 0)
		return
	}
	ts := unix.NsecToTimespec(int64(timeout))
	if timeout <= shortWait {
		unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(seen), uintptr(unsafe.Pointer(&ts)), 0, 0)
		return
	}
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(seen), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

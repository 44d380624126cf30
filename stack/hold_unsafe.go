package stack

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Values of linux/futex.h; the word is private to the process.
const (
	futexWaitPrivate = 0 | 128
	futexWakePrivate = 1 | 128
)

// rawWait sleeps while *word is seen, for d at most. It is a raw system call: the scheduler is not told, so the thread keeps its
// processor, in Go's sense, while the core is free.
func rawWait(word *atomic.Uint32, seen uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitPrivate, uintptr(seen), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// rawWake ends the sleeps of all who wait for word.
func rawWake(word *atomic.Uint32) {
	word.Add(1)
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate, 1<<30, 0, 0, 0)
}

// thisCore is the core that the calling thread runs on.
func thisCore() int32 {
	var core uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0)
	return int32(core)
}

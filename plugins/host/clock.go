package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// The manager lives in real time: processes start, die and are waited for. All its clock reading is here.

func wallNow() time.Time { return time.Now() }

func since(t time.Time) time.Duration { return time.Since(t) }

// sleep waits for d; it reports false if stop closes first.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}

// within waits for done at most d.
func within(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// poll calls ok every millisecond until it is true, or d has passed, or stop closes.
func poll(d time.Duration, stop <-chan struct{}, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); {
		if time.Now().After(end) || !sleep(time.Millisecond, stop) {
			return ok()
		}
	}
	return true
}

// rmdirSoon removes a directory of the kernel's that is busy for a moment.
func rmdirSoon(dir string) {
	for range 200 {
		if err := unix.Rmdir(dir); err != unix.EBUSY {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Package lcore runs functions on OS threads of their own. It needs no libdpdk.
package lcore

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread is a goroutine that is locked to an OS thread and runs the functions sent to it, one after the other.
type Thread chan<- func()

// NewLockedThread starts a Thread that receives its work from ch.
func NewLockedThread(ch chan func()) Thread {
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range ch {
			job()
		}
	}()
	return ch
}

// Exec runs fn on the thread. With wait it returns when fn has ended, else at once.
func (t Thread) Exec(wait bool, fn func()) {
	if !wait {
		t <- fn
		return
	}
	done := make(chan struct{})
	t <- func() {
		defer close(done)
		fn()
	}
	<-done
}

// Gettid returns the kernel's id of the thread.
func (t Thread) Gettid() (tid int) {
	t.Exec(true, func() { tid = unix.Gettid() })
	return tid
}

// SetAffinity binds the thread to CPU id.
func (t Thread) SetAffinity(id uint) error {
	var set unix.CPUSet
	set.Set(int(id))
	return unix.SchedSetaffinity(t.Gettid(), &set)
}

// Close ends the thread after the work that it was sent.
func (t Thread) Close() { close(t) }

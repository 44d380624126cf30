package memlink

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"golang.org/x/sys/unix"
)

// waker wakes a parked receiver through a descriptor: an eventfd if frames come as they are sent, a timerfd if they are released
// at a time of CLOCK_MONOTONIC.
type waker struct {
	fd     int // -1: none
	parked atomic.Bool
	spec   unix.ItimerSpec // under the path's mutex
}

func newWaker(virtual, timer bool) (w *waker, err error) {
	w = &waker{fd: -1}
	switch {
	case virtual:
	case timer:
		w.fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	default:
		w.fd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("memlink: wake descriptor: %w", err)
	}
	return w, nil
}

// now wakes the receiver if it is parked. The sender calls it after it published a frame; the receiver looks for frames after it
// set parked: one of them sees the other.
func (w *waker) now() {
	if w.fd >= 0 && w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(w.fd, one[:]) // fails only if the counter is full: it is readable then
	}
}

// at makes the timerfd readable at t if the receiver is parked. The path's mutex is held.
func (w *waker) at(t plugins.Time) {
	if w.fd >= 0 && w.parked.Load() {
		w.arm(t)
	}
}

// arm sets the timerfd to t; Never disarms it. The path's mutex is held.
func (w *waker) arm(t plugins.Time) {
	if t == plugins.Never {
		w.spec.Value = unix.Timespec{}
	} else {
		w.spec.Value = unix.NsecToTimespec(max(int64(t), 1)) // 0 would disarm it
	}
	_ = unix.TimerfdSettime(w.fd, unix.TFD_TIMER_ABSTIME, &w.spec, nil) // fails only on a bad argument
}

// clear makes the eventfd unreadable.
func (w *waker) clear() {
	w.parked.Store(false)
	if w.fd >= 0 {
		var n [8]byte
		_, _ = unix.Read(w.fd, n[:]) // EAGAIN if nobody wrote
	}
}

func (w *waker) close() error {
	if w.fd < 0 {
		return nil
	}
	return unix.Close(w.fd)
}

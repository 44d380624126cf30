// Package nsenter runs a function inside another network namespace. Sockets and devices stay in the namespace in which they were
// made, so a driver opens its port there and is used from anywhere.
package nsenter

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrExited says that the function ended its goroutine instead of returning.
var ErrExited = errors.New("nsenter: the function called runtime.Goexit")

// Do runs fn inside the network namespace at path, such as /run/netns/client or /proc/4711/ns/net, and returns its error. With an
// empty path it just calls fn. fn runs on a goroutine and thread of its own; goroutines that it starts are not in the namespace.
// The thread is given up if it cannot return to its former namespace.
func Do(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	result := make(chan error, 1)
	go func() {
		err := ErrExited
		defer func() { result <- err }()
		err = onThread(path, fn)
	}()
	return <-result
}

// onThread locks the calling goroutine to its thread and moves the thread. Without UnlockOSThread the thread ends with the goroutine.
func onThread(path string, fn func() error) error {
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer unix.Close(target)
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("own network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s (needs CAP_SYS_ADMIN): %w", path, err)
	}
	defer func() {
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

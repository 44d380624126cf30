package pmdtest

import (
	"runtime"
	"time"
)

// patience is how long the suite waits for something that must happen. The suite's own test shortens it.
var patience = 10 * time.Second

// settle is how long the suite listens for something that must not happen, or for stragglers.
const settle = 50 * time.Millisecond

// until calls step until it reports true, for at most d, and reports whether it did.
func until(d time.Duration, step func() bool) bool {
	end := time.Now().Add(d)
	for i := 0; ; i++ {
		if step() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		if i < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

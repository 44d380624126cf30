package stack

import (
	"runtime"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// rounds drives h through rounds of the given length, for d, from t on.
func rounds(h *hold, t plugins.Time, gap, d time.Duration) plugins.Time {
	for end := t.Add(d); t < end; {
		t = t.Add(gap)
		h.round(t)
	}
	return t
}

// The hold begins after a time of short rounds, ends with a long one, and begins again.
func TestHold(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var h hold
	defer h.end()
	now := rounds(&h, 1e9, 50*time.Microsecond, holdAfter/2)
	if h.wanted.Load() {
		t.Fatal("holds at once")
	}
	now = rounds(&h, now, 50*time.Microsecond, holdAfter)
	if !h.wanted.Load() {
		t.Fatal("does not hold")
	}
	h.round(now.Add(longRound + 1))
	if h.wanted.Load() {
		t.Fatal("holds although an application computes")
	}
	now = rounds(&h, now.Add(longRound+1), 50*time.Microsecond, 2*holdAfter)
	if !h.wanted.Load() {
		t.Fatal("does not hold again")
	}
}

// No poller holds a processor that another one needs.
func TestHoldLeavesOtherPollers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	before := pollers.Load()
	defer pollers.Store(before)
	pollers.Store(1)
	var h hold
	defer h.end()
	now := rounds(&h, 1e9, 50*time.Microsecond, 2*holdAfter)
	if !h.wanted.Load() {
		t.Fatal("one poller alone does not hold")
	}
	pollers.Store(2)
	now = rounds(&h, now, 50*time.Microsecond, 2*holdAfter)
	if h.wanted.Load() {
		t.Fatal("holds the other poller's processor")
	}
	pollers.Store(1)
	rounds(&h, now, 50*time.Microsecond, 2*holdAfter)
	if !h.wanted.Load() {
		t.Fatal("does not hold again")
	}
}

// With all processors held others still run: the one that is held is given back every holdFor.
func TestHoldLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	before := runtime.NumGoroutine()
	var h hold
	now := rounds(&h, 1e9, 50*time.Microsecond, 2*holdAfter)
	done := make(chan bool)
	go func() {
		for range 100 {
			runtime.Gosched()
		}
		close(done)
	}()
	for end := time.Now().Add(10 * time.Second); ; { // this goroutine never blocks, as the poller
		now = now.Add(time.Microsecond)
		h.round(now)
		select {
		case <-done:
		default:
			if time.Now().After(end) {
				t.Fatal("another goroutine never ran")
			}
			continue
		}
		break
	}
	runtime.GC() // stops the world, with a thread in a raw system call
	h.end()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() { // what has ended may not be gone yet
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left", runtime.NumGoroutine()-before)
		}
	}
	h.end() // of a hold that is not in use
}

// Machines with many processors are left alone.
func TestHoldNotMany(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(maxHeld + 2))
	var h hold
	rounds(&h, 1e9, 50*time.Microsecond, 2*holdAfter)
	if h.wanted.Load() || h.n != 0 {
		t.Errorf("holds, with %d goroutines", h.n)
	}
}

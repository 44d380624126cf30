package stack

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A poller sees the cores of others: not its own, not those of pollers that sleep, and not that of one that was seen on its own thread,
// which must be on another by now.
func TestSeatTaken(t *testing.T) {
	const tid = 1000
	var mine, asleep, swapped, other seat
	mine.where.Store(place(tid, 1))
	swapped.where.Store(place(tid, 2))
	other.where.Store(place(tid+1, 70))
	got := mine.taken([]*seat{&mine, &asleep, &swapped, &other}, tid)
	var want unix.CPUSet
	want.Set(70)
	if got != want {
		t.Errorf("taken %v, want %v", got, want)
	}
}

// A thread that leaves a core may use it again later; one that may use no other stays.
func TestSeatLeave(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !allowed.IsSet(first) {
		first++
	}
	var taken unix.CPUSet
	taken.Set(first)
	for i := range 100 {
		if got := leave(&taken); got == int32(first) && allowed.Count() > 1 {
			t.Fatalf("%d: on core %d, which is taken", i, got)
		}
	}
	if got := leave(&allowed); !allowed.IsSet(int(got)) {
		t.Errorf("on core %d, which it may not use", got)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if after != allowed {
		t.Errorf("the thread may use %v, before %v", after, allowed)
	}
}

// Seats are given up.
func TestSeats(t *testing.T) {
	has := func(s *seat) bool {
		for _, x := range *seats.all.Load() {
			if x == s {
				return true
			}
		}
		return false
	}
	var a, b seat
	a.take()
	b.take()
	a.look(1)
	if a.where.Load() == 0 {
		t.Error("no place after a look")
	}
	if a.sleep(); a.where.Load() != 0 {
		t.Error("a place while asleep")
	}
	if a.giveUp(); has(&a) || !has(&b) {
		t.Error("the wrong seat was given up")
	}
	b.giveUp()
}

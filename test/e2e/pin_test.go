package e2e

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// pin keeps this process, and those that it starts from now on, on one CPU until the test ends.
func pin(t *testing.T) {
	t.Helper()
	var was, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if was.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	setAffinity(t, &one)
	t.Cleanup(func() { setAffinity(t, &was) })
}

// setAffinity sets it for all threads. One that is made meanwhile may be missed, hence twice.
func setAffinity(t *testing.T, set *unix.CPUSet) {
	t.Helper()
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
				t.Fatal(err)
			}
		}
	}
}

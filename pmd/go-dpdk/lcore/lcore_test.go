package lcore

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestThread(t *testing.T) {
	th := NewLockedThread(make(chan func()))
	defer th.Close()
	tid := th.Gettid()
	for range 100 {
		th.Exec(true, func() {
			if unix.Gettid() != tid {
				t.Error("the thread changed")
			}
		})
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	if err := th.SetAffinity(uint(cpu)); err != nil {
		t.Fatal(err)
	}
	th.Exec(true, func() {
		var got unix.CPUSet
		if err := unix.SchedGetaffinity(0, &got); err != nil || got.Count() != 1 || !got.IsSet(cpu) {
			t.Errorf("affinity has %d CPUs, error %v, want only CPU %d", got.Count(), err, cpu)
		}
	})
}

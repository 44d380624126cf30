package daemon

import (
	"os"
	"testing"
)

// Threads of a Go program have waited for a processor at least once; the figures only grow.
func TestReadMachine(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("this kernel does not tell how long threads waited: ", err)
	}
	m := readMachine()
	if m.WaitedNS <= 0 || m.StolenNS < 0 {
		t.Errorf("%+v", m)
	}
	d := &Daemon{machine: m}
	if s := d.machineStat(); s.WaitedNS < 0 || s.StolenNS < 0 {
		t.Errorf("since then: %+v", s)
	}
}

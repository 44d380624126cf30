package daemon

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// userHZ is the unit of /proc/stat: ticks per second, the same on all Linux machines that Go runs on.
const userHZ = 100

// machineStat is what the machine took from the daemon since its start. Threads that have ended since are not counted any more.
func (d *Daemon) machineStat() control.MachineStat {
	m := readMachine()
	return control.MachineStat{WaitedNS: max(m.WaitedNS-d.machine.WaitedNS, 0), StolenNS: max(m.StolenNS-d.machine.StolenNS, 0)}
}

// readMachine reads what the machine has taken from this process so far: its threads' waits for a processor (/proc/PID/task/TID/schedstat, second
// field), and the time that the hypervisor gave to others (/proc/stat, eighth figure). What the kernel does not tell is 0.
func readMachine() (m control.MachineStat) {
	threads, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if err != nil {
			continue // the thread has ended
		}
		if f := strings.Fields(string(b)); len(f) >= 2 {
			ns, _ := strconv.ParseInt(f[1], 10, 64)
			m.WaitedNS += ns
		}
	}
	f, err := os.Open("/proc/stat")
	if err != nil {
		return m
	}
	defer f.Close()
	if sc := bufio.NewScanner(f); sc.Scan() {
		if v := strings.Fields(sc.Text()); len(v) >= 9 && v[0] == "cpu" {
			ticks, _ := strconv.ParseInt(v[8], 10, 64)
			m.StolenNS = ticks * (1e9 / userHZ)
		}
	}
	return m
}

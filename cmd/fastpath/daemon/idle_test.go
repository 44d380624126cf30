package daemon

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// An idle daemon sleeps: less than 3 % of a core.
func TestIdle(t *testing.T) {
	start(t, withoutProcesses)
	checkIdle(t)
}

// checkIdle measures the process up to three times: other work of the machine can only make it look busier.
func checkIdle(t *testing.T) {
	t.Helper()
	time.Sleep(300 * time.Millisecond) // what the start has left to do
	runtime.GC()
	share := 1.0
	for i := 0; i < 3 && share > 0.03; i++ {
		cpu, at := processTime(t), time.Now()
		time.Sleep(time.Second)
		share = min(share, float64(processTime(t)-cpu)/float64(time.Since(at)))
	}
	t.Logf("%.2f %% of a core", share*100)
	if share > 0.03 {
		t.Errorf("an idle daemon uses %.1f %% of a core", share*100)
	}
}

func processTime(t *testing.T) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// defaultModules is pair without modules that stand by. None is late because the machine is busy: it would be told again of its flows when
// it comes back.
var defaultModules = pair[:strings.Index(pair, "[[module]]")]

// Idle means idle, with all kinds of modules in processes, too, in one as by default or in three: after traffic, with a connection that says nothing, daemon and modules together
// use less than 3 % of a core, and no module is told anything.
func TestIdleProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		count int
	}{
		"apart":    {defaultModules + "[modules]\ntogether = []\n", 3},
		"together": {defaultModules, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, c.text)
			conn := d.dial("10.9.0.1:7")
			defer conn.Close()
			msg := make([]byte, 1<<20)
			go func() { _, _ = conn.Write(msg) }()
			if _, err := io.ReadFull(conn, msg); err != nil {
				t.Fatal(err)
			}
			pids, events := map[int]bool{}, uint64(0)
			look := func() {
				events = 0
				for _, m := range call[control.ModulesReply](d, control.OpModules, nil).Modules {
					if events += m.Events; m.PID != 0 {
						pids[m.PID] = true
					}
				}
			}
			time.Sleep(500 * time.Millisecond) // what start and traffic have left to do
			runtime.GC()
			look()
			if len(pids) != c.count || events == 0 {
				t.Fatalf("processes %v, %d events", pids, events)
			}
			before, share := events, 1.0
			for i := 0; i < 3 && share > 0.03; i++ { // other work of the machine can only make them look busier
				used := func() time.Duration {
					sum := processTime(t)
					for pid := range pids {
						sum += threadsTime(t, pid)
					}
					return sum
				}
				cpu, at := used(), time.Now()
				time.Sleep(time.Second)
				share = min(share, float64(used()-cpu)/float64(time.Since(at)))
			}
			t.Logf("%.2f %% of a core", share*100)
			if share > 0.03 {
				t.Errorf("daemon and modules use %.1f %% of a core", share*100)
			}
			if look(); events != before || len(pids) != c.count {
				t.Errorf("%d events to idle modules, processes %v", events-before, pids)
			}
		})
	}
}

// threadsTime is how long the threads of a process have run.
func threadsTime(t *testing.T, pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		var ran int64
		if err == nil {
			_, err = fmt.Sscan(string(b), &ran)
		}
		if err != nil {
			t.Log(err) // a thread that has ended
		}
		sum += time.Duration(ran)
	}
	if sum == 0 {
		t.Fatalf("process %d has no time", pid)
	}
	return sum
}

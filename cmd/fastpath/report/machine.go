package report

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ThisMachine describes the machine and measures its scheduling gaps for a time.
func ThisMachine(measure time.Duration) Machine {
	m := Machine{CPU: cpuModel("/proc/cpuinfo"), Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), GoVersion: runtime.Version(),
		OS: runtime.GOOS, Arch: runtime.GOARCH, Gaps: MeasureGaps(measure)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

func cpuModel(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if key, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// MeasureGaps reads the clock without pause for a time, on a thread of its own, and notes when it did not run.
func MeasureGaps(measure time.Duration) Gaps {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var g Gaps
	start := time.Now()
	for last := time.Duration(0); last < measure; {
		now := time.Since(start)
		if gap := now - last; gap > 10*time.Microsecond {
			g.Over10us++
			g.LostNS += int64(gap)
			g.MaxNS = max(g.MaxNS, int64(gap))
		}
		last = now
		g.MeasuredNS = int64(now)
	}
	if g.MeasuredNS > 0 {
		g.LostShare = float64(g.LostNS) / float64(g.MeasuredNS)
	}
	return g
}

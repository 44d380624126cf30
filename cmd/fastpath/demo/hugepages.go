package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// wantHugepages of 2 MiB are enough for the port's buffers and rings.
const wantHugepages = 128

// hugepages remembers what was reserved before, in a file too, for the demo after one that could not give it back.
type hugepages struct {
	number, meminfo string // the kernel's files
	record          string // "PID BEFORE", while pages are reserved
	before          int
	changed         bool
}

// newHugepages keeps its record beside the control socket.
func newHugepages(socket string) hugepages {
	return hugepages{number: "/proc/sys/vm/nr_hugepages", meminfo: "/proc/meminfo", record: filepath.Join(filepath.Dir(socket), "hugepages")}
}

// sweep gives back what a demo reserved that was killed.
func (h *hugepages) sweep(say func(string)) {
	text, err := os.ReadFile(h.record)
	if err != nil {
		return
	}
	var pid, before int
	if _, err := fmt.Sscan(string(text), &pid, &before); err == nil && pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return // it will give them back itself
	} else if err == nil && pid > 0 && before >= 0 {
		if n, err := readInt(h.number); err == nil && n > before {
			back := min(n-before, wantHugepages) // what is above was reserved by others meanwhile
			if err := writeInt(h.number, n-back); err != nil {
				say(fmt.Sprintf("%d hugepages that a demo reserved and did not give back stay reserved: %v", back, err))
				return
			}
			say(fmt.Sprintf("gave back %d hugepages that process %d, a demo, had reserved", back, pid))
		}
	}
	os.Remove(h.record)
}

// reserve sees to it that there are free hugepages for DPDK, where the machine lets it. Otherwise it says so; the daemon then runs with
// --no-huge.
func (h *hugepages) reserve(say func(string)) {
	free, err := h.free()
	if err == nil && free >= wantHugepages {
		return
	}
	if h.before, err = readInt(h.number); err == nil {
		// First the record: whenever the demo is killed, what lies above it is what was reserved.
		if err = os.WriteFile(h.record, fmt.Appendf(nil, "%d %d\n", os.Getpid(), h.before), 0o600); err == nil {
			h.changed = true
			err = writeInt(h.number, h.before+wantHugepages)
		}
	}
	if err != nil {
		say(fmt.Sprintf("no hugepages: %v; DPDK runs with --no-huge", err))
		_ = h.restore()
		return
	}
	if free, err = h.free(); err != nil || free < wantHugepages {
		say(fmt.Sprintf("the kernel gives only %d free hugepages of %d; DPDK runs with --no-huge", free, wantHugepages))
		_ = h.restore() // none is better than too few
		return
	}
	say(fmt.Sprintf("reserved %d hugepages", wantHugepages))
}

// restore gives back what reserve took.
func (h *hugepages) restore() error {
	if !h.changed {
		return nil
	}
	h.changed = false
	if err := writeInt(h.number, h.before); err != nil {
		return err
	}
	return os.Remove(h.record)
}

func (h *hugepages) free() (int, error) {
	b, err := os.ReadFile(h.meminfo)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "HugePages_Free:"); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, nil
}

func readInt(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func writeInt(path string, n int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, n)
	return err
}

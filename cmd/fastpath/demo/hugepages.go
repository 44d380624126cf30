package demo

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	nrHugepages = "/proc/sys/vm/nr_hugepages"
	// wantHugepages of 2 MiB are enough for the port's buffers and rings.
	wantHugepages = 128
)

// hugepages remembers what was reserved before.
type hugepages struct {
	before  int
	changed bool
}

// reserve sees to it that there are free hugepages for DPDK, where the machine lets it. Otherwise it says so; the daemon then runs with
// --no-huge.
func (h *hugepages) reserve(say func(string)) {
	free, err := freeHugepages()
	if err == nil && free >= wantHugepages {
		return
	}
	if h.before, err = readInt(nrHugepages); err != nil {
		say(fmt.Sprintf("no hugepages: %v; DPDK runs with --no-huge", err))
		return
	}
	if err := writeInt(nrHugepages, h.before+wantHugepages); err != nil {
		say(fmt.Sprintf("no hugepages: %v; DPDK runs with --no-huge", err))
		return
	}
	h.changed = true
	if free, err = freeHugepages(); err != nil || free < wantHugepages {
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
	return writeInt(nrHugepages, h.before)
}

func freeHugepages() (int, error) {
	b, err := os.ReadFile("/proc/meminfo")
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
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, n)
	return err
}

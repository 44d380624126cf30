package conf

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a configuration is checked against.
type Machine struct {
	Present  []int            // CPUs that exist
	Allowed  []int            // CPUs that this process may run on
	Isolated []int            // CPUs that the scheduler leaves alone (isolcpus)
	NoHz     []int            // CPUs without a timer tick while one task runs (nohz_full)
	IRQs     map[int][]string // CPU → names of the device interrupts that may fire there
	Siblings map[int][]int    // CPU → CPUs on the same physical core, itself included
	Free     []string         // hugepage sizes with free pages: "2048kB"
	Root     string           // where /proc and /sys are; "" in production
	Force    bool             // ports may be on devices that carry the default route

	Addresses func(iface string) []netip.Prefix // that the kernel has on an interface; nil: they are not known
}

// ReadMachine describes this machine. root is put before /proc and /sys.
func ReadMachine(root string) (*Machine, error) {
	m := &Machine{IRQs: map[int][]string{}, Siblings: map[int][]int{}, Root: root, Addresses: kernelAddresses}
	cpu := filepath.Join(root, "/sys/devices/system/cpu")
	var err error
	if m.Present, err = readCPUs(filepath.Join(cpu, "present")); err != nil {
		return nil, err
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading the allowed CPUs: %w", err)
	}
	for _, c := range m.Present {
		if set.IsSet(c) {
			m.Allowed = append(m.Allowed, c)
		}
		if s, err := readCPUs(filepath.Join(cpu, fmt.Sprintf("cpu%d/topology/thread_siblings_list", c))); err == nil {
			m.Siblings[c] = s
		}
	}
	// A kernel without these features lacks the files: no CPU is isolated then.
	m.Isolated, _ = readCPUs(filepath.Join(cpu, "isolated"))
	m.NoHz, _ = readCPUs(filepath.Join(cpu, "nohz_full"))
	m.readIRQs()
	sizes, _ := filepath.Glob(filepath.Join(root, "/sys/kernel/mm/hugepages/hugepages-*"))
	for _, s := range sizes {
		if b, err := os.ReadFile(filepath.Join(s, "free_hugepages")); err == nil && strings.TrimSpace(string(b)) != "0" {
			m.Free = append(m.Free, strings.TrimPrefix(filepath.Base(s), "hugepages-"))
		}
	}
	return m, nil
}

// readIRQs finds the interrupts with a device that may fire on each CPU.
func (m *Machine) readIRQs() {
	lists, _ := filepath.Glob(filepath.Join(m.Root, "/proc/irq/*/smp_affinity_list"))
	for _, f := range lists {
		dir := filepath.Dir(f)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(entries, os.DirEntry.IsDir) // the device that requested the interrupt, if there is one
		if i < 0 {
			continue
		}
		cpus, err := readCPUs(f)
		if err != nil {
			continue
		}
		for _, c := range cpus {
			m.IRQs[c] = append(m.IRQs[c], fmt.Sprintf("%s (%s)", filepath.Base(dir), entries[i].Name()))
		}
	}
	for _, names := range m.IRQs {
		slices.Sort(names)
	}
}

func readCPUs(file string) ([]int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUs(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cpus, nil
}

// maxCPU bounds what ParseCPUs expands.
const maxCPU = 1 << 16

// ParseCPUs reads the kernel's list format, "0-3,8". An empty list gives none.
func ParseCPUs(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "(null)" { // nohz_full without the boot option
		return nil, nil
	}
	var cpus []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(lo, 10, 16)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(hi, 10, 16)
		}
		if err != nil || a > b || len(cpus)+int(b-a) >= maxCPU {
			return nil, fmt.Errorf("%q is not a list of CPUs", s)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, int(c))
		}
	}
	return cpus, nil
}

//go:build dpdk

package dpdk

/*
#include <stdlib.h>
#include <string.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf_pool_ops.h>
#include "shim.h"

// prefer_stack makes mempools hand out the buffers that came back last. Each has one user, so its lock costs nothing; and threads that run
// Go have no mempool cache of EAL's, so that with the default, a ring, a PMD would copy each frame into memory that is not in the
// processor's caches. --mbuf-pool-ops-name takes precedence. A static program may lack this kind.
static void prefer_stack(void)
{
	for (uint32_t i = 0; i < rte_mempool_ops_table.num_ops; i++)
		if (strcmp(rte_mempool_ops_table.ops[i].name, "stack") == 0)
			rte_mbuf_set_platform_mempool_ops("stack");
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/yerden/go-dpdk/eal"
	"golang.org/x/sys/unix"
)

// Available reports whether the program was built with DPDK.
const Available = true

const defaultMemory = 256 << 20

// environment is EAL's state. mu is held through every change of DPDK's devices: DPDK asks for that.
var environment struct {
	mu        sync.Mutex
	started   bool
	ended     bool
	pci       bool
	abandoned bool     // a device is left to the end of the process
	err       error    // of the start, which cannot be tried again
	open      []string // devices of open ports
}

// start starts EAL unless it runs. The caller holds mu.
func start(e *EAL, d device) error {
	env := &environment
	switch {
	case env.ended:
		return ErrShutdown
	case env.err != nil:
		return env.err
	case env.started:
		return nil
	}
	args, setting, err := e.args(d)
	if err != nil {
		return err
	}
	if C.fp_log_open() != 0 {
		return &Error{Op: "cannot divert DPDK's log", Err: syscall.ENOMEM}
	}
	mark := C.fp_log_mark()
	_, err = eal.Init(args)
	// EAL makes this folder in any case, and puts nothing into it with the arguments above.
	if dir := C.GoString(C.rte_eal_get_runtime_dir()); os.Remove(dir) == nil {
		os.Remove(filepath.Dir(dir)) // fails while other DPDK processes have theirs in it
	}
	if err != nil {
		env.err = &Error{Op: "EAL does not start with " + strings.Join(args[1:], " "), Setting: setting, Err: err, Log: logSince(mark)}
		return env.err
	}
	C.prefer_stack()
	env.started, env.pci = true, len(e.pci(d)) > 0
	return nil
}

func (e *EAL) pci(d device) []string {
	if len(e.PCI) == 0 && d.bus == "pci" {
		return []string{d.name}
	}
	return e.PCI
}

// args builds EAL's command line, and names the setting that is most likely wrong if EAL refuses it.
func (e *EAL) args(d device) (args []string, setting string, err error) {
	cpus, err := allowedCPUs()
	if err != nil {
		return nil, "", err
	}
	// One lcore that may run on all CPUs of the process: workers are goroutines, not EAL threads.
	args = []string{"fastpath", "--lcores", "0@(" + cpus + ")", "--no-telemetry"}
	prefix := e.FilePrefix
	if prefix == "" {
		prefix = "fastpath-" + strconv.Itoa(os.Getpid())
	}
	args = append(args, "--file-prefix", prefix)
	memory := e.memory()
	huge, free, err := e.huge()
	if err != nil {
		return nil, "", err
	}
	if huge && free < memory {
		return nil, "", &Error{Setting: fmt.Sprintf("hugepages = %q, memory = %d", e.Hugepages, memory),
			Op: fmt.Sprintf("%d MB of hugepages are free: %s", free>>20, moreHugepages(memory)), Err: syscall.ENOMEM}
	}
	if huge {
		// No files; one descriptor for all memory, since a vhost-user backend takes eight at most.
		args = append(args, "--in-memory", "--single-file-segments")
		setting = quoted("hugepages", e.Hugepages)
	} else {
		args = append(args, "--no-shconf", "--no-huge", "-m", strconv.FormatInt(memory>>20, 10))
		setting = fmt.Sprintf("memory = %d", memory)
	}
	pci := e.pci(d)
	if len(pci) == 0 {
		args = append(args, "--no-pci")
	}
	for _, addr := range pci {
		args = append(args, "-a", addr)
	}
	if len(e.Args) > 0 {
		setting = fmt.Sprintf("args = %q", e.Args)
	}
	return append(args, e.Args...), setting, nil
}

// memory is what EAL takes at its start, or needs to be there, in bytes.
func (e *EAL) memory() int64 {
	if e.Memory == 0 {
		return defaultMemory
	}
	return e.Memory
}

// huge reports whether EAL is to use hugepages, and how many bytes of them are free.
func (e *EAL) huge() (huge bool, free int64, err error) {
	free = freeHugepages()
	switch e.Hugepages {
	case "", HugepagesAuto:
		return free >= e.memory(), free, nil
	case HugepagesOff:
		return false, free, nil
	case HugepagesRequire:
		return true, free, nil
	}
	return false, free, &Error{Setting: quoted("hugepages", e.Hugepages), Op: "want auto, require or off", Err: syscall.EINVAL}
}

// moreHugepages is the command that reserves memory.
func moreHugepages(memory int64) string {
	const page = 2 << 20
	return fmt.Sprintf("echo %d > /proc/sys/vm/nr_hugepages", (memory+page-1)/page)
}

// allowedCPUs lists the CPUs that the process may use, "0,1,5".
func allowedCPUs() (string, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", fmt.Errorf("dpdk: affinity of the process: %w", err)
	}
	var list []string
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			list = append(list, strconv.Itoa(cpu))
		}
	}
	return strings.Join(list, ","), nil
}

// freeHugepages is the size of all free hugepages in bytes.
func freeHugepages() (n int64) {
	dirs, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	for _, dir := range dirs {
		var kb, pages int64
		fmt.Sscanf(filepath.Base(dir), "hugepages-%dkB", &kb)
		b, err := os.ReadFile(filepath.Join(dir, "free_hugepages"))
		if err != nil {
			continue
		}
		fmt.Sscan(string(b), &pages)
		n += kb << 10 * pages
	}
	return n
}

// attach makes DPDK probe the device, in the caller's network namespace. The caller holds mu.
func attach(c *Config, d device) error {
	if d.bus == "pci" && !environment.pci {
		return &Error{Port: c.Name, Setting: c.deviceValue(), Op: "EAL was started without the PCI bus; list the device in EAL.PCI", Err: syscall.ENODEV}
	}
	bus, name, args := C.CString(d.bus), C.CString(d.name), C.CString(d.args)
	defer C.free(unsafe.Pointer(bus))
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(args))
	mark := C.fp_log_mark()
	rc := C.rte_eal_hotplug_add(bus, name, args)
	if rc >= 0 {
		return nil
	}
	err := errors.New("the PMD refused it") // -1 stands for no errno
	switch path, makes := d.socket(); {
	case rc == -C.int(syscall.EFAULT) && d.bus == "vdev":
		return &Error{Port: c.Name, Setting: c.deviceValue(), Op: "this program has no DPDK driver whose name that of the device begins with", Err: syscall.ENODEV}
	case path != "" && !makes && refuses(path):
		return &Error{Port: c.Name, Setting: c.deviceValue(), Op: "nobody listens on the socket: start the other end first", Err: syscall.ECONNREFUSED}
	case rc != -1:
		err = syscall.Errno(-rc)
	}
	return &Error{Port: c.Name, Setting: c.deviceValue(), Op: "DPDK cannot attach the device", Err: err, Log: logSince(mark)}
}

// detach undoes attach. The caller holds mu.
func detach(d device) error {
	bus, name := C.CString(d.bus), C.CString(d.name)
	defer C.free(unsafe.Pointer(bus))
	defer C.free(unsafe.Pointer(name))
	mark := C.fp_log_mark()
	if rc := C.rte_eal_hotplug_remove(bus, name); rc < 0 {
		return &Error{Port: d.name, Op: "DPDK cannot detach the device", Err: syscall.Errno(-rc), Log: logSince(mark)}
	}
	return nil
}

// logSince returns the last lines that DPDK logged since mark.
func logSince(mark C.uint64_t) []string {
	const most = 12
	buf := make([]byte, 8<<10)
	n := C.fp_log_since(mark, (*C.char)(unsafe.Pointer(&buf[0])), C.size_t(len(buf)))
	var lines []string
	for l := range strings.Lines(string(buf[:n])) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines[max(0, len(lines)-most):]
}

// Shutdown ends EAL, at the end of the process. All ports must be closed.
func Shutdown() error {
	env := &environment
	env.mu.Lock()
	defer env.mu.Unlock()
	if len(env.open) > 0 {
		return fmt.Errorf("dpdk: shutdown while ports are open: %s", strings.Join(env.open, ", "))
	}
	if !env.started || env.ended {
		return nil
	}
	env.ended = true
	if env.abandoned { // EAL would close its device
		return nil
	}
	if err := eal.Cleanup(); err != nil && !errors.Is(err, syscall.ENOTSUP) {
		return fmt.Errorf("dpdk: EAL cleanup: %w", err)
	}
	return nil
}

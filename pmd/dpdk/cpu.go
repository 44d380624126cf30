package dpdk

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/cpu"
)

// checkCPU wants the instructions that DPDK's libraries use in any case: they are compiled for Intel's Nehalem (-march=corei7) and later.
func checkCPU(has func(flag string) bool) error {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	var missing []string
	for _, f := range []string{"ssse3", "sse4_1", "sse4_2", "popcnt"} {
		if !has(f) {
			missing = append(missing, f)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("the processor lacks %s, which DPDK needs; a virtual machine has it with QEMU's -cpu host, or -cpu max without KVM, "+
		"or with libvirt's <cpu mode='host-passthrough'/>: %w", strings.Join(missing, ", "), syscall.ENOTSUP)
}

// cpuHas knows the flags by the kernel's names.
func cpuHas(flag string) bool {
	switch flag {
	case "ssse3":
		return cpu.X86.HasSSSE3
	case "sse4_1":
		return cpu.X86.HasSSE41
	case "sse4_2":
		return cpu.X86.HasSSE42
	case "popcnt":
		return cpu.X86.HasPOPCNT
	}
	return false
}

package host

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied are system calls that no module needs, and that reach beyond its process. They fail with EPERM.
var denied = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_USERFAULTFD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_IO_URING_SETUP,
}

// arches are those whose numbers of system calls a filter can tell.
var arches = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets in struct seccomp_data (seccomp(2)).
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16 // low half, on little-endian machines
)

// seccompFilter allows all system calls of this architecture but those that are denied, and sockets that are not local.
func seccompFilter(arch uint32) (p []unix.SockFilter) {
	stmt := func(code uint16, k uint32) { p = append(p, unix.SockFilter{Code: code, K: k}) }
	jump := func(code uint16, k uint32, yes, no uint8) {
		p = append(p, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
		refuse  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	stmt(load, dataArch)
	jump(equal, arch, 1, 0)
	stmt(ret, unix.SECCOMP_RET_KILL_PROCESS)
	stmt(load, dataNr)
	jump(atLeast, 0x40000000, 0, 1) // the x32 numbers
	stmt(ret, refuse)
	for _, nr := range denied {
		jump(equal, nr, 0, 1)
		stmt(ret, refuse)
	}
	jump(equal, unix.SYS_SOCKET, 0, 3)
	stmt(load, dataArg0)
	jump(equal, unix.AF_UNIX, 1, 0)
	stmt(ret, refuse)
	stmt(ret, unix.SECCOMP_RET_ALLOW)
	return p
}

// seccomp installs the filter for this thread and what it executes. On other architectures there is none.
func seccomp() error {
	arch, ok := arches[runtime.GOARCH]
	if !ok {
		return nil
	}
	p := seccompFilter(arch)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(p)
	return err
}

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
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_IO_URING_SETUP, unix.SYS_TKILL, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_KCMP,
}

// ownOnly are system calls whose first argument is a process or thread: 0 or this process only, so that a module cannot signal, slow
// down or limit its host, though they may be of the same user.
var ownOnly = []uint32{
	unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PIDFD_OPEN, unix.SYS_PRLIMIT64,
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
}

// arches are those whose numbers of system calls a filter can tell.
var arches = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets in struct seccomp_data (seccomp(2)).
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16 // low half, on little-endian machines
)

// filterProgram is a program of classic BPF.
type filterProgram []unix.SockFilter

func (p *filterProgram) stmt(code uint16, k uint32) {
	*p = append(*p, unix.SockFilter{Code: code, K: k})
}

func (p *filterProgram) jump(code uint16, k uint32, yes, no uint8) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

const (
	bpfLoad     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfEqual    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfAtLeast  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfHas      = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	bpfReturn   = unix.BPF_RET | unix.BPF_K
	refuse      = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	notThere    = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	cloneThread = unix.CLONE_THREAD
)

// seccompFilter allows all system calls of this architecture but those that are denied, those that make a process or act on another one
// than pid, which this one is, and sockets that are not local.
func seccompFilter(arch, pid uint32) (p filterProgram) {
	p.stmt(bpfLoad, dataArch)
	p.jump(bpfEqual, arch, 1, 0)
	p.stmt(bpfReturn, unix.SECCOMP_RET_KILL_PROCESS)
	p.stmt(bpfLoad, dataNr)
	p.jump(bpfAtLeast, 0x40000000, 0, 1) // the x32 numbers
	p.stmt(bpfReturn, refuse)
	for _, nr := range append(denied, forks...) {
		p.jump(bpfEqual, nr, 0, 1)
		p.stmt(bpfReturn, refuse)
	}
	p.jump(bpfEqual, unix.SYS_CLONE3, 0, 1) // its flags are in memory, where a filter cannot look: whoever gets this falls back to clone
	p.stmt(bpfReturn, notThere)
	p.jump(bpfEqual, unix.SYS_CLONE, 0, 4)
	p.stmt(bpfLoad, dataArg0)
	p.jump(bpfHas, cloneThread, 1, 0)
	p.stmt(bpfReturn, refuse)
	p.stmt(bpfReturn, unix.SECCOMP_RET_ALLOW)
	for _, nr := range ownOnly {
		p.jump(bpfEqual, nr, 0, 5)
		p.stmt(bpfLoad, dataArg0)
		p.jump(bpfEqual, 0, 2, 0)
		p.jump(bpfEqual, pid, 1, 0)
		p.stmt(bpfReturn, refuse)
		p.stmt(bpfReturn, unix.SECCOMP_RET_ALLOW)
	}
	p.jump(bpfEqual, unix.SYS_SOCKET, 0, 3)
	p.stmt(bpfLoad, dataArg0)
	p.jump(bpfEqual, unix.AF_UNIX, 1, 0)
	p.stmt(bpfReturn, refuse)
	p.stmt(bpfReturn, unix.SECCOMP_RET_ALLOW)
	return p
}

// seccomp installs the filter for this thread and what it executes. On other architectures there is none.
func seccomp() error {
	arch, ok := arches[runtime.GOARCH]
	if !ok {
		return nil
	}
	p := seccompFilter(arch, uint32(unix.Getpid()))
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(p)
	return err
}

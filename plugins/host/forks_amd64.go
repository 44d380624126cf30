package host

import "golang.org/x/sys/unix"

// forks are the system calls that make a process and nothing else.
var forks = []uint32{unix.SYS_FORK, unix.SYS_VFORK}

//go:build !amd64

package host

// forks are the system calls that make a process and nothing else: there are none.
var forks []uint32

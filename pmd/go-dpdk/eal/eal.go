//go:build dpdk

package eal

/*
#cgo pkg-config: libdpdk
#include <stdlib.h>
#include <rte_eal.h>
#include <rte_errno.h>

// rte_errno belongs to the thread, so it is read before the call returns to Go.
static int eal_init(int argc, char **argv, int *err)
{
	int n = rte_eal_init(argc, argv);

	*err = n < 0 ? rte_errno : 0;
	return n;
}
*/
import "C"

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Init starts EAL with the command line args, whose first element is the program's name. It returns how many of args EAL has
// read. EAL's main thread is a thread that nothing else uses; it exists until the process ends. EAL can be started once.
func Init(args []string) (n int, err error) {
	done := make(chan struct{})
	go func() {
		// EAL sets this thread's affinity and name and takes its id for the main lcore's, so it never goes back to the scheduler.
		runtime.LockOSThread()
		n, err = start(args)
		close(done)
		if err == nil {
			select {}
		}
	}()
	<-done
	return n, err
}

func start(args []string) (int, error) {
	// EAL keeps pointers into argv and may reorder it: the strings live as long as the process, only the array is freed.
	argv := (**C.char)(C.calloc(C.size_t(len(args)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	for i, arg := range args {
		unsafe.Slice(argv, len(args))[i] = C.CString(arg)
	}
	defer C.free(unsafe.Pointer(argv))
	var errno C.int
	n := C.eal_init(C.int(len(args)), argv, &errno)
	if n < 0 {
		return int(n), syscall.Errno(errno)
	}
	return int(n), nil
}

// Cleanup gives back what EAL holds. No DPDK function may be called afterwards.
func Cleanup() error {
	if rc := C.rte_eal_cleanup(); rc != 0 {
		return syscall.Errno(-rc)
	}
	return nil
}

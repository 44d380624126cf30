package mem

import "golang.org/x/sys/unix"

// System maps anonymous memory.
var System = Backing{
	Map: func(n int) ([]byte, error) {
		return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	},
	Unmap:  unix.Munmap,
	Return: func(m []byte) error { return unix.Madvise(m, unix.MADV_DONTNEED) },
}

// Heap is memory of the Go heap.
var Heap = Backing{
	Map:    func(n int) ([]byte, error) { return make([]byte, n), nil },
	Unmap:  func([]byte) error { return nil },
	Return: func([]byte) error { return nil },
}

package tap

import (
	"unsafe"

	"github.com/fastpath-tcp/fastpath/pmd"
	"golang.org/x/sys/unix"
)

// vector is what one writev gathers. The buffers' memory is mapped, not of the Go heap, but for the first piece, which the call keeps alive.
type vector []unix.Iovec

// write writes a frame that begins with first and goes on in more. It reports whether all of it was taken.
func (v *vector) write(fd int, first []byte, more *pmd.Buf) bool {
	add := func(p []byte) int {
		if len(p) == 0 {
			return 0
		}
		i := unix.Iovec{Base: &p[0]}
		i.SetLen(len(p))
		*v = append(*v, i)
		return len(p)
	}
	*v = (*v)[:0]
	want := add(first)
	for ; more != nil; more = more.More {
		want += add(more.Bytes())
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&(*v)[0])), uintptr(len(*v)))
	return errno == 0 && int(n) == want
}

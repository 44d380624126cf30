//go:build packetdrill

package main

/*
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/test/script/posix"
	"golang.org/x/sys/unix"
)

// The functions that table.c calls. They return the call's result, or the negative number of an error.

//export pdNew
func pdNew(flags *C.char) C.uintptr_t {
	text := ""
	if flags != nil {
		text = C.GoString(flags)
	}
	return C.uintptr_t(newInstance(text))
}

//export pdFree
func pdFree(h C.uintptr_t) {
	in := find(uintptr(h))
	if in == nil {
		return
	}
	instMu.Lock()
	delete(instances, uintptr(h))
	instMu.Unlock()
	if err := in.close(); err != nil {
		fmt.Fprintf(os.Stderr, "fastpath: at the end: %v\n", err)
	}
}

func do(h C.uintptr_t, make func(w *posix.World) posix.Call) C.longlong {
	return C.longlong(call(uintptr(h), make))
}

//export pdSocket
func pdSocket(h C.uintptr_t, domain, typ, proto C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.Socket(int(domain), int(typ), int(proto)) })
}

// address reads a socket address.
func address(p unsafe.Pointer, n C.socklen_t) (a netip.AddrPort, ok bool) {
	if p == nil || n < 16 {
		return a, false
	}
	b := unsafe.Slice((*byte)(p), int(n))
	port := binary.BigEndian.Uint16(b[2:])
	switch family := *(*uint16)(p); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), true
	case family == unix.AF_INET6 && n >= 28:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), port), true
	}
	return a, false
}

// putAddress writes a socket address to the *n bytes at p, cut off if there is less room, and sets *n to its whole length.
func putAddress(p unsafe.Pointer, n *C.socklen_t, a netip.AddrPort) {
	if p == nil || n == nil {
		return
	}
	b := make([]byte, 16)
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		copy(b[4:], a.Addr().AsSlice())
	} else {
		b = make([]byte, 28)
		binary.NativeEndian.PutUint16(b, unix.AF_INET6)
		copy(b[8:], a.Addr().AsSlice())
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	copy(unsafe.Slice((*byte)(p), int(*n)), b)
	*n = C.socklen_t(len(b))
}

//export pdBind
func pdBind(h C.uintptr_t, fd C.int, p unsafe.Pointer, n C.socklen_t) C.longlong {
	a, ok := address(p, n)
	if !ok {
		return -C.longlong(syscall.EINVAL)
	}
	return do(h, func(w *posix.World) posix.Call { return w.Bind(int(fd), a) })
}

//export pdListen
func pdListen(h C.uintptr_t, fd, backlog C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.Listen(int(fd), int(backlog)) })
}

//export pdAccept
func pdAccept(h C.uintptr_t, fd C.int, p unsafe.Pointer, n *C.socklen_t) C.longlong {
	var peer netip.AddrPort
	r := do(h, func(w *posix.World) posix.Call { return w.Accept(int(fd), 0, &peer) })
	if r >= 0 {
		putAddress(p, n, peer)
	}
	return r
}

//export pdConnect
func pdConnect(h C.uintptr_t, fd C.int, p unsafe.Pointer, n C.socklen_t) C.longlong {
	a, ok := address(p, n)
	if !ok {
		return -C.longlong(syscall.EINVAL)
	}
	return do(h, func(w *posix.World) posix.Call { return w.Connect(int(fd), a) })
}

// buffers are the pieces of memory of an iovec.
func buffers(v unsafe.Pointer, n C.int) (all [][]byte) {
	if v == nil || n <= 0 {
		return nil
	}
	for _, i := range unsafe.Slice((*C.struct_iovec)(v), int(n)) {
		all = append(all, unsafe.Slice((*byte)(i.iov_base), int(i.iov_len)))
	}
	return all
}

//export pdRead
func pdRead(h C.uintptr_t, fd C.int, v unsafe.Pointer, n, flags C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.Read(int(fd), buffers(v, n), int(flags)) })
}

//export pdWrite
func pdWrite(h C.uintptr_t, fd C.int, v unsafe.Pointer, n, flags C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.Write(int(fd), buffers(v, n), int(flags)) })
}

//export pdFcntl
func pdFcntl(h C.uintptr_t, fd, cmd, arg C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.Fcntl(int(fd), int(cmd), int(arg)) })
}

//export pdIoctl
func pdIoctl(h C.uintptr_t, fd C.int, req C.ulong, arg *C.int) C.longlong {
	if arg == nil {
		return -C.longlong(syscall.EFAULT)
	}
	v := int(*arg)
	r := do(h, func(w *posix.World) posix.Call { return w.Ioctl(int(fd), uint(req), &v) })
	*arg = C.int(v)
	return r
}

//export pdClose
func pdClose(h C.uintptr_t, fd C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.CloseFD(int(fd)) })
}

//export pdShutdown
func pdShutdown(h C.uintptr_t, fd, how C.int) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.Shutdown(int(fd), int(how)) })
}

//export pdPoll
func pdPoll(h C.uintptr_t, f *C.struct_pollfd, n C.ulong, timeout C.int) C.longlong {
	var fds []unix.PollFd
	if n > 0 {
		fds = unsafe.Slice((*unix.PollFd)(unsafe.Pointer(f)), int(n))
	}
	return do(h, func(w *posix.World) posix.Call { return w.Poll(fds, int(timeout)) })
}

//export pdEpollCreate
func pdEpollCreate(h C.uintptr_t) C.longlong {
	return do(h, func(w *posix.World) posix.Call { return w.EpollCreate() })
}

//export pdEpollCtl
func pdEpollCtl(h C.uintptr_t, ep, op, fd C.int, ev *C.struct_epoll_event) C.longlong {
	var e unix.EpollEvent
	if ev != nil {
		e = *(*unix.EpollEvent)(unsafe.Pointer(ev))
	}
	return do(h, func(w *posix.World) posix.Call { return w.EpollCtl(int(ep), int(op), int(fd), e) })
}

//export pdEpollWait
func pdEpollWait(h C.uintptr_t, ep C.int, ev *C.struct_epoll_event, n, timeout C.int) C.longlong {
	if ev == nil || n <= 0 {
		return -C.longlong(syscall.EINVAL)
	}
	out := unsafe.Slice((*unix.EpollEvent)(unsafe.Pointer(ev)), int(n))
	return do(h, func(w *posix.World) posix.Call { return w.EpollWait(int(ep), out, int(timeout)) })
}

//export pdSetsockopt
func pdSetsockopt(h C.uintptr_t, fd, level, name C.int, p unsafe.Pointer, n C.socklen_t) C.longlong {
	if p == nil {
		return -C.longlong(syscall.EFAULT)
	}
	var c func(w *posix.World) posix.Call
	switch key := [2]C.int{level, name}; {
	case key == [2]C.int{unix.SOL_SOCKET, unix.SO_LINGER} && n >= 8:
		l := *(*unix.Linger)(p)
		c = func(w *posix.World) posix.Call { return w.SetLinger(int(fd), l) }
	case (key == [2]C.int{unix.SOL_SOCKET, unix.SO_RCVTIMEO} || key == [2]C.int{unix.SOL_SOCKET, unix.SO_SNDTIMEO}) && n >= C.sizeof_struct_timeval:
		tv := *(*unix.Timeval)(p)
		c = func(w *posix.World) posix.Call {
			return w.SetTimeout(int(fd), int(name), time.Duration(tv.Nano()))
		}
	case n >= 4:
		v := int(*(*C.int)(p))
		c = func(w *posix.World) posix.Call { return w.SetOption(int(fd), int(level), int(name), v) }
	default:
		return -C.longlong(syscall.EINVAL)
	}
	return do(h, c)
}

//export pdGetsockopt
func pdGetsockopt(h C.uintptr_t, fd, level, name C.int, p unsafe.Pointer, n *C.socklen_t) C.longlong {
	if p == nil || n == nil {
		return -C.longlong(syscall.EFAULT)
	}
	put := func(b []byte) { *n = C.socklen_t(copy(unsafe.Slice((*byte)(p), int(*n)), b)) }
	switch [2]C.int{level, name} {
	case [2]C.int{unix.SOL_SOCKET, unix.SO_LINGER}:
		var l unix.Linger
		r := do(h, func(w *posix.World) posix.Call { return w.GetLinger(int(fd), &l) })
		if r >= 0 {
			put(unsafe.Slice((*byte)(unsafe.Pointer(&l)), unsafe.Sizeof(l)))
		}
		return r
	case [2]C.int{unix.IPPROTO_TCP, unix.TCP_INFO}:
		var info unix.TCPInfo
		r := do(h, func(w *posix.World) posix.Call { return w.GetInfo(int(fd), &info) })
		if r >= 0 {
			put(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)))
		}
		return r
	}
	var v int
	r := do(h, func(w *posix.World) posix.Call { return w.GetOption(int(fd), int(level), int(name), &v) })
	if r >= 0 {
		put(binary.NativeEndian.AppendUint32(nil, uint32(v)))
	}
	return r
}

//export pdSend
func pdSend(h C.uintptr_t, p unsafe.Pointer, n C.size_t) C.longlong {
	in := find(uintptr(h))
	if in == nil || p == nil || n > 65535 {
		return -C.longlong(syscall.EINVAL)
	}
	in.inject(unsafe.Slice((*byte)(p), int(n)))
	return 0
}

//export pdReceive
func pdReceive(h C.uintptr_t, p unsafe.Pointer, n *C.size_t, usecs *C.longlong) C.longlong {
	in := find(uintptr(h))
	if in == nil || p == nil || n == nil {
		return -C.longlong(syscall.EINVAL)
	}
	s, ok := in.receive()
	if !ok {
		*n = 0
		return 0
	}
	*n = C.size_t(copy(unsafe.Slice((*byte)(p), int(*n)), s.Packet))
	if usecs != nil {
		*usecs = C.longlong(int64(s.At) / 1000)
	}
	return 0
}

//export pdSleep
func pdSleep(h C.uintptr_t, usecs C.uint) C.longlong {
	in := find(uintptr(h))
	if in == nil {
		return -C.longlong(syscall.EINVAL)
	}
	in.sleep(int64(usecs))
	return 0
}

//export pdTime
func pdTime(h C.uintptr_t) C.longlong {
	in := find(uintptr(h))
	if in == nil {
		return -C.longlong(syscall.EINVAL)
	}
	return C.longlong(in.now())
}

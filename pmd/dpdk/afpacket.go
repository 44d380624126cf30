//go:build dpdk

package dpdk

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packetSockets are the sockets of a net_af_packet device, duplicated, one per queue. The PMD has no way to ask for them.
type packetSockets struct {
	fds    []int
	ifname string

	mu    sync.Mutex
	drops uint64 // frames that the kernel found no room for
}

// openPacketSockets lists the process's packet sockets.
func openPacketSockets() []int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_PACKET {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds
}

// findPacketSockets finds the sockets that appeared since before and are bound to the interface. The PMD opens them in the
// queues' order, so their numbers rise.
func findPacketSockets(before []int, ifindex, queues int) (*packetSockets, error) {
	s := &packetSockets{}
	for _, fd := range openPacketSockets() {
		if slices.Contains(before, fd) {
			continue
		}
		sa, err := unix.Getsockname(fd)
		if ll, ok := sa.(*unix.SockaddrLinklayer); err != nil || !ok || ll.Ifindex != ifindex {
			continue
		}
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("duplicate the PMD's socket: %w", err)
		}
		s.fds = append(s.fds, dup)
	}
	if len(s.fds) != queues {
		n := len(s.fds)
		s.close()
		return nil, fmt.Errorf("the PMD has %d queues, but %d packet sockets on its interface are new", queues, n)
	}
	name, err := ifname(s.fds[0], ifindex)
	if err != nil {
		s.close()
		return nil, err
	}
	s.ifname = name
	return s, nil
}

// burst is the number of frames of that size that the socket certainly takes in one burst while it is writable: then less than
// half of its send buffer is in use, and a frame costs its size and less than 1 KB.
func (s *packetSockets) burst(frame int) int {
	size, err := unix.GetsockoptInt(s.fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return 1
	}
	return max(1, size/2/(frame+1024))
}

// up reports whether the interface is up and has a carrier.
func (s *packetSockets) up() bool {
	r, err := unix.NewIfreq(s.ifname)
	if err != nil || unix.IoctlIfreq(s.fds[0], unix.SIOCGIFFLAGS, r) != nil {
		return false
	}
	const want = unix.IFF_UP | unix.IFF_RUNNING
	return int(r.Uint16())&want == want
}

// mtu is the interface's MTU.
func (s *packetSockets) mtu() (int, error) {
	r, err := unix.NewIfreq(s.ifname)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(s.fds[0], unix.SIOCGIFMTU, r); err != nil {
		return 0, err
	}
	return int(r.Uint32()), nil
}

// dropped is the number of frames that the kernel found no room for in the rings. The kernel's count starts anew with each call.
func (s *packetSockets) dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.fds {
		if st, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			s.drops += uint64(st.Drops)
		}
	}
	return s.drops
}

func (s *packetSockets) close() {
	for _, fd := range s.fds {
		unix.Close(fd)
	}
	s.fds = nil
}

// ifname asks the socket's network namespace for the name of an interface.
func ifname(fd, ifindex int) (string, error) {
	var r struct {
		name  [unix.IFNAMSIZ]byte
		index int32
		_     [20]byte
	}
	r.index = int32(ifindex)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCGIFNAME, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return "", fmt.Errorf("name of interface %d: %w", ifindex, errno)
	}
	return unix.ByteSliceToString(r.name[:]), nil
}

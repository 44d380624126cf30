//go:build dpdk

package dpdk

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkAdvice implements pmd.Adviser: of the roles that a virtual device can have on a vhost-user socket, one does not connect again.
func (p *Port) LinkAdvice() string {
	if !strings.HasPrefix(p.dev.name, "net_virtio_user") || p.dev.listens() != "" {
		return ""
	}
	return "the other end has closed the vhost-user socket, and net_virtio_user as the socket's client does not connect again: " +
		"restart fastpath, or let it be the server: server=1 in vdev, client=1 at the other end"
}

// Warnings implements pmd.Adviser.
func (p *Port) Warnings() []string { return p.warnings }

// unfinished warns of a veth pair whose other end may hand over frames that net_af_packet cannot take. It is called in the interface's
// namespace. What the other end does is known only if that is in the same one.
func unfinished(iface string) []string {
	l, err := netlink.LinkByName(iface)
	if err != nil || l.Type() != "veth" {
		return nil
	}
	peer := "PEER"
	if l.Attrs().NetNsID < 0 {
		other, err := netlink.LinkByIndex(l.Attrs().ParentIndex)
		if err != nil {
			return nil
		}
		peer = other.Attrs().Name
		if on, err := txChecksumming(peer); err == nil && !on {
			return nil
		}
	}
	return []string{fmt.Sprintf("net_af_packet drops frames with unfinished checksums and those beyond the MTU, which the kernel sends over a veth pair "+
		"while the other end's offloads are on: ethtool -K %s tx off tso off gso off", peer)}
}

// txChecksumming reports whether an interface leaves checksums to its hardware, or to whoever receives its frames.
func txChecksumming(name string) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	v := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GTXCSUM} // struct ethtool_value
	r := struct {                                              // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&v)}
	copy(r.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return false, errno
	}
	return v.data != 0, nil
}

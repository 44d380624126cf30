package netns

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is the kernel's struct ethtool_value.
type ethtoolValue struct {
	cmd, data uint32
}

// ifreqData is a struct ifreq whose union holds a pointer.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data *ethtoolValue
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// offloads are the switches of OffloadsOff. Those that depend on others come first.
var offloads = []struct {
	name string
	cmd  uint32
}{
	{"tcp-segmentation-offload", unix.ETHTOOL_STSO},
	{"generic-segmentation-offload", unix.ETHTOOL_SGSO},
	{"generic-receive-offload", unix.ETHTOOL_SGRO},
	{"scatter-gather", unix.ETHTOOL_SSG},
	{"tx-checksumming", unix.ETHTOOL_STXCSUM},
	{"rx-checksumming", unix.ETHTOOL_SRXCSUM},
}

// OffloadsOff turns off checksum and segmentation offload of an interface in the calling thread's namespace, as
// `ethtool -K NAME tso off gso off gro off sg off tx off rx off` does. Switches that the interface does not have are left alone.
func OffloadsOff(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, o := range offloads {
		if err := ethtool(fd, name, &ethtoolValue{cmd: o.cmd}); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("turn off %s of %s: %w", o.name, name, err)
		}
	}
	return nil
}

func ethtool(fd int, name string, v *ethtoolValue) error {
	r := ifreqData{data: v}
	if len(name) >= len(r.name) {
		return fmt.Errorf("interface name %q is too long", name)
	}
	copy(r.name[:], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); e != 0 {
		return e
	}
	return nil
}

package dpdk

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// arg returns the value of an argument of a virtual device; "" if it is not given.
func (d *device) arg(name string) string {
	for arg := range strings.SplitSeq(d.args, ",") {
		if key, value, _ := strings.Cut(arg, "="); key == name {
			return value
		}
	}
	return ""
}

func (d *device) is(pmd string) bool { return d.bus == "vdev" && strings.HasPrefix(d.name, pmd) } // as EAL picks the PMD

// socket is the vhost-user socket of a device, and whether the device makes it; "" if it has none.
func (d *device) socket() (path string, makes bool) {
	switch {
	case d.is("net_virtio_user"):
		return d.arg("path"), d.arg("server") == "1"
	case d.is("net_vhost"):
		return d.arg("iface"), d.arg("client") != "1"
	}
	return "", false
}

// checkVdev says what a virtual device lacks on this machine, and what mends it. The errors name no setting.
func checkVdev(d *device) error {
	switch path, makes := d.socket(); {
	case d.is("net_af_packet"), d.is("net_pcap"):
		return checkPacketSockets()
	case d.is("net_tap"):
		return checkTap("/dev/net/tun")
	case path == "":
	case makes:
		return checkOwnSocket(path)
	default:
		return checkPeerSocket(path, d.is("net_virtio_user"))
	}
	return nil
}

func checkPacketSockets() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("packet sockets are not allowed to this user: run fastpath as root, or: setcap cap_net_raw,cap_net_admin+ep %s: %w", program(), err)
	}
	return err
}

func checkTap(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("the kernel has no TAP devices: modprobe tun: %w", err)
	case err != nil:
		return fmt.Errorf("TAP devices are not allowed to this user: run fastpath as root: %w", err)
	}
	f.Close()
	if !hasCapability(unix.CAP_NET_ADMIN) {
		return fmt.Errorf("TAP devices are not allowed to this user: run fastpath as root, or: setcap cap_net_admin+ep %s: %w", program(), unix.EPERM)
	}
	return nil
}

// program is the path of this program, as setcap wants it.
func program() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return os.Args[0]
}

func hasCapability(c uint) bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err != nil || data[c/32].Effective&(1<<(c%32)) != 0
}

// checkOwnSocket wants a place for a socket. One that a killed process has left, on which nobody listens, is removed.
func checkOwnSocket(path string) error {
	dir := filepath.Dir(path)
	switch st, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory for the socket: mkdir -p %s: %w", dir, syscall.ENOENT)
	case err == nil && !st.IsDir():
		return fmt.Errorf("%s is not a directory: %w", dir, syscall.ENOTDIR)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("no socket can be made in %s: chown %d %s: %w", dir, os.Getuid(), dir, err)
	}
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is there and is no socket: use another path, or: rm %s: %w", path, path, syscall.EEXIST)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("another process listens on %s: use another path, or end it: fuser -k %s: %w", path, path, syscall.EADDRINUSE)
	}
	return os.Remove(path)
}

// refuses reports whether nobody listens on a socket.
func refuses(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// checkPeerSocket wants a socket that the other end has made. Only a driver has to find it: a device tries until it does. It is not tried
// whether anyone listens, for the other end would take that for a connection.
func checkPeerSocket(path string, driver bool) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && driver:
		return fmt.Errorf("nobody has made the socket %s: start the other end first, or let fastpath make it: server=1 in vdev, client=1 at the other end: %w",
			path, syscall.ENOENT)
	case err != nil:
		return nil
	case st.Mode()&(fs.ModeSocket|fs.ModeCharDevice) == 0:
		return fmt.Errorf("%s is no socket: %w", path, syscall.ENOTSOCK)
	}
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("no access to %s: run fastpath as root, or: chown %d %s: %w", path, os.Getuid(), path, err)
	}
	return nil
}

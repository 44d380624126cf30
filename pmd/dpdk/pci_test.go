package dpdk

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCheckPCI describes devices in a tree that looks like sysfs.
func TestCheckPCI(t *testing.T) {
	const addr = "0000:00:03.0"
	for _, c := range []struct {
		name   string
		driver string
		files  []string // empty ones, below the device
		group  bool     // of an IOMMU, with the devices 0000:00:02.0, a bridge, and 0000:00:03.1
		other  string   // driver of the latter
		node   string   // file below /dev that is there
		unsafe string   // vfio's enable_unsafe_noiommu_mode
		is     error
		want   []string
	}{
		{name: "none", is: syscall.ENODEV, want: []string{"bound to no driver", "modprobe uio_pci_generic", "--bind=uio_pci_generic " + addr}},
		{name: "none, IOMMU", group: true, is: syscall.ENODEV, want: []string{"bound to no driver", "modprobe vfio-pci", "--bind=vfio-pci " + addr}},
		{name: "kernel", driver: "e1000e", group: true, files: []string{"net/eth7"}, is: syscall.EBUSY,
			want: []string{"kernel's driver e1000e as interface eth7", "--bind=vfio-pci " + addr}},
		{name: "virtio", driver: "virtio-pci", files: []string{"virtio2/net/ens3"}, is: syscall.EBUSY,
			want: []string{"driver virtio-pci as interface ens3", "--bind=uio_pci_generic " + addr}},
		{name: "uio", driver: "uio_pci_generic", files: []string{"uio/uio4/name"}, node: "uio4"},
		{name: "uio, no access", driver: "uio_pci_generic", files: []string{"uio/uio4/name"}, is: syscall.ENOENT, want: []string{"no access to /dev/uio4", "as root"}},
		{name: "mlx", driver: "mlx5_core", files: []string{"net/eth0"}},
		{name: "vfio", driver: "vfio-pci", group: true, unsafe: "N", node: "vfio/7"},
		{name: "vfio, no access", driver: "vfio-pci", group: true, is: syscall.ENOENT, want: []string{"no access to /dev/vfio/7", "chown "}},
		{name: "vfio, other", driver: "vfio-pci", group: true, other: "e1000e", node: "vfio/7", is: syscall.EBUSY,
			want: []string{"e1000e drives 0000:00:03.1 of the same IOMMU group 7", "--bind=vfio-pci 0000:00:03.1"}},
		{name: "vfio, other of ours", driver: "vfio-pci", group: true, other: "vfio-pci", node: "vfio/7"},
		{name: "no IOMMU", driver: "vfio-pci", unsafe: "N", is: syscall.ENODEV, want: []string{"no IOMMU", "intel_iommu=on", "--bind=uio_pci_generic " + addr}},
		{name: "unsafe", driver: "vfio-pci", unsafe: "Y\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys, dev := t.TempDir(), t.TempDir()
			must := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			write := func(path, content string) {
				must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
			}
			device := func(addr, class, driver string) {
				dir := filepath.Join(sys, "bus/pci/devices", addr)
				write(filepath.Join(dir, "class"), class+"\n")
				if driver != "" {
					must(os.Symlink("../../drivers/"+driver, filepath.Join(dir, "driver")))
				}
				if c.group {
					must(os.Symlink("../../../kernel/iommu_groups/7", filepath.Join(dir, "iommu_group")))
					write(filepath.Join(sys, "kernel/iommu_groups/7/devices", addr), "")
				}
			}
			device(addr, "0x020000", c.driver)
			if c.group {
				device("0000:00:02.0", "0x060400", "pcieport")
				device("0000:00:03.1", "0x020000", c.other)
			}
			for _, f := range c.files {
				write(filepath.Join(sys, "bus/pci/devices", addr, f), "")
			}
			if c.unsafe != "" {
				write(filepath.Join(sys, "module/vfio/parameters/enable_unsafe_noiommu_mode"), c.unsafe)
			}
			if c.node != "" {
				write(filepath.Join(dev, c.node), "")
			}
			p, err := findPCI(sys, dev, addr)
			must(err)
			err = p.check()
			if !errors.Is(err, c.is) {
				t.Fatalf("%v, want %v", err, c.is)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if got := p.needsHugepages(); got != strings.HasPrefix(c.driver, "uio") {
				t.Errorf("needs hugepages: %v", got)
			}
			if _, err := findPCI(sys, dev, "0000:00:04.0"); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "no such PCI device") {
				t.Errorf("a device that is not there: %v", err)
			}
		})
	}
}

// TestCheckLock takes away the right to lock memory without a limit, and sets one.
func TestCheckLock(t *testing.T) {
	errs := make(chan error, 5)
	go func() {
		defer close(errs)
		runtime.LockOSThread() // and ends with this goroutine
		before := unix.Rlimit{}
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
			t.Error(err)
			return
		}
		defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)
		var data [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		mine := data
		data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := errors.Join(unix.Capset(&header, &data[0]), unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 2 << 20, Max: before.Max})); err != nil {
			t.Error(err)
			return
		}
		vfio, uio := pciDevice{driver: "vfio-pci", group: "7"}, pciDevice{driver: "uio_pci_generic"}
		errs <- vfio.checkLock(64 << 20)
		errs <- vfio.checkLock(2 << 20)
		errs <- uio.checkLock(64 << 20)
		errs <- (&pciDevice{driver: "vfio-pci"}).checkLock(64 << 20) // no IOMMU, nothing locked
		if err := unix.Capset(&header, &mine[0]); err != nil || mine[0].Effective&(1<<unix.CAP_IPC_LOCK) == 0 {
			t.Logf("not tried: a process that may lock all: %v", err)
			return
		}
		errs <- vfio.checkLock(64 << 20)
	}()
	err := <-errs
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "64 MB or more") || !strings.Contains(err.Error(), "allows this user 2 MB: prlimit --pid $$ --memlock=unlimited") {
		t.Errorf("%v", err)
	}
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestCheckSockets tries places for vhost-user sockets.
func TestCheckSockets(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("busy"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"left", "gone"} { // nobody listens on these any more
		s, err := net.ListenUnix("unix", &net.UnixAddr{Name: at(name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		s.SetUnlinkOnClose(false)
		s.Close()
	}
	for _, c := range []struct {
		name, args string
		want       string // "": no error
	}{
		{"net_virtio_user0", "path=" + at("new") + ",server=1", ""},
		{"net_virtio_user0", "path=" + at("none/new") + ",server=1", "mkdir -p " + at("none")},
		{"net_virtio_user0", "path=" + at("file/new") + ",server=1", "not a directory"},
		{"net_virtio_user0", "path=" + at("file") + ",server=1", "rm " + at("file")},
		{"net_virtio_user0", "path=" + at("busy") + ",server=1", "fuser -k " + at("busy")},
		{"net_vhost0", "iface=" + at("left"), ""},
		{"net_vhost0", "iface=" + at("none/new"), "mkdir -p " + at("none")},
		{"net_vhost0", "iface=" + at("none/new") + ",client=1", ""}, // it tries again
		{"net_virtio_user0", "path=" + at("busy"), ""},
		{"net_virtio_user0", "path=" + at("new"), "start the other end first"},
		{"net_virtio_user0", "path=" + at("file"), "is no socket"},
		{"net_virtio_user0", "queues=1", ""}, // the PMD says it
		{"net_null0", "", ""},
	} {
		err := checkVdev(&device{bus: "vdev", name: c.name, args: c.args})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s,%s: %v, want %q", c.name, c.args, err, c.want)
		}
	}
	if _, err := os.Lstat(at("left")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket that was left: %v", err)
	}
	if !refuses(at("gone")) || refuses(at("busy")) || refuses(at("new")) {
		t.Error("refuses")
	}
	if err := checkTap(at("nosuch")); err == nil || !strings.Contains(err.Error(), "modprobe tun") {
		t.Errorf("no TAP devices: %v", err)
	}
}

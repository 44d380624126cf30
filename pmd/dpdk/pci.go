package dpdk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Drivers of the kernel that hand a PCI device to DPDK, and those beside which DPDK's PMDs work.
var (
	userDrivers   = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}
	sharedDrivers = []string{"mlx4_core", "mlx5_core", "mana"}
)

// pciDevice is a PCI device as sysfs has it.
type pciDevice struct {
	addr   string
	sys    string // where sysfs is mounted
	dev    string // where device files are
	dir    string // of the device in sysfs
	driver string // of the kernel; "" if it is bound to none
	group  string // of the IOMMU; "" behind none
}

// findPCI looks for a device. The errors here and below say what is missing before DPDK can use it, and the command that mends it: DPDK
// itself only finds no device. They name no setting.
func findPCI(sys, dev, addr string) (*pciDevice, error) {
	p := &pciDevice{addr: addr, sys: sys, dev: dev, dir: filepath.Join(sys, "bus/pci/devices", addr)}
	if _, err := os.Stat(p.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this machine has no such PCI device; to list the network cards: lspci -D | grep -i net: %w", syscall.ENODEV)
	}
	p.driver = linkBase(filepath.Join(p.dir, "driver"))
	p.group = linkBase(filepath.Join(p.dir, "iommu_group"))
	return p, nil
}

// linkBase is the last element of what a symbolic link names; "" if there is no such link.
func linkBase(link string) string {
	to, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// check wants the device to be bound to a driver that hands it over, and this process to be allowed to use it.
func (p *pciDevice) check() error {
	switch {
	case slices.Contains(sharedDrivers, p.driver):
		return nil
	case p.driver == "":
		return fmt.Errorf("the device is bound to no driver: %s: %w", p.bind(p.userDriver(), p.addr), syscall.ENODEV)
	case !slices.Contains(userDrivers, p.driver):
		return fmt.Errorf("the device is bound to the kernel's driver %s%s, which loses it with: %s: %w", p.driver, p.interfaces(),
			p.bind(p.userDriver(), p.addr), syscall.EBUSY)
	case p.driver != "vfio-pci":
		return p.checkUIO()
	case !p.behindIOMMU():
		return fmt.Errorf("vfio-pci finds no IOMMU: boot with intel_iommu=on iommu=pt, or: %s: %w", p.bind("uio_pci_generic", p.addr), syscall.ENODEV)
	}
	return p.checkVFIO()
}

// userDriver is the driver that can hand the device over: without an IOMMU vfio-pci cannot.
func (p *pciDevice) userDriver() string {
	if p.behindIOMMU() {
		return "vfio-pci"
	}
	return "uio_pci_generic"
}

func (p *pciDevice) bind(driver, addr string) string {
	return fmt.Sprintf("modprobe %s && dpdk-devbind.py --bind=%s %s", driver, driver, addr)
}

// behindIOMMU reports whether vfio can use the device: behind an IOMMU, or without one where the kernel allows that.
func (p *pciDevice) behindIOMMU() bool {
	if p.group != "" {
		return true
	}
	b, err := os.ReadFile(filepath.Join(p.sys, "module/vfio/parameters/enable_unsafe_noiommu_mode"))
	return err == nil && strings.TrimSpace(string(b)) == "Y"
}

// checkUIO wants access to the device's registers. Their addresses in memory are physical ones, which only root learns.
func (p *pciDevice) checkUIO() error {
	names, _ := filepath.Glob(filepath.Join(p.dir, "uio/uio*"))
	for _, n := range names {
		if err := unix.Access(filepath.Join(p.dev, filepath.Base(n)), unix.R_OK|unix.W_OK); err != nil {
			return fmt.Errorf("no access to /dev/%s: run fastpath as root, or let the device be driven by vfio-pci, behind an IOMMU: %w", filepath.Base(n), err)
		}
	}
	return nil
}

// checkVFIO wants access to the device's IOMMU group, of which the kernel must drive no other device.
func (p *pciDevice) checkVFIO() error {
	if p.group == "" {
		return nil
	}
	others, _ := os.ReadDir(filepath.Join(p.sys, "kernel/iommu_groups", p.group, "devices"))
	for _, o := range others {
		dir := filepath.Join(p.sys, "bus/pci/devices", o.Name())
		class, _ := os.ReadFile(filepath.Join(dir, "class"))
		if driver := linkBase(filepath.Join(dir, "driver")); driver != "" && driver != "vfio-pci" && !strings.HasPrefix(string(class), "0x0604") { // bridges do not matter
			return fmt.Errorf("the kernel's driver %s drives %s of the same IOMMU group %s; it loses it with: %s: %w", driver, o.Name(), p.group,
				p.bind("vfio-pci", o.Name()), syscall.EBUSY)
		}
	}
	if err := unix.Access(filepath.Join(p.dev, "vfio", p.group), unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("no access to /dev/vfio/%s: run fastpath as root, or: chown %d /dev/vfio/%s: %w", p.group, os.Getuid(), p.group, err)
	}
	return nil
}

// checkLock wants vfio to be allowed to lock the memory that the device may reach, of which DPDK takes at least so many bytes. The kernel
// counts it per process, and only without CAP_IPC_LOCK.
func (p *pciDevice) checkLock(bytes int64) error {
	if p.driver != "vfio-pci" || p.group == "" || hasCapability(unix.CAP_IPC_LOCK) {
		return nil
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur >= uint64(bytes) {
		return err
	}
	return fmt.Errorf("vfio-pci locks the memory that DPDK takes, %d MB or more, and RLIMIT_MEMLOCK allows this user %d MB: prlimit --pid $$ --memlock=unlimited as root "+
		"(systemd: LimitMEMLOCK=infinity), or: setcap cap_ipc_lock+ep %s: %w", bytes>>20, l.Cur>>20, program(), unix.ENOMEM)
}

// needsHugepages reports whether DPDK can use the device with hugepages only: of other memory it does not know the physical addresses.
func (p *pciDevice) needsHugepages() bool {
	return p.driver == "uio_pci_generic" || p.driver == "igb_uio"
}

// interfaces names the kernel's interfaces of the device.
func (p *pciDevice) interfaces() string {
	names, _ := filepath.Glob(filepath.Join(p.dir, "net/*"))
	more, _ := filepath.Glob(filepath.Join(p.dir, "virtio*/net/*")) // virtio's are one level further down
	names = append(names, more...)
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf(" as interface %s", strings.Join(names, ", "))
}

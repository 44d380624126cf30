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
)

// Drivers of the kernel that hand a PCI device to DPDK, and those beside which DPDK's PMDs work.
var (
	userDrivers   = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}
	sharedDrivers = []string{"mlx4_core", "mlx5_core", "mana"}
)

// checkPCI says what is missing before DPDK can use a PCI device, and the command that mends it: DPDK itself only finds no device.
// sys is where sysfs is mounted. The errors name no setting.
func checkPCI(sys, addr string) error {
	dir := filepath.Join(sys, "bus/pci/devices", addr)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("this machine has no such PCI device; to list the network cards: lspci -D | grep -i net: %w", syscall.ENODEV)
	}
	driver := ""
	if link, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		driver = filepath.Base(link)
	}
	bind := fmt.Sprintf("modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci %s", addr)
	switch {
	case slices.Contains(sharedDrivers, driver):
	case driver == "":
		return fmt.Errorf("the device is bound to no driver: %s: %w", bind, syscall.ENODEV)
	case !slices.Contains(userDrivers, driver):
		return fmt.Errorf("the device is bound to the kernel's driver %s%s, which loses it with: %s: %w", driver, interfaces(dir), bind, syscall.EBUSY)
	case driver == "vfio-pci" && !hasIOMMU(sys, dir):
		return fmt.Errorf("vfio-pci finds no IOMMU: boot with intel_iommu=on iommu=pt, or: modprobe uio_pci_generic && "+
			"dpdk-devbind.py --bind=uio_pci_generic %s: %w", addr, syscall.ENODEV)
	}
	return nil
}

// interfaces names the kernel's interfaces of a device.
func interfaces(dir string) string {
	entries, _ := os.ReadDir(filepath.Join(dir, "net"))
	if entries == nil { // virtio's are one level further down
		if more, _ := filepath.Glob(filepath.Join(dir, "virtio*", "net")); len(more) > 0 {
			entries, _ = os.ReadDir(more[0])
		}
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf(" as interface %s", strings.Join(names, ", "))
}

// hasIOMMU reports whether vfio can use the device: behind an IOMMU, or without one where the kernel allows that.
func hasIOMMU(sys, dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "iommu_group")); err == nil {
		return true
	}
	b, err := os.ReadFile(filepath.Join(sys, "module/vfio/parameters/enable_unsafe_noiommu_mode"))
	return err == nil && strings.TrimSpace(string(b)) == "Y"
}

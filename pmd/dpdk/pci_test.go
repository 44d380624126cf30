package dpdk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCheckPCI describes devices in a tree that looks like sysfs.
func TestCheckPCI(t *testing.T) {
	for _, c := range []struct {
		name   string
		driver string
		files  []string // empty ones, below the device
		unsafe string   // vfio's enable_unsafe_noiommu_mode
		is     error
		want   []string
	}{
		{"none", "", nil, "", syscall.ENODEV, []string{"bound to no driver", "--bind=vfio-pci 0000:00:03.0"}},
		{"kernel", "e1000e", []string{"net/eth7"}, "", syscall.EBUSY, []string{"kernel's driver e1000e as interface eth7", "--bind=vfio-pci 0000:00:03.0"}},
		{"virtio", "virtio-pci", []string{"virtio2/net/ens3"}, "", syscall.EBUSY, []string{"driver virtio-pci as interface ens3"}},
		{"uio", "uio_pci_generic", nil, "", nil, nil},
		{"mlx", "mlx5_core", []string{"net/eth0"}, "", nil, nil},
		{"vfio", "vfio-pci", []string{"iommu_group"}, "N", nil, nil},
		{"no IOMMU", "vfio-pci", nil, "N", syscall.ENODEV, []string{"no IOMMU", "intel_iommu=on", "--bind=uio_pci_generic 0000:00:03.0"}},
		{"unsafe", "vfio-pci", nil, "Y\n", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := t.TempDir()
			dir := filepath.Join(sys, "bus/pci/devices/0000:00:03.0")
			write := func(path, content string) {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			write(filepath.Join(dir, "vendor"), "")
			for _, f := range c.files {
				write(filepath.Join(dir, f), "")
			}
			if c.unsafe != "" {
				write(filepath.Join(sys, "module/vfio/parameters/enable_unsafe_noiommu_mode"), c.unsafe)
			}
			if c.driver != "" {
				if err := os.Symlink("../../drivers/"+c.driver, filepath.Join(dir, "driver")); err != nil {
					t.Fatal(err)
				}
			}
			err := checkPCI(sys, "0000:00:03.0")
			if !errors.Is(err, c.is) {
				t.Fatalf("%v, want %v", err, c.is)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if err := checkPCI(sys, "0000:00:04.0"); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "no such PCI device") {
				t.Errorf("a device that is not there: %v", err)
			}
		})
	}
}

package conf

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// defaultRoute refuses a port on a device by which the machine itself reaches the network, for which Machine.Force has to be set.
func (k *checker) defaultRoute(key string, p *Port) {
	if k.m.Force {
		return
	}
	name, field := p.kernelInterface()
	names := []string{name}
	if p.Driver == DriverDPDK && p.Device != "" {
		names, field = k.m.cardInterfaces(p.Device), "device"
	}
	if p.Driver == DriverTap { // a device of its own
		return
	}
	carriers := k.m.routeCarriers()
	for _, name := range names {
		if name != "" && slices.Contains(carriers, name) {
			k.err(key+"."+field, "this machine's default route goes through %q, and fastpath could cut it off: use another device, or, if you mean it: fastpath run --force", name)
			return
		}
	}
}

// cardInterfaces are the kernel's interfaces of a PCI device.
func (m *Machine) cardInterfaces(addr string) (names []string) {
	dir := filepath.Join(m.Root, "/sys/bus/pci/devices", addr)
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
	}
	return names
}

// routeCarriers are the interfaces of default routes of the kernel's, and those below them: the ports of a bridge or bond, the device of a
// VLAN.
func (m *Machine) routeCarriers() (names []string) {
	const (
		up     = 0x1   // RTF_UP
		reject = 0x200 // RTF_REJECT
	)
	add := func(name, flags string) {
		if f, err := strconv.ParseUint(flags, 16, 32); err == nil && f&up != 0 && f&reject == 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, f := range m.procNet("route") { // interface, destination, gateway, flags, …, mask at 7
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			add(f[0], f[3])
		}
	}
	zero := strings.Repeat("0", 32)
	for _, f := range m.procNet("ipv6_route") { // destination, its length, …, flags at 8, interface
		if len(f) > 9 && f[0] == zero && f[1] == "00" && f[9] != "lo" {
			add(f[9], f[8])
		}
	}
	for i := 0; i < len(names); i++ {
		lower, _ := filepath.Glob(filepath.Join(m.Root, "/sys/class/net", names[i], "lower_*"))
		for _, l := range lower {
			if name := strings.TrimPrefix(filepath.Base(l), "lower_"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// procNet reads a table of the network namespace of this process.
func (m *Machine) procNet(file string) (rows [][]string) {
	b, err := os.ReadFile(filepath.Join(m.Root, "/proc/self/net", file))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows
}

package conf

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// kernelAddresses are the addresses that the kernel has on an interface; none if there is no such interface.
func kernelAddresses(name string) (all []netip.Prefix) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// kernel warns of what the kernel does with the frames of a port that is on one of its interfaces, where it gets each of them as well.
func (k *checker) kernel(key string, p *Port) {
	name, _ := p.kernelInterface()
	if name == "" || p.Driver == DriverTap { // the kernel is the peer of a TAP device
		return
	}
	k.heldTwice(key+".addresses", name, p.Addresses, "fastpath")
	k.heldTwice(key+".exception_addresses", name, p.ExceptionAddresses, p.Exception)
	if p.Exception != "" && !k.strictHost(name, p) {
		k.warn(key+".exception", "the kernel gets each frame on %q too, and what is for its addresses on %q arrives twice: "+
			"sysctl net.ipv4.conf.%s.arp_ignore=1 net.ipv4.conf.%s.rp_filter=1, or drop all that arrives there with nft (see conf/example.toml)",
			name, p.Exception, name, name)
	}
}

// heldTwice warns of addresses of a port, or of its exception path, that the kernel has on the port's interface: it answers there as well.
func (k *checker) heldTwice(key, name string, addrs []netip.Prefix, owner string) {
	if k.m.Addresses == nil {
		return
	}
	for _, held := range k.m.Addresses(name) {
		for j, a := range addrs {
			if a.Addr() == held.Addr() {
				k.warn(fmt.Sprintf("%s[%d]", key, j), "the kernel has %v on %q and answers as well as %s: ip addr del %v dev %s", a.Addr(), name, owner, held, name)
			}
		}
	}
}

// strictHost reports whether the kernel leaves frames alone that arrive on an interface for its addresses on another one. It must not
// answer ARP there (arp_ignore); and unless the port has an Ethernet address of its own, it must drop packets whose way back is another
// one, as strict reverse path filtering does (2.2). Linux has that for IPv4 only.
func (k *checker) strictHost(name string, p *Port) bool {
	if k.sysctl4(name, "arp_ignore") == 0 {
		return false
	}
	if p.MAC != nil {
		return true
	}
	for _, a := range p.ExceptionAddresses {
		if a.Addr().Is6() {
			return false
		}
	}
	return k.sysctl4(name, "rp_filter") == 1
}

// sysctl4 is a setting of IPv4 on an interface: of it and of "all", the greater holds (Linux, ip-sysctl).
func (k *checker) sysctl4(name, setting string) (value int) {
	for _, of := range []string{"all", name} {
		b, err := os.ReadFile(filepath.Join(k.m.Root, "/proc/sys/net/ipv4/conf", of, setting))
		if n, bad := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && bad == nil {
			value = max(value, n)
		}
	}
	return value
}

package conf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckDefaultRoute wants a card by which the machine reaches the network to be left to the kernel, unless it is asked for twice.
func TestCheckDefaultRoute(t *testing.T) {
	const (
		head  = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
		route = "\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
		zero  = "00000000000000000000000000000000"
	)
	ipv6 := func(iface, flags string) string {
		return zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 " + flags + " " + iface + "\n"
	}
	for _, c := range []struct {
		name    string
		route   string   // /proc/net/route
		route6  string   // /proc/net/ipv6_route
		links   []string // below /sys
		refused bool
	}{
		{name: "no route", route: head},
		{name: "another", route: head + "eth1" + route},
		{name: "a network", route: head + "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"},
		{name: "half of all", route: head + "eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n"},
		{name: "unreachable", route: head + "eth0\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"},
		{name: "default", route: head + "eth0" + route, refused: true},
		{name: "second", route: head + "eth1" + route + "eth0" + route, refused: true},
		{name: "IPv6", route: head, route6: ipv6("lo", "00200200") + ipv6("eth0", "00450003"), refused: true},
		{name: "unreachable IPv6", route: head, route6: ipv6("eth0", "00200200")},
		{name: "bridge", route: head + "br0" + route, links: []string{"class/net/br0/lower_eth0"}, refused: true},
		{name: "VLAN of a bond", route: head + "bond0.7" + route, links: []string{"class/net/bond0.7/lower_bond0", "class/net/bond0/lower_eth0"}, refused: true},
		{name: "bridge of others", route: head + "br0" + route, links: []string{"class/net/br0/lower_eth1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(path, content string) {
				path = filepath.Join(root, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			write("proc/self/net/dev", "  eth0: 0\n  eth1: 0\n")
			write("proc/self/net/route", c.route)
			write("proc/self/net/ipv6_route", c.route6)
			for _, l := range append(c.links, "bus/pci/devices/0000:00:03.0/virtio0/net/eth0", "bus/pci/devices/0000:00:04.0/net/eth9") {
				write(filepath.Join("sys", l), "")
			}
			for port, field := range map[string]string{
				"driver = \"afpacket\"\ninterface = \"eth0\"":             "interface",
				"driver = \"dpdk\"\nvdev = \"net_af_packet0,iface=eth0\"": "vdev",
				"driver = \"dpdk\"\ndevice = \"0000:00:03.0\"":            "device",
				"driver = \"dpdk\"\ndevice = \"0000:00:04.0\"":            "",
				"driver = \"tap\"\ninterface = \"eth0\"":                  "",
			} {
				cfg, err := Parse("f", []byte("[[port]]\nname = \"p\"\naddresses = [\"10.7.0.1/24\"]\n"+port+"\n"))
				if err != nil {
					t.Fatal(err)
				}
				for _, force := range []bool{false, true} {
					errs, _ := Check(cfg, &Machine{Root: root, Force: force}, builtin)
					said := ""
					for _, e := range errs {
						if strings.Contains(e.Message, "default route") {
							said += e.Error()
						}
					}
					want := ""
					if c.refused && !force && field != "" {
						want = "f:5: port[0]." + field + ": this machine's default route goes through \"eth0\", and fastpath could cut it off: " +
							"use another device, or, if you mean it: fastpath run --force"
					}
					if said != want {
						t.Errorf("%s, force %v: %q, want %q", port, force, said, want)
					}
				}
			}
		})
	}
}

package conf

import (
	"net/netip"
	"strings"
	"testing"
)

// Gateways and devices that cannot be meant.
func TestImpossiblePorts(t *testing.T) {
	const p = "[[port]]\nname = \"a\"\ndriver = \"afpacket\"\ninterface = \"eth0\"\n"
	const second = "\n[[port]]\nname = \"b\"\naddresses = [\"10.8.0.1/24\"]\n"
	for in, want := range map[string]string{
		"addresses = [\"10.7.0.1/24\"]\ngateway = \"10.7.0.1\"":                            "f:6: port[0].gateway: 10.7.0.1 is the port's own address",
		"addresses = [\"2001:db8::1/64\"]\ngateway = \"2001:db8::1\"":                      "f:6: port[0].gateway: 2001:db8::1 is the port's own address",
		"addresses = [\"2001:db8::1/64\"]\ngateway6 = \"2001:db8::1\"":                     "f:6: port[0].gateway6: 2001:db8::1 is the port's own address",
		"addresses = [\"fe80::1/64\"]\ngateway6 = \"fe80::1%a\"":                           "f:6: port[0].gateway6: fe80::1%a is the port's own address",
		"addresses = [\"10.7.0.1/24\"]\ngateway6 = \"fe80::1\"":                            "f:6: port[0].gateway6: fe80::1 has no meaning without IPv6: the port needs an IPv6 address, or slaac = true",
		"dhcp = true\ngateway6 = \"2001:db8::1\"":                                          "f:6: port[0].gateway6: 2001:db8::1 has no meaning without IPv6",
		"dhcp = true\ngateway = \"fe80::1\"":                                               "f:6: port[0].gateway: fe80::1 has no meaning without IPv6",
		"dhcp = true\nslaac = true\ngateway6 = \"fe80::1\"":                                "",
		"dhcp = true" + second + "driver = \"afpacket\"\ninterface = \"eth0\"":             "f:10: port[1].interface: \"eth0\" is the interface of the port on line 1 already",
		"dhcp = true" + second + "driver = \"tap\"\ninterface = \"eth0\"":                  "f:10: port[1].interface: \"eth0\" is the interface of the port on line 1 already",
		"dhcp = true" + second + "driver = \"dpdk\"\nvdev = \"net_af_packet0,iface=eth0\"": "f:10: port[1].vdev: \"eth0\" is the interface of the port on line 1 already",
		"dhcp = true" + second + "driver = \"afpacket\"\ninterface = \"eth1\"":             "",
		"dhcp = true" + second + "parent = \"a\"\nvlan = 5":                                "",
		"dhcp = true" + second + "driver = \"dpdk\"\ndevice = \"0000:00:03.0\"" + strings.NewReplacer("\"b\"", "\"c\"", "8.0", "9.0").Replace(second) +
			"driver = \"dpdk\"\ndevice = \"0000:00:03.0\"": "f:15: port[2].device: \"0000:00:03.0\" is the device of the port on line 6 already",
	} {
		switch _, err := Parse("f", []byte(p+in)); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", in, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

// A port's gateway is looked at whatever else is wrong, but for what it depends on.
func TestAllGateways(t *testing.T) {
	_, err := Parse("f", []byte(`[[port]]
name = "a"
driver = "afpacket"
interface = "lo"
addresses = ["127.0.0.2/8"]
gateway = "127.0.0.2"
[[port]]
name = "b"
driver = "afpacket"
interface = "lo"
addresses = ["10.0.0.1/24"]
gateway = "10.0.0.1"
gateway6 = "fe80::1"
`))
	const want = `f:5: port[0].addresses[0]: 127.0.0.2/8 is not an address of a host
f:10: port[1].interface: "lo" is the interface of the port on line 1 already
f:12: port[1].gateway: 10.0.0.1 is the port's own address
f:13: port[1].gateway6: fe80::1 has no meaning without IPv6: the port needs an IPv6 address, or slaac = true`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// What the kernel has on a port's interface, or does there beside an exception path, is warned of.
func TestCheckKernel(t *testing.T) {
	const (
		plain  = "[[port]]\nname = \"a\"\ndriver = \"afpacket\"\ninterface = \"eth0\"\naddresses = [\"10.7.0.1/24\", \"2001:db8::1/64\"]\n"
		except = plain + "exception = \"tap0\"\nexception_addresses = [\"10.7.0.9/24\"]\n"
		twice  = `f:6: port[0].exception: the kernel gets each frame on "eth0" too, and what is for its addresses on "tap0" arrives twice: ` +
			`sysctl net.ipv4.conf.eth0.arp_ignore=1 net.ipv4.conf.eth0.rp_filter=1, or drop all that arrives there with nft (see conf/example.toml)`
	)
	for _, tt := range []struct {
		name, text, held string
		settings         string // arp_ignore and rp_filter of all, then of eth0
		want             string
	}{
		{"no address", plain, "", "0000", ""},
		{"another address", plain, "10.7.0.2/24", "0000", ""},
		{"the same", plain, "10.7.0.1/16", "0000", `f:5: port[0].addresses[0]: the kernel has 10.7.0.1 on "eth0" and answers as well as fastpath: ip addr del 10.7.0.1/16 dev eth0`},
		{"the same of IPv6", plain, "2001:db8::1/64", "0000", `f:5: port[0].addresses[1]: the kernel has 2001:db8::1 on "eth0" and answers as well as fastpath: ip addr del 2001:db8::1/64 dev eth0`},
		{"dpdk", strings.Replace(plain, "\"afpacket\"\ninterface = \"eth0\"", "\"dpdk\"\nvdev = \"net_af_packet0,iface=eth0\"", 1), "10.7.0.1/24", "0000",
			`f:5: port[0].addresses[0]: the kernel has 10.7.0.1 on "eth0" and answers as well as fastpath: ip addr del 10.7.0.1/24 dev eth0`},
		{"tap", strings.Replace(plain, "afpacket", "tap", 1), "10.7.0.1/24", "0000", ""},
		{"exception", except, "", "0000", twice},
		{"exception, held", except, "10.7.0.9/24", "0011", `f:7: port[0].exception_addresses[0]: the kernel has 10.7.0.9 on "eth0" and answers as well as tap0: ip addr del 10.7.0.9/24 dev eth0`},
		{"only ARP", except, "", "1000", twice},
		{"only the filter", except, "", "0001", twice},
		{"a loose filter", except, "", "0012", twice},
		{"strict, but loose on the interface", except, "", "1102", twice},
		{"strict", except, "", "0011", ""},
		{"strict for all", except, "", "1100", ""},
		{"strict, IPv6", strings.Replace(except, "10.7.0.9/24", "2001:db8::9/64", 1), "", "0011", twice},
		{"an Ethernet address of its own", except + "mac = \"02:00:00:00:00:01\"\n", "", "0010", ""},
		{"an Ethernet address of its own, ARP", except + "mac = \"02:00:00:00:00:01\"\n", "", "0000", twice},
		{"a VLAN", plain + strings.NewReplacer("\"a\"", "\"b\"", "driver = \"afpacket\"", "parent = \"a\"", "interface = \"eth0\"", "vlan = 5", "10.7.", "10.8.", "db8::1", "db8:1::1", "tap0", "tap1").Replace(except), "", "0000", ""},
	} {
		const dir = "proc/sys/net/ipv4/conf/"
		root := tree(t, map[string]string{
			"proc/self/net/dev": " eth0: 0 0\n", "sys/kernel/mm/x": "",
			dir + "all/arp_ignore": tt.settings[:1] + "\n", dir + "all/rp_filter": tt.settings[1:2] + "\n",
			dir + "eth0/arp_ignore": tt.settings[2:3] + "\n", dir + "eth0/rp_filter": tt.settings[3:] + "\n",
		})
		held := func(name string) []netip.Prefix {
			if name != "eth0" || tt.held == "" {
				return nil
			}
			return []netip.Prefix{netip.MustParsePrefix(tt.held)}
		}
		errs, warnings := check(t, &Machine{Root: root, Free: []string{"2048kB"}, Addresses: held}, tt.text)
		if errs != "" || warnings != tt.want {
			t.Errorf("%s: %s\nwarnings:\n%s\nwant:\n%s", tt.name, errs, warnings, tt.want)
		}
	}
}

func TestKernelAddresses(t *testing.T) {
	if a := kernelAddresses("no-such-iface"); a != nil {
		t.Errorf("%v", a)
	}
	loopback := netip.MustParsePrefix("127.0.0.1/8")
	if a := kernelAddresses("lo"); len(a) > 0 && a[0] != loopback { // a new namespace has none
		t.Errorf("lo has %v", a)
	}
}

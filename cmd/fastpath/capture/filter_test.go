package capture

import (
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func build(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func eth(typ layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: typ}
}

func frames(t testing.TB) map[string][]byte {
	ip := func(p layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: net.IP{10, 7, 0, 2}, DstIP: net.IP{10, 7, 0, 1}}
	}
	frag := ip(layers.IPProtocolTCP)
	frag.FragOffset = 100
	withOptions := ip(layers.IPProtocolTCP)
	withOptions.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
	syn := &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true}
	return map[string][]byte{
		"syn":     build(t, eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolTCP), syn),
		"options": build(t, eth(layers.EthernetTypeIPv4), withOptions, syn),
		"data": build(t, eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolTCP), &layers.TCP{SrcPort: 80, DstPort: 40000, ACK: true, PSH: true},
			gopacket.Payload(make([]byte, 1000))),
		"udp":  build(t, eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolUDP), &layers.UDP{SrcPort: 53, DstPort: 80}),
		"frag": build(t, eth(layers.EthernetTypeIPv4), frag, gopacket.Payload("\x9c\x40\x00\x50abcdefghijkl")),
		"icmp": build(t, eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: 8 << 8}),
		"arp": build(t, eth(layers.EthernetTypeARP), &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4,
			HwAddressSize: 6, ProtAddressSize: 4, Operation: 1, SourceHwAddress: make([]byte, 6), SourceProtAddress: []byte{10, 7, 0, 9},
			DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 7, 0, 1}}),
		"ip6": build(t, eth(layers.EthernetTypeIPv6), &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP,
			SrcIP: net.ParseIP("fe80::1"), DstIP: net.ParseIP("fe80::2")}, syn),
		"runt": {1, 2, 3},
	}
}

func TestMatch(t *testing.T) {
	fs := frames(t)
	for expr, want := range map[string]string{
		"":                          "arp data frag icmp ip6 options runt syn udp",
		"ip":                        "data frag icmp options syn udp",
		"tcp":                       "data frag ip6 options syn",
		"not tcp":                   "arp icmp runt udp",
		"arp or icmp":               "arp icmp",
		"udp":                       "udp",
		"ip6":                       "ip6",
		"port 80":                   "data ip6 options syn udp",
		"dst port 80":               "ip6 options syn udp",
		"src port 80":               "data",
		"tcp and port 80 and ip":    "data options syn",
		"host 10.7.0.9":             "arp",
		"src host 10.7.0.1":         "",
		"dst host 10.7.0.1 && ip":   "data frag icmp options syn udp",
		"host fe80::1":              "ip6",
		"net 10.7.0.8/30":           "arp",
		"src net fe80::/64":         "ip6",
		"tcp-syn":                   "ip6 options syn",
		"tcp-ack and tcp-push":      "data",
		"tcp-rst || tcp-fin":        "",
		"less 100 and ip and tcp":   "frag options syn",
		"greater 1000":              "data",
		"!(ip || arp)":              "ip6 runt",
		"arp or ip and udp":         "udp", // left to right, as in pcap-filter
		"arp or (ip and udp)":       "arp udp",
		"not ip and not arp":        "ip6 runt",
		"not (not (not ip6))":       "arp data frag icmp options runt syn udp",
		"tcp and (port 81 or icmp)": "",
	} {
		f, err := Parse(expr)
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		var got []string
		for _, name := range []string{"arp", "data", "frag", "icmp", "ip6", "options", "runt", "syn", "udp"} {
			if f.Match(fs[name]) {
				got = append(got, name)
			}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%q matches %q, want %q", expr, g, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, expr := range []string{
		"and", "tcp and", "tcp tcp", "(tcp", "tcp)", "host", "host x", "host 10.7.0.1/24", "net 10.7.0.1", "port", "port 65536", "port -1",
		"src tcp", "src", "not", "less x", "tcp & udp", strings.Repeat("(", 200) + "tcp" + strings.Repeat(")", 200),
		strings.Repeat("not ", 200) + "tcp", strings.Repeat("tcp or ", 1000) + "tcp",
	} {
		if _, err := Parse(expr); err == nil || !strings.HasPrefix(err.Error(), "filter: ") {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

func TestMatchAllocates(t *testing.T) {
	f, err := Parse("tcp and net 10.7.0.0/24 and not port 22 or host fe80::1")
	if err != nil {
		t.Fatal(err)
	}
	for name, fr := range frames(t) {
		if n := testing.AllocsPerRun(100, func() { f.Match(fr) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	f, err := Parse("tcp and net 10.7.0.0/24 and not port 22")
	if err != nil {
		b.Fatal(err)
	}
	fr := frames(b)["data"]
	for b.Loop() {
		f.Match(fr)
	}
}

// FuzzFilter: any expression either fails or gives a filter that matches any frame without harm, and its negation is the opposite.
func FuzzFilter(f *testing.F) {
	for _, fr := range frames(f) {
		f.Add("tcp and (src host 10.7.0.2 or dst port 80) and not net 10.0.0.0/8", fr)
	}
	f.Add("!!less 5||greater 7&&arp", []byte{})
	f.Fuzz(func(t *testing.T, expr string, frame []byte) {
		m, err := Parse(expr)
		if err != nil {
			return
		}
		got := m.Match(frame)
		if strings.TrimSpace(expr) == "" {
			return
		}
		if not, err := Parse("not (" + expr + ")"); err == nil && not.Match(frame) == got {
			t.Fatalf("%q and its negation both give %v", expr, got)
		}
	})
}

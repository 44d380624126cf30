package route

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func addr(s string) wire.Addr { return wire.AddrFrom(netip.MustParseAddr(s)) }

func table(t testing.TB) *Table {
	tab := new(Table)
	for _, a := range []struct {
		index int
		p     string
	}{{0, "10.0.0.2/24"}, {1, "192.168.7.1/30"}, {1, "10.9.0.1/16"}, {2, "172.16.0.0/31"}, {0, "2001:db8::2/64"}} {
		if err := tab.AddAddr(a.index, netip.MustParsePrefix(a.p)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct {
		p, gw         string
		index, metric int
	}{
		{"0.0.0.0/0", "10.0.0.1", 0, 10}, {"0.0.0.0/0", "192.168.7.2", 1, 5}, {"8.0.0.0/8", "10.0.0.3", 0, 0},
		{"8.8.0.0/16", "10.0.0.4", 0, 0}, {"8.8.8.8/32", "192.168.7.2", 1, 0}, {"::/0", "2001:db8::1", 0, 0},
	} {
		if err := tab.AddRoute(netip.MustParsePrefix(r.p), r.index, netip.MustParseAddr(r.gw), r.metric); err != nil {
			t.Fatal(err)
		}
	}
	return tab
}

func TestLookup(t *testing.T) {
	tab := table(t)
	for _, c := range []struct {
		dst   string
		index int
		hop   string
	}{
		{"10.0.0.77", 0, "10.0.0.77"}, {"10.9.3.4", 1, "10.9.3.4"}, {"1.2.3.4", 1, "192.168.7.2"}, {"8.1.1.1", 0, "10.0.0.3"},
		{"8.8.1.1", 0, "10.0.0.4"}, {"8.8.8.8", 1, "192.168.7.2"}, {"172.16.0.1", 2, "172.16.0.1"},
		{"2001:db8::9", 0, "2001:db8::9"}, {"2001:db9::9", 0, "2001:db8::1"},
	} {
		index, hop, ok := tab.Lookup(addr(c.dst))
		if !ok || index != c.index || hop != addr(c.hop) {
			t.Errorf("Lookup(%s) = %d, %v, %v, want %d, %s", c.dst, index, hop, ok, c.index, c.hop)
		}
	}
	if _, _, ok := new(Table).Lookup(addr("1.1.1.1")); ok {
		t.Error("an empty table has a route")
	}
}

func TestLocalAndBroadcast(t *testing.T) {
	tab := table(t)
	if i, ok := tab.Local(addr("10.9.0.1")); !ok || i != 1 {
		t.Errorf("Local(10.9.0.1) = %d, %v", i, ok)
	}
	if _, ok := tab.Local(addr("10.0.0.1")); ok {
		t.Error("the gateway is local")
	}
	for a, want := range map[string]bool{
		"255.255.255.255": true, "10.0.0.255": true, "192.168.7.3": true, "10.9.255.255": true, "10.9.0.255": false,
		"172.16.0.1": false, "::": false, "10.0.0.2": false,
	} {
		if got := tab.IsBroadcast(addr(a)); got != want {
			t.Errorf("IsBroadcast(%s) = %v", a, got)
		}
	}
}

// Who names no address gets one (RFC 9293, MUST-44).
func TestSource(t *testing.T) {
	tab := table(t)
	for dst, want := range map[string]string{
		"10.0.0.9": "10.0.0.2", "10.9.1.1": "10.9.0.1", "8.8.8.8": "192.168.7.1", "8.8.8.9": "10.0.0.2", "2001:db9::1": "2001:db8::2",
	} {
		if got, ok := tab.Source(addr(dst)); !ok || got != addr(want) {
			t.Errorf("Source(%s) = %v, %v, want %s", dst, got, ok, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	tab := table(t)
	for _, p := range []string{"10.0.0.2/24", "10.0.5.0/24", "10.0.5.255/24", "224.0.0.1/4", "0.0.0.0/8", "255.255.255.255/32"} {
		if err := tab.AddAddr(3, netip.MustParsePrefix(p)); err == nil {
			t.Errorf("AddAddr(%s) succeeded", p)
		}
	}
	err := tab.AddRoute(netip.MustParsePrefix("9.0.0.0/8"), 0, netip.MustParseAddr("11.0.0.1"), 0)
	if err == nil || !strings.Contains(err.Error(), "not on link") {
		t.Errorf("a gateway that is not on link: %v", err)
	}
	if err := tab.AddRoute(netip.MustParsePrefix("9.0.0.0/8"), 0, netip.MustParseAddr("2001:db8::1"), 0); err == nil {
		t.Error("an IPv6 gateway for IPv4 was accepted")
	}
}

// The table agrees with netip.Prefix.Contains over all routes.
func TestAgainstNetip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab := new(Table)
	var prefixes []netip.Prefix
	draw := func() netip.Addr {
		return netip.AddrFrom4([4]byte{byte(rng.IntN(2)) + 1, byte(rng.IntN(4)), byte(rng.IntN(4)), byte(rng.IntN(256))})
	}
	for i := range 200 {
		p, _ := draw().Prefix(rng.IntN(33))
		prefixes = append(prefixes, p)
		if err := tab.AddRoute(p, i, netip.Addr{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 5000 {
		a, best := draw(), -1
		for i, p := range prefixes {
			if p.Contains(a) && (best < 0 || p.Bits() > prefixes[best].Bits()) {
				best = i
			}
		}
		index, _, ok := tab.Lookup(wire.AddrFrom(a))
		if ok != (best >= 0) || ok && index != best {
			t.Fatalf("Lookup(%v) = %d, %v, want %d", a, index, ok, best)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	tab := table(b)
	dst := addr("1.2.3.4")
	for b.Loop() {
		tab.Lookup(dst)
	}
}

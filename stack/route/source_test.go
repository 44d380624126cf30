package route

import (
	"net/netip"
	"testing"
)

// RFC 6724, 5: the rules in turn, with the examples of 10.1 where there is one.
func TestSource6(t *testing.T) {
	for _, c := range []struct {
		name, dst, want string
		addrs           []string // deprecated ones with a trailing "d", tentative ones with "t"
	}{
		{"rule 1: itself", "2001:db8:1::1", "2001:db8:1::1", []string{"2001:db8:3::1/64", "2001:db8:1::1/64d"}},
		{"rule 2: scope, global destination", "2001:db8:1::1", "2001:db8:3::1", []string{"fe80::1/64", "2001:db8:3::1/64"}}, // 10.1
		{"rule 2: scope, the smallest that is large enough", "fe80::9", "fe80::1", []string{"2001:db8:3::1/64", "fe80::1/64"}},
		{"rule 2: scope of a group", "ff02::1", "fe80::1", []string{"2001:db8:3::1/64", "fe80::1/64"}},
		{"rule 2: scope of a global group", "ff0e::1", "2001:db8:3::1", []string{"fe80::1/64", "2001:db8:3::1/64"}},
		{"rule 3: not deprecated", "2001:db8:1::9", "2001:db8:3::1", []string{"2001:db8:1::1/64d", "2001:db8:3::1/64"}},
		{"rule 3: deprecated before none", "2001:db8:1::9", "2001:db8:1::1", []string{"2001:db8:1::1/64d", "2001:db8:3::1/64t"}},
		{"rule 6: label", "2002:c633:6401::1", "2002:c633:6401::d5e3", []string{"2001:db8:1::2/64", "2002:c633:6401::d5e3/64"}}, // 10.1
		{"rule 6: label of unique local addresses", "fd11::1", "fd22::1", []string{"2001:db8:1::2/64", "fd22::1/64"}},
		{"rule 8: the longest prefix", "2001:db8:1::1", "2001:db8:1::2", []string{"2001:db8:3::2/64", "2001:db8:1::2/64"}}, // 10.1
		{"rule 8: beyond the prefix nothing counts", "2001:db8:1::d5e3", "2001:db8:1::1", []string{"2001:db8:1::1/64", "2001:db8:1::d5e2/64"}},
		{"tentative ones never", "2001:db8:1::9", "", []string{"2001:db8:1::1/64t"}},
	} {
		tab := new(Table)
		for _, a := range c.addrs {
			state := Preferred
			switch n := len(a) - 1; a[n] {
			case 'd':
				state, a = Deprecated, a[:n]
			case 't':
				state, a = Tentative, a[:n]
			}
			if err := tab.AddOffLink(0, netip.MustParsePrefix(a), state); err != nil {
				t.Fatal(err)
			}
		}
		if err := tab.AddRoute(netip.MustParsePrefix("::/0"), 0, netip.Addr{}, 0); err != nil {
			t.Fatal(err)
		}
		got, ok := tab.Source(addr(c.dst))
		if ok != (c.want != "") || ok && got != addr(c.want) {
			t.Errorf("%s: %v, %v, want %s", c.name, got, ok, c.want)
		}
	}
}

// A tentative address is there, and its group, but nothing comes to it yet (RFC 4862, 5.4).
func TestTentative(t *testing.T) {
	tab := new(Table)
	if err := tab.AddOffLink(0, netip.MustParsePrefix("2001:db8::1:2/64"), Tentative); err != nil {
		t.Fatal(err)
	}
	a := addr("2001:db8::1:2")
	if _, ok := tab.Local(a); ok || !tab.Has(a) || !tab.Tentative(addr("2001:db8::9")) || tab.Tentative(addr("10.0.0.1")) || len(tab.Addrs(0)) != 0 {
		t.Error("a tentative address is in use")
	}
	for g, want := range map[string]bool{"ff02::1": true, "ff01::1": true, "ff02::1:ff01:2": true, "ff02::1:ff01:3": false, "ff05::1:ff01:2": false, "ff02::2": false} {
		if tab.InGroup(addr(g)) != want {
			t.Errorf("in group %s: %v", g, !want)
		}
	}
	if _, _, ok := tab.Lookup(addr("2001:db8::9")); ok {
		t.Error("its network is on link, though nobody said so (RFC 5942, 4)")
	}
}

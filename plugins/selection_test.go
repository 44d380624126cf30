package plugins

import (
	"net/netip"
	"testing"
)

func TestSelectionMatch(t *testing.T) {
	local, peer := netip.MustParseAddrPort("10.7.0.1:80"), netip.MustParseAddrPort("10.7.0.2:40322")
	for _, tt := range []struct {
		s    Selection
		want bool
		text string
	}{
		{Selection{}, true, "all flows"},
		{Selection{NewOnly: true}, true, "all new flows"},
		{Selection{Percent: 100}, true, "all flows"},
		{Selection{LocalPort: 80, PeerPort: 40322}, true, "flows, local port 80, peer port 40322"},
		{Selection{LocalPort: 81}, false, "flows, local port 81"},
		{Selection{PeerPort: 80}, false, "flows, peer port 80"},
		{Selection{Local: netip.MustParsePrefix("10.7.0.1/32")}, true, "flows, local 10.7.0.1/32"},
		{Selection{NewOnly: true, Peer: netip.MustParsePrefix("10.7.0.1/32")}, false, "new flows, peer 10.7.0.1/32"},
		{Selection{Peer: netip.MustParsePrefix("fd00::/8")}, false, "flows, peer fd00::/8"},
	} {
		if got := tt.s.Match(local, peer); got != tt.want || tt.s.String() != tt.text {
			t.Errorf("%v: %v", tt.s, got)
		}
	}
	if mapped := netip.MustParseAddrPort("[::ffff:10.7.0.2]:1"); !(&Selection{Peer: netip.MustParsePrefix("10.0.0.0/8")}).Match(local, mapped) {
		t.Error("a mapped address is not its IPv4 address")
	}
	if n := testing.AllocsPerRun(100, func() { _ = (&Selection{Percent: 3, Peer: netip.MustParsePrefix("10.0.0.0/8")}).Match(local, peer) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A share is what its name says, and grows without letting go of a flow.
func TestSelectionShare(t *testing.T) {
	var got [101]int
	const flows = 20_000
	for i := range flows {
		local, peer := netip.MustParseAddrPort("10.7.0.1:80"), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, byte(i >> 12), 9}), uint16(i))
		was := false
		for p := 1; p <= 100; p++ {
			in := (&Selection{Percent: p}).Match(local, peer)
			if was && !in {
				t.Fatalf("flow %d is of %d %%, not of %d %%", i, p-1, p)
			}
			if was = in; in {
				got[p]++
			}
		}
	}
	for _, p := range []int{1, 5, 20, 50, 99, 100} {
		if want := flows * p / 100; got[p] < want-300 || got[p] > want+300 {
			t.Errorf("%d %% of %d flows: %d", p, flows, got[p])
		}
	}
}

func TestSelectionCheck(t *testing.T) {
	for s, ok := range map[Selection]bool{
		{}: true, {Percent: 100}: true, {Percent: 101}: false, {Percent: -1}: false,
		{Local: netip.MustParsePrefix("10.0.0.0/8"), Peer: netip.MustParsePrefix("fd00::/8")}: false,
	} {
		if err := s.Check(); (err == nil) != ok {
			t.Errorf("%v: %v", s, err)
		}
	}
	for s, all := range map[Selection]bool{{}: true, {NewOnly: true}: true, {Percent: 100}: true, {Percent: 99}: false, {PeerPort: 1}: false} {
		if s.All() != all {
			t.Errorf("%v: all is %v", s, s.All())
		}
	}
}

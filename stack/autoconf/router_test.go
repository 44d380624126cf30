package autoconf

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// advert is an advertisement of one prefix.
func advert(prefix string, valid, preferred time.Duration) *wire.RouterAdv {
	p := netip.MustParsePrefix(prefix)
	a := &wire.RouterAdv{Lifetime: 30 * time.Minute, NumPrefixes: 1}
	a.Prefixes[0] = wire.Prefix{Addr: wire.AddrFrom(p.Addr()), Bits: uint8(p.Bits()), OnLink: true, Auto: true, Valid: valid, Preferred: preferred}
	return a
}

func routed(t *testing.T) *world {
	w := newWorld(t, Config{SLAAC: true, Transmits: 1})
	w.run(3*time.Second, true)
	return w
}

// RFC 4862, 5.5.3 and 5.5.4: an address from the prefix, verified, deprecated when its preferred lifetime is over, and gone with the valid one.
func TestSLAAC(t *testing.T) {
	w := routed(t)
	w.h.Advertised(w.now, router, advert("2001:db8:1::/64", 2*time.Hour, time.Hour))
	w.state("2001:db8:1:", Tentative)
	w.run(3*time.Second, true)
	w.state("2001:db8:1:", Preferred)
	if all := w.run(10*time.Minute, true); len(all) != 0 { // RFC 7559, 2.1
		t.Errorf("sent %v with a default router", texts(all))
	}
	s := w.h.Snapshot()
	if len(s.OnLink) != 1 || s.OnLink[0] != netip.MustParsePrefix("2001:db8:1::/64") || len(s.Routers) != 1 || s.Routers[0].Addr != router.Netip() {
		t.Errorf("%+v", s)
	}
	w.run(50*time.Minute, true)
	w.state("2001:db8:1:", Deprecated)
	w.h.Changed()
	w.run(time.Hour, true)
	if a := w.addr("2001:db8:1:"); a.Prefix.IsValid() || !w.h.Changed() {
		t.Errorf("still there: %+v", a)
	}
	if s := w.h.Snapshot(); len(s.OnLink) != 0 || len(s.Routers) != 0 {
		t.Errorf("after their lifetimes: %+v", s)
	}
}

// RFC 4862, 5.5.3 (a) to (d): prefixes that no address is made from.
func TestPrefixesIgnored(t *testing.T) {
	for name, a := range map[string]*wire.RouterAdv{
		"link-local":           advert("fe80::/64", time.Hour, time.Hour),
		"preferred for longer": advert("2001:db8:1::/64", time.Hour, 2*time.Hour),
		"multicast":            advert("ff0e::/64", time.Hour, time.Hour),
		"no lifetime":          advert("2001:db8:1::/64", 0, 0),
		"63 bits":              advert("2001:db8:1::/63", time.Hour, time.Hour),
		"not autonomous": func() *wire.RouterAdv {
			a := advert("2001:db8:1::/64", time.Hour, time.Hour)
			a.Prefixes[0].Auto = false
			return a
		}(),
	} {
		w := routed(t)
		w.h.Advertised(w.now, router, a)
		if s := w.h.Snapshot(); len(s.Addrs) != 1 {
			t.Errorf("%s: %+v", name, s.Addrs)
		}
	}
	w := newWorld(t, Config{Transmits: 1})
	w.h.Advertised(w.now, router, advert("2001:db8:1::/64", time.Hour, time.Hour))
	if s := w.h.Snapshot(); len(s.Addrs) != 1 || len(s.Routers) != 0 {
		t.Errorf("without SLAAC: %+v", s)
	}
}

// RFC 4862, 5.5.3 (e): nobody shortens the life of an address to less than two hours.
func TestTwoHourRule(t *testing.T) {
	for _, c := range []struct{ remaining, offered, want time.Duration }{
		{24 * time.Hour, 48 * time.Hour, 48 * time.Hour}, // longer than what remains
		{24 * time.Hour, 3 * time.Hour, 3 * time.Hour},   // more than two hours
		{24 * time.Hour, time.Hour, 2 * time.Hour},       // less: two hours
		{24 * time.Hour, 0, 2 * time.Hour},
		{time.Hour, 30 * time.Minute, time.Hour}, // less than two remain: ignored
		{time.Hour, 90 * time.Minute, 90 * time.Minute},
	} {
		w := routed(t)
		w.h.Advertised(w.now, router, advert("2001:db8:1::/64", c.remaining, c.remaining))
		w.h.Advertised(w.now, router, advert("2001:db8:1::/64", c.offered, min(c.offered, c.remaining)))
		if got := w.addr("2001:db8:1:").Valid.Sub(w.now); got != c.want {
			t.Errorf("%v remain, %v offered: %v, want %v", c.remaining, c.offered, got, c.want)
		}
	}
	w := routed(t)
	w.h.Advertised(w.now, router, advert("2001:db8:1::/64", wire.Forever, wire.Forever))
	w.run(3*time.Second, true)
	w.h.Advertised(w.now, router, advert("2001:db8:1::/64", wire.Forever, 0))
	w.state("2001:db8:1:", Deprecated)
	w.h.Advertised(w.now, router, advert("2001:db8:1::/64", wire.Forever, wire.Forever))
	w.state("2001:db8:1:", Preferred)
	if a := w.addr("2001:db8:1:"); a.Valid != plugins.Never || a.Preferred != plugins.Never {
		t.Errorf("%+v", a)
	}
}

// RFC 4861, 6.3.4 to 6.3.6; RFC 4191, 3.2: which router is the first, and when it no longer is.
func TestRouters(t *testing.T) {
	w := routed(t)
	say := func(n byte, pref int8, life time.Duration) wire.Addr {
		a := wire.Addr{0: 0xfe, 1: 0x80, 15: n}
		w.h.Advertised(w.now, a, &wire.RouterAdv{Lifetime: life, Preference: pref})
		return a
	}
	order := func(want ...byte) {
		t.Helper()
		var got []byte
		for _, r := range w.h.Snapshot().Routers {
			got = append(got, r.Addr.As16()[15])
		}
		if !slices.Equal(got, want) {
			t.Errorf("routers %v, want %v", got, want)
		}
	}
	say(1, 0, time.Hour)
	b := say(2, 1, time.Hour)
	say(3, -1, time.Hour)
	say(4, 0, 0) // no default router
	order(2, 1, 3)
	w.h.RouterFailed(b)
	order(1, 3, 2)
	say(2, 1, time.Hour) // it is back
	order(2, 1, 3)
	say(2, 1, 0)
	order(1, 3)
	w.h.NotRouter(wire.Addr{0: 0xfe, 1: 0x80, 15: 1})
	order(3)
	for n := byte(10); n < 30; n++ {
		say(n, 0, time.Hour)
	}
	if n := len(w.h.Snapshot().Routers); n != maxRouters {
		t.Errorf("%d routers", n)
	}
	say(3, -1, time.Minute)
	w.run(2*time.Minute, true)
	if slices.ContainsFunc(w.h.Snapshot().Routers, func(r Router) bool { return r.Addr.As16()[15] == 3 }) {
		t.Error("a router outlives its lifetime")
	}
}

// RFC 4861, 6.3.4: an MTU from 1280 to the link's own. RFC 8106, 5.3.1: servers with lifetimes. All of it has limits.
func TestMTUAndDNS(t *testing.T) {
	w := routed(t)
	for _, c := range []struct {
		mtu  uint32
		want int
	}{{1279, 0}, {1280, 1280}, {1501, 1280}, {1400, 1400}, {0, 1400}} {
		w.h.Advertised(w.now, router, &wire.RouterAdv{MTU: c.mtu})
		if got := w.h.Snapshot().MTU; got != c.want {
			t.Errorf("MTU %d: %d, want %d", c.mtu, got, c.want)
		}
	}
	dns := func(n byte, life time.Duration) {
		a := &wire.RouterAdv{NumServers: 1}
		a.Servers[0] = wire.DNSServer{Addr: wire.Addr{0: 0x20, 1: 1, 15: n}, Lifetime: life}
		w.h.Advertised(w.now, router, a)
	}
	for n := byte(1); n < 20; n++ {
		dns(n, time.Minute)
	}
	dns(1, 0)
	dns(2, time.Hour)
	if n := len(w.h.Snapshot().DNS); n != maxServers-1 {
		t.Errorf("%d servers", n)
	}
	w.run(2*time.Minute, true)
	if s := w.h.Snapshot().DNS; len(s) != 1 || s[0] != netip.MustParseAddr("2001::2") {
		t.Errorf("servers %v", s)
	}
	for n := range 100 {
		w.h.Advertised(w.now, router, advert(netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0, byte(n)}), 64).String(), time.Hour, time.Hour))
	}
	if s := w.h.Snapshot(); len(s.Addrs) != 1+maxAddrs || len(s.OnLink) != maxPrefixes || w.h.Stats().Ignored == 0 {
		t.Errorf("%d addresses, %d prefixes", len(s.Addrs), len(s.OnLink))
	}
}

// RFC 3810, 6.1 and 6.2: a group is reported twice when it is joined and left, and when somebody asks.
func TestMLDv2(t *testing.T) {
	w := newWorld(t, Config{Transmits: 1})
	w.run(5*time.Second, false)
	if err := w.h.AddStatic(netip.MustParsePrefix("2001:db8::aa:bbcc/64"), w.now); err != nil {
		t.Fatal(err)
	}
	count := func(want string, n int) {
		t.Helper()
		all := texts(w.run(12*time.Second, false))
		got := 0
		for _, s := range all {
			if s == want {
				got++
			}
		}
		if got != n {
			t.Errorf("%q was sent %d times, want %d: %q", want, got, n, all)
		}
	}
	group := addr6("ff02::1:ffaa:bbcc")
	count("v2 4 ff02::1:ffaa:bbcc", robustness)
	w.h.Query(w.now, &wire.MLDQuery{Group: group, MaxDelay: time.Second})
	count("v2 2 ff02::1:ffaa:bbcc", 1)
	w.h.Query(w.now, &wire.MLDQuery{Group: addr6("ff02::1:ff00:9999"), MaxDelay: time.Second})
	if all := w.run(12*time.Second, false); len(all) != 0 {
		t.Errorf("answered for a group that is not ours: %v", texts(all))
	}
	ll := wire.AddrFrom(w.addr("fe80::").Prefix.Addr()).SolicitedNode()
	w.h.Query(w.now, &wire.MLDQuery{MaxDelay: 10 * time.Second})
	count("v2 2 "+ll.String()+" 2 ff02::1:ffaa:bbcc", 1)
	if err := w.h.RemoveStatic(netip.MustParseAddr("2001:db8::aa:bbcc"), w.now); err != nil {
		t.Fatal(err)
	}
	count("v2 3 ff02::1:ffaa:bbcc", robustness)
}

// RFC 3810, 8.2.1 and 8.3.2; RFC 2710, 4: with a querier of version 1, reports of version 1 go to the group, others' make ours needless, and
// the last reporter says that it is done.
func TestMLDv1(t *testing.T) {
	w := newWorld(t, Config{Transmits: 1})
	if err := w.h.AddStatic(netip.MustParsePrefix("2001:db8::aa:bbcc/64"), w.now); err != nil {
		t.Fatal(err)
	}
	w.run(5*time.Second, false)
	group := addr6("ff02::1:ffaa:bbcc")
	report := "v1 131 ff02::1:ffaa:bbcc to ff02::1:ffaa:bbcc"
	w.h.Query(w.now, &wire.MLDQuery{V1: true, MaxDelay: time.Second})
	if all := texts(w.run(2*time.Second, false)); len(all) != 2 || !slices.Contains(all, report) {
		t.Errorf("reports %q", all)
	}
	w.h.Query(w.now, &wire.MLDQuery{V1: true, Group: group, MaxDelay: time.Second})
	w.h.Reported(w.now, group)
	if all := w.run(2*time.Second, false); len(all) != 0 {
		t.Errorf("reported although another has: %q", texts(all))
	}
	w.h.Query(w.now, &wire.MLDQuery{V1: true, Group: group, MaxDelay: time.Second})
	w.run(2*time.Second, false)
	if err := w.h.RemoveStatic(netip.MustParseAddr("2001:db8::aa:bbcc"), w.now); err != nil {
		t.Fatal(err)
	}
	if all := texts(w.run(5*time.Second, false)); len(all) != 1 || all[0] != "v1 132 ff02::1:ffaa:bbcc to ff02::2" {
		t.Errorf("leaving: %q", all)
	}
	w.run(v1QuerierExpiry, false)
	w.h.Query(w.now, &wire.MLDQuery{MaxDelay: time.Second})
	if all := texts(w.run(2*time.Second, false)); len(all) != 1 || !strings.HasPrefix(all[0], "v2 2 ") {
		t.Errorf("after the querier of version 1 was not heard for long: %q", all)
	}
}

// No sequence of inputs makes a host busy without end, send what is malformed, or keep more than its limits.
func FuzzHost(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 1, 2, 3, 4, 2, 1, 0, 3, 9, 9, 4, 1, 1, 5, 0, 0, 6, 1, 2})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 600 {
			t.Skip("long")
		}
		w := newWorld(t, Config{SLAAC: true, Transmits: 1})
		lives := []time.Duration{0, time.Second, time.Hour, 3 * time.Hour, wire.Forever}
		for ; len(ops) >= 3; ops = ops[3:] {
			a, b := ops[1], ops[2]
			life := lives[int(b)%len(lives)]
			p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, a & 31}), 64-int(b&32)/32)
			switch ops[0] % 8 {
			case 0:
				w.run(time.Duration(b)<<(20+a%20), false)
			case 1:
				w.h.Advertised(w.now, wire.Addr{0: 0xfe, 1: 0x80, 15: a & 15}, advert(p.String(), life, lives[int(b/8)%len(lives)]))
			case 2:
				addrs := w.h.Snapshot().Addrs
				x := addrs[int(a)%len(addrs)]
				w.h.Heard(w.now, wire.Addr{}, &wire.ND{Type: wire.ICMP6NeighborSol + b&1, Target: wire.AddrFrom(x.Prefix.Addr())})
			case 3:
				w.h.Query(w.now, &wire.MLDQuery{V1: a&1 != 0, MaxDelay: time.Duration(b) * time.Millisecond})
			case 4:
				_ = w.h.AddStatic(netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 15: a & 7}), 64), w.now)
			case 5:
				_ = w.h.RemoveStatic(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 15: a & 7}), w.now)
			case 6:
				w.h.RouterFailed(wire.Addr{0: 0xfe, 1: 0x80, 15: a & 15})
				w.h.Reported(w.now, wire.Addr{0: 0xff, 1: 2, 11: 1, 12: 0xff, 15: b & 7})
			case 7:
				w.h.Advertised(w.now, wire.Addr{0: 0xfe, 1: 0x80, 15: a & 15}, &wire.RouterAdv{Lifetime: life, MTU: uint32(a)<<4 + uint32(b)})
			}
			if s := w.h.Snapshot(); len(s.Addrs) > 1+8+maxAddrs || len(s.Routers) > maxRouters || len(s.OnLink) > maxPrefixes || s.MTU != 0 && (s.MTU < 1280 || s.MTU > 1500) {
				t.Fatalf("%+v", s)
			}
		}
		w.run(100*time.Hour, false)
	})
}

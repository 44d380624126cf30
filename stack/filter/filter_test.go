package filter

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/wire"
	"pgregory.net/rapid"
)

func prefixes(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func addr(s string) wire.Addr { return wire.AddrFrom(netip.MustParseAddr(s)) }

// matches is the plain meaning of a rule.
func (r *Rule) matches(p *Packet) bool {
	in := func(ps []netip.Prefix, a wire.Addr) bool {
		return len(ps) == 0 || slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a.Netip()) })
	}
	ports := func(ps []Ports, n uint16) bool {
		return len(ps) == 0 || p.HasPorts && slices.ContainsFunc(ps, func(p Ports) bool { return p.Min <= n && n <= p.Max })
	}
	return in(r.Sources, p.Src) && in(r.Destinations, p.Dst) && (len(r.Protocols) == 0 || slices.Contains(r.Protocols, p.Proto)) &&
		ports(r.SourcePorts, p.SrcPort) && ports(r.DestPorts, p.DstPort) && (r.State == AnyState || r.State == p.State)
}

// TestModel compares compiled rules with their plain meaning, on packets at and beside the bounds.
func TestModel(t *testing.T) {
	addrs := []string{"0.0.0.0", "10.0.0.0", "10.0.0.1", "10.0.0.255", "10.0.1.0", "9.255.255.255", "255.255.255.255", "::", "::1", "2001:db8::1",
		"2001:db8:0:1::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::fffe:ffff:ffff", "::1:0:0:0"}
	nets := []string{"0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "255.255.255.255/32", "::/0", "2001:db8::/32", "2001:db8::1/128", "::/64", "::1/128"}
	ports := []uint16{0, 1, 79, 80, 81, 1023, 1024, 65534, 65535}
	rapid.Check(t, func(t *rapid.T) {
		var rules []Rule
		for range rapid.IntRange(0, 150).Draw(t, "rules") {
			r := Rule{Action: Action(rapid.IntRange(0, 2).Draw(t, "action")), State: State(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "state"))}
			r.Sources = prefixes(rapid.SliceOfN(rapid.SampledFrom(nets), 0, 2).Draw(t, "src")...)
			r.Destinations = prefixes(rapid.SliceOfN(rapid.SampledFrom(nets), 0, 2).Draw(t, "dst")...)
			r.Protocols = rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1, 6, 17, 255}), 0, 2).Draw(t, "proto")
			for _, ps := range []*[]Ports{&r.SourcePorts, &r.DestPorts} {
				for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "ports") {
					a, b := rapid.SampledFrom(ports).Draw(t, "min"), rapid.SampledFrom(ports).Draw(t, "max")
					*ps = append(*ps, Ports{min(a, b), max(a, b)})
				}
			}
			rules = append(rules, r)
		}
		other := Action(rapid.IntRange(0, 2).Draw(t, "default"))
		table, err := Compile(rules, other)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			p := Packet{
				Src: addr(rapid.SampledFrom(addrs).Draw(t, "s")), Dst: addr(rapid.SampledFrom(addrs).Draw(t, "d")),
				Proto: rapid.SampledFrom([]uint8{0, 1, 6, 17, 58, 255}).Draw(t, "p"), HasPorts: rapid.Bool().Draw(t, "has"),
				SrcPort: rapid.SampledFrom(ports).Draw(t, "sp"), DstPort: rapid.SampledFrom(ports).Draw(t, "dp"), State: State(rapid.IntRange(0, 2).Draw(t, "st")),
			}
			want, action := slices.IndexFunc(rules, func(r Rule) bool { return r.matches(&p) }), other
			if want < 0 {
				want = len(rules)
			} else {
				action = rules[want].Action
			}
			if got, a := table.Match(&p); got != want || a != action {
				t.Fatalf("%+v: rule %d %v, want %d %v", p, got, a, want, action)
			}
		}
	})
}

func TestFrom(t *testing.T) {
	l4 := make([]byte, 20)
	l4[0], l4[1], l4[2], l4[3] = 0x12, 0x34, 0, 80
	for _, c := range []struct {
		proto uint8
		flags uint16
		n     int
		want  Packet
	}{
		{wire.ProtoTCP, wire.SYN, 20, Packet{HasPorts: true, SrcPort: 0x1234, DstPort: 80, State: New}},
		{wire.ProtoTCP, wire.SYN | wire.ACK, 20, Packet{HasPorts: true, SrcPort: 0x1234, DstPort: 80, State: Established}},
		{wire.ProtoTCP, wire.RST, 20, Packet{HasPorts: true, SrcPort: 0x1234, DstPort: 80, State: Established}},
		{wire.ProtoTCP, wire.FIN, 20, Packet{HasPorts: true, SrcPort: 0x1234, DstPort: 80}},
		{wire.ProtoTCP, wire.SYN, 13, Packet{HasPorts: true, SrcPort: 0x1234, DstPort: 80}},
		{wire.ProtoTCP, wire.SYN, 3, Packet{}},
		{wire.ProtoUDP, wire.SYN, 20, Packet{HasPorts: true, SrcPort: 0x1234, DstPort: 80}},
		{wire.ProtoICMP, 0, 20, Packet{}},
	} {
		l4[13] = byte(c.flags)
		c.want.Src, c.want.Dst, c.want.Proto = addr("10.0.0.1"), addr("10.0.0.2"), c.proto
		var got Packet
		got.From(&wire.Packet{Src: c.want.Src, Dst: c.want.Dst, Proto: c.proto, Payload: l4[:c.n]})
		if got != c.want {
			t.Errorf("protocol %d, %d bytes: %+v, want %+v", c.proto, c.n, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, r := range map[string]Rule{
		"prefix": {Sources: []netip.Prefix{{}}}, "mapped": {Destinations: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:1.2.3.4"), 128)}},
		"ports": {DestPorts: []Ports{{2, 1}}}, "action": {Action: 9}, "state": {State: 9},
	} {
		if _, err := Compile([]Rule{{}, r}, Allow); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Compile(make([]Rule, MaxRules+1), Allow); err == nil {
		t.Error("too many rules were accepted")
	}
	for _, a := range []Action{Allow, Deny, Reject} {
		if got, err := ParseAction(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if _, err := ParseAction("drop"); err == nil {
		t.Error("an unknown action was accepted")
	}
}

func TestFilterCounts(t *testing.T) {
	table, err := Compile([]Rule{{Action: Deny, Sources: prefixes("10.0.0.0/8")}}, Allow)
	if err != nil {
		t.Fatal(err)
	}
	var f Filter
	f.Use(table)
	p := wire.Packet{Src: addr("10.1.1.1"), Proto: wire.ProtoUDP, L3: make([]byte, 100), Payload: make([]byte, 80)}
	if a := f.Check(&p); a != Deny {
		t.Errorf("got %v", a)
	}
	p.Src = addr("11.1.1.1")
	if a := f.Check(&p); a != Allow {
		t.Errorf("got %v", a)
	}
	f.Check(&p)
	if got, want := f.Counts(), []Count{{1, 100}, {2, 200}}; !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	f.Use(nil)
	if f.Active() || len(f.Counts()) != 0 {
		t.Error("still there")
	}
}

// many are n rules such as an operator writes, of which the last one matches the benchmark's packet.
func many(n int) (rules []Rule) {
	for i := range n {
		rules = append(rules, Rule{
			Action: Deny, Sources: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24)},
			Protocols: []uint8{wire.ProtoTCP}, DestPorts: []Ports{{uint16(1000 + i), uint16(1000 + 2*i)}},
		})
	}
	if n > 0 {
		rules[n-1] = Rule{Action: Allow, Protocols: []uint8{wire.ProtoTCP}, DestPorts: []Ports{{443, 443}}}
	}
	return rules
}

func BenchmarkCheck(b *testing.B) {
	l4 := make([]byte, 20)
	l4[2], l4[3], l4[13] = 443>>8, 443&255, byte(wire.ACK)
	p := wire.Packet{Src: addr("10.1.1.1"), Dst: addr("10.0.0.1"), Proto: wire.ProtoTCP, L3: make([]byte, 40), Payload: l4}
	for _, n := range []int{0, 10, 100, 1000} {
		table, err := Compile(many(n), Allow)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			var f Filter
			f.Use(table)
			b.ReportAllocs()
			for b.Loop() {
				f.Check(&p)
			}
		})
	}
}

func TestAllocs(t *testing.T) {
	table, err := Compile(many(100), Deny)
	if err != nil {
		t.Fatal(err)
	}
	var f Filter
	f.Use(table)
	p := wire.Packet{Src: addr("10.1.1.1"), Dst: addr("10.0.0.1"), Proto: wire.ProtoTCP, Payload: make([]byte, 20)}
	if n := testing.AllocsPerRun(100, func() { f.Check(&p) }); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

package wire

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func addr6(s string) Addr { return AddrFrom(netip.MustParseAddr(s)) }

var ip6A, ip6B = addr6("2001:db8::1"), addr6("2001:db8::2")

// frame6 builds a frame whose IPv6 header names next, with body behind it.
func frame6(next uint8, body []byte) []byte {
	b := make([]byte, EthLen+IPv6Len, EthLen+IPv6Len+len(body))
	PutEthernet(b, macB, macA, EtherTypeIPv6)
	PutIPv6(b[EthLen:], ip6A, ip6B, next, 0xb8, 64, 0xabcde, len(body))
	return append(b, body...)
}

// ext is an extension header: the next one's number, and what follows the length.
func ext(next uint8, content ...byte) []byte {
	for len(content)%8 != 6 {
		content = append(content, optPad1)
	}
	return append([]byte{next, uint8((len(content)+2)/8 - 1)}, content...)
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestParseIPv6(t *testing.T) {
	f := append(frame6(ProtoUDP, []byte("payload")), 0, 0, 0, 0) // padding
	var p Packet
	if d := Parse(f, &p, false); d != DropNone {
		t.Fatal(d)
	}
	if p.Family != IPv6 || p.Src != ip6A || p.Dst != ip6B || p.TOS != 0xb8 || p.TTL != 64 || p.Flow != 0xabcde || p.Proto != ProtoUDP ||
		p.L4 != IPv6Len || p.NextAt != 6 || string(p.Payload) != "payload" || p.Frag || p.Fragmented || len(p.L3) != 47 {
		t.Fatalf("%+v", p)
	}
	l, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	if !ok || l.TrafficClass != 0xb8 || l.FlowLabel != 0xabcde || l.Length != 7 || l.HopLimit != 64 || !l.SrcIP.Equal(ip6A.Netip().AsSlice()) {
		t.Fatalf("gopacket reads %+v", l)
	}
}

// The rules of RFC 8200, 4: what each chain of headers ends as, and what the sender is told.
func TestExtensionHeaders(t *testing.T) {
	frag := func(next uint8, off uint16, id byte) []byte {
		return []byte{next, 0, byte(off >> 8), byte(off), 0, 0, 0, id}
	}
	alert := ext(ProtoICMPv6, optRouterAlert, 2, 0, 0)
	routing := func(left byte) []byte { return ext(ProtoTCP, 0, left, 0, 0, 0, 0) }
	many := []byte{}
	for range maxExtHeaders + 1 {
		many = append(many, ext(ProtoDstOpts)...)
	}
	for _, c := range []struct {
		name    string
		next    uint8
		body    []byte
		want    Drop
		proto   uint8
		l4      int
		problem Problem
	}{
		{"router alert", ProtoHopByHop, alert, DropNone, ProtoICMPv6, 48, Problem{}},
		{"hop-by-hop, destination options, TCP", ProtoHopByHop, cat(ext(ProtoDstOpts), ext(ProtoTCP), []byte("tcp")), DropNone, ProtoTCP, 56, Problem{}},
		{"hop-by-hop behind another", ProtoDstOpts, cat(ext(ProtoHopByHop), ext(ProtoTCP)), DropIPv6Header, 0, 0, Problem{true, false, ICMP6UnknownNext, 40}}, // 4.1
		{"routing type 0 with segments left", ProtoRouting, routing(1), DropIPv6Routing, 0, 0, Problem{true, false, ICMP6ErroneousField, 42}},                 // RFC 5095
		{"routing type 0 at its end", ProtoRouting, routing(0), DropNone, ProtoTCP, 48, Problem{}},                                                            // 4.4
		{"option 00: skip", ProtoDstOpts, ext(ProtoTCP, 0x1e, 2, 1, 1), DropNone, ProtoTCP, 48, Problem{}},                                                    // 4.2
		{"option 01: drop", ProtoDstOpts, ext(ProtoTCP, 0x5e, 0), DropIPv6Option, 0, 0, Problem{}},
		{"option 10: drop and say", ProtoDstOpts, ext(ProtoTCP, 0x9e, 0), DropIPv6Option, 0, 0, Problem{true, true, ICMP6UnknownOption, 42}},
		{"option 11: drop and say, but not to a group", ProtoDstOpts, ext(ProtoTCP, optPad1, 0xde, 0), DropIPv6Option, 0, 0, Problem{true, false, ICMP6UnknownOption, 43}},
		{"option beyond its header", ProtoDstOpts, ext(ProtoTCP, 0x1e, 5), DropIPv6Header, 0, 0, Problem{}},
		{"header beyond the packet", ProtoDstOpts, []byte{ProtoTCP, 1, 0, 0, 0, 0, 0, 0}, DropIPv6Header, 0, 0, Problem{}},
		{"half a header", ProtoDstOpts, []byte{ProtoTCP, 0, 0}, DropIPv6Header, 0, 0, Problem{}},
		{"too many headers", ProtoDstOpts, many, DropIPv6Chain, 0, 0, Problem{}},
		{"too many options", ProtoDstOpts, ext(ProtoTCP, make([]byte, maxExtOptions+6)...), DropIPv6Chain, 0, 0, Problem{}},
		{"nothing behind", ProtoNone, nil, DropIPv6NoNext, ProtoNone, 40, Problem{}}, // 4.7
		{"unknown", 253, []byte("x"), DropNone, 253, 40, Problem{}},
		{"first fragment", ProtoFragment, cat(frag(ProtoTCP, 1, 7), make([]byte, 16)), DropNone, ProtoTCP, 48, Problem{}},
		{"last fragment", ProtoFragment, cat(frag(ProtoTCP, 16, 7), []byte("odd")), DropNone, ProtoTCP, 48, Problem{}},
		{"fragment not of 8 bytes", ProtoFragment, cat(frag(ProtoTCP, 1, 7), make([]byte, 15)), DropIPFragment, ProtoTCP, 48, Problem{true, false, ICMP6ErroneousField, 4}}, // 4.5
		{"fragment beyond 64 KiB", ProtoFragment, cat(frag(ProtoTCP, 65528, 7), make([]byte, 16)), DropIPFragment, ProtoTCP, 48, Problem{true, false, ICMP6ErroneousField, 42}},
		{"fragment beyond 64 KiB with the headers before it", ProtoDstOpts, cat(ext(ProtoFragment), frag(ProtoTCP, 65520, 7), make([]byte, 15)), DropIPFragment, ProtoTCP, 56, Problem{true, false, ICMP6ErroneousField, 50}},
		{"fragment up to 64 KiB with the headers before it", ProtoDstOpts, cat(ext(ProtoFragment), frag(ProtoTCP, 65520, 7), make([]byte, 7)), DropNone, ProtoTCP, 56, Problem{}},
		{"atomic fragment", ProtoFragment, cat(frag(ProtoDstOpts, 0, 7), ext(ProtoTCP)), DropNone, ProtoTCP, 56, Problem{}}, // RFC 6946
	} {
		var p Packet
		d := Parse(frame6(c.next, c.body), &p, false)
		if d != c.want || p.Problem != c.problem {
			t.Errorf("%s: %v, %+v, want %v, %+v", c.name, d, p.Problem, c.want, c.problem)
		}
		if d == DropNone && (p.Proto != c.proto || int(p.L4) != c.l4) {
			t.Errorf("%s: protocol %d at %d, want %d at %d", c.name, p.Proto, p.L4, c.proto, c.l4)
		}
	}
	var p Packet
	Parse(frame6(ProtoFragment, cat(frag(ProtoTCP, 1480|1, 7), make([]byte, 8))), &p, false)
	if !p.Frag || !p.MoreFrags || p.FragOff != 1480 || p.ID != 7 || p.NextAt != 6 {
		t.Errorf("a fragment: %+v", p)
	}
	Parse(frame6(ProtoFragment, cat(frag(ProtoTCP, 0, 7))), &p, false)
	if p.Frag || !p.Fragmented {
		t.Errorf("an atomic fragment: %+v", p)
	}
}

func TestIPv6Addresses(t *testing.T) {
	for _, c := range []struct {
		src, dst string
		want     Drop
	}{
		{"ff02::1", "2001:db8::2", DropIPSource}, {"::1", "2001:db8::2", DropIPSource}, {"::ffff:10.0.0.1", "2001:db8::2", DropIPSource},
		{"2001:db8::1", "::ffff:10.0.0.2", DropIPDest}, {"::", "ff02::1:ff00:1", DropNone},
	} {
		f := frame6(ProtoICMPv6, make([]byte, 8))
		s, d := netip.MustParseAddr(c.src).As16(), netip.MustParseAddr(c.dst).As16()
		copy(f[EthLen+8:], s[:])
		copy(f[EthLen+24:], d[:])
		var p Packet
		if got := Parse(f, &p, false); got != c.want {
			t.Errorf("%s > %s: %v, want %v", c.src, c.dst, got, c.want)
		}
	}
	if a := addr6("2001:db8::1:2abc:def0"); a.SolicitedNode() != addr6("ff02::1:ffbc:def0") || a.SolicitedNode().GroupMAC() != (MAC{0x33, 0x33, 0xff, 0xbc, 0xde, 0xf0}) {
		t.Error("solicited-node group", a.SolicitedNode(), a.SolicitedNode().GroupMAC())
	}
}

// An error quotes as much as fits in 1280 bytes, and what it quotes is found behind extension headers too (RFC 4443, 2.4 (c)).
func TestICMP6Error(t *testing.T) {
	seg := make([]byte, 1400)
	PutTCP(seg, &TCP{SrcPort: 4000, DstPort: 80, Seq: 77}, TCPLen)
	f := frame6(ProtoDstOpts, cat(ext(ProtoTCP), seg))
	b := make([]byte, 1500)
	n := PutICMP6Error(b, ip6B, ip6A, ICMP6PacketTooBig, 0, 1300, f[EthLen:])
	if n != MinMTU6-IPv6Len {
		t.Fatalf("an error of %d bytes", n)
	}
	typ, code, body, d := ParseICMP6(&Packet{Src: ip6B, Dst: ip6A, Payload: b[:n]}, false)
	if d != DropNone || typ != ICMP6PacketTooBig || code != 0 {
		t.Fatal(d, typ, code)
	}
	var q Quote
	want := Quote{Src: ip6A, Dst: ip6B, Proto: ProtoTCP, SrcPort: 4000, DstPort: 80, Seq: 77, TotalLen: uint16(len(f) - EthLen), Rest: 1300}
	if !ParseQuote(body, &q) || q != want {
		t.Fatalf("%+v, want %+v", q, want)
	}
	if _, _, _, d := ParseICMP6(&Packet{Src: ip6B, Dst: ip6B, Payload: b[:n]}, false); d != DropICMPChecksum {
		t.Errorf("the checksum of other addresses: %v", d) // RFC 4443, 2.3
	}
	for n := range len(body) {
		ParseQuote(body[:n], &q)
	}
}

// RFC 4443, 2.4 (e).
func TestMayAnswerError6(t *testing.T) {
	for _, c := range []struct {
		name        string
		p           Packet
		group, want bool
	}{
		{"TCP", Packet{Src: ip6A, Dst: ip6B, Proto: ProtoTCP}, false, true},
		{"an echo request", Packet{Src: ip6A, Dst: ip6B, Proto: ProtoICMPv6, L3: []byte{1}, Payload: []byte{128}}, false, true},
		{"an error", Packet{Src: ip6A, Dst: ip6B, Proto: ProtoICMPv6, L3: []byte{1}, Payload: []byte{1}}, false, false},
		{"a redirect", Packet{Src: ip6A, Dst: ip6B, Proto: ProtoICMPv6, L3: []byte{1}, Payload: []byte{137}}, false, false},
		{"to a group", Packet{Src: ip6A, Dst: AllNodes, Proto: ProtoTCP}, false, false},
		{"to a group by Ethernet", Packet{EthDst: MAC{0x33, 0x33}, Src: ip6A, Dst: ip6B, Proto: ProtoTCP}, false, false},
		{"an option, to a group", Packet{Src: ip6A, Dst: AllNodes}, true, true},
		{"from nobody", Packet{Dst: AllNodes}, true, false},
	} {
		if got := MayAnswerError6(&c.p, c.group); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// message is an ICMPv6 packet as Parse gives it.
func message(src, dst Addr, hops uint8, icmp []byte) *Packet {
	return &Packet{Family: IPv6, Proto: ProtoICMPv6, Src: src, Dst: dst, TTL: hops, Payload: icmp}
}

// RFC 4861, 6.1 and 7.1: what makes each message invalid.
func TestParseND(t *testing.T) {
	ll, group := addr6("fe80::1"), ip6B.SolicitedNode()
	put := func(n ND, src, dst Addr) []byte {
		b := make([]byte, MaxNDLen)
		return b[:PutND(b, src, dst, &n)]
	}
	ns := ND{Type: ICMP6NeighborSol, Target: ip6B, LLA: macA, HasLLA: true}
	na := ND{Type: ICMP6NeighborAdv, Target: ip6B, Flags: NDSolicited | NDOverride, LLA: macA, HasLLA: true}
	rs := ND{Type: ICMP6RouterSol, LLA: macA, HasLLA: true}
	dad := ND{Type: ICMP6NeighborSol, Target: ip6B, HasNonce: true, Nonce: [6]byte{1, 2, 3, 4, 5, 6}}
	for _, c := range []struct {
		name string
		n    ND
		p    *Packet
		want Drop
	}{
		{"solicitation", ns, message(ip6A, group, 255, put(ns, ip6A, group)), DropNone},
		{"advertisement", na, message(ip6B, ip6A, 255, put(na, ip6B, ip6A)), DropNone},
		{"router solicitation", rs, message(ll, AllRouters, 255, put(rs, ll, AllRouters)), DropNone},
		{"question for a tentative address", dad, message(Addr{}, group, 255, put(dad, Addr{}, group)), DropNone},
		{"hop limit 254", ns, message(ip6A, group, 254, put(ns, ip6A, group)), DropNDInvalid},
		{"from :: with a link-layer address", ns, message(Addr{}, group, 255, put(ns, Addr{}, group)), DropNDInvalid},
		{"from :: not to the group", dad, message(Addr{}, ip6B, 255, put(dad, Addr{}, ip6B)), DropNDInvalid},
		{"solicited, to a group", na, message(ip6B, AllNodes, 255, put(na, ip6B, AllNodes)), DropNDInvalid},
		{"router solicitation from ::", rs, message(Addr{}, AllRouters, 255, put(rs, Addr{}, AllRouters)), DropNDInvalid},
	} {
		var n ND
		if d := ParseND(c.p, &n); d != c.want || d == DropNone && n != c.n {
			t.Errorf("%s: %v, %+v, want %v, %+v", c.name, d, n, c.want, c.n)
		}
	}
	edit := func(name string, change func(p *Packet, b []byte) []byte) {
		t.Helper()
		p := message(ip6A, group, 255, put(ns, ip6A, group))
		p.Payload = change(p, p.Payload)
		var n ND
		if d := ParseND(p, &n); d != DropNDInvalid {
			t.Errorf("%s: %v", name, d)
		}
	}
	edit("in fragments", func(p *Packet, b []byte) []byte { p.Fragmented = true; return b }) // RFC 6980, 5
	edit("code 1", func(_ *Packet, b []byte) []byte { b[1] = 1; return b })
	edit("23 bytes", func(_ *Packet, b []byte) []byte { return b[:23] })
	edit("option of length 0", func(_ *Packet, b []byte) []byte { b[25] = 0; return b })
	edit("option beyond the end", func(_ *Packet, b []byte) []byte { b[25] = 2; return b })
	edit("half an option", func(_ *Packet, b []byte) []byte { return b[:28] })
	edit("target a group", func(_ *Packet, b []byte) []byte { b[8] = 0xff; return b })
	edit("target ::", func(_ *Packet, b []byte) []byte { clear(b[8:24]); return b })
}

// routerAdv is an advertisement with one of each option.
func routerAdv(prefix Addr, bits, flags uint8) []byte {
	b := []byte{ICMP6RouterAdv, 0, 0, 0, 64, 0x08, 0x07, 0x08, 0, 0, 0x75, 0x30, 0, 0, 0x03, 0xe8}
	b = append(b, ndSourceLLA, 1, 2, 0, 0, 0, 0, 9)
	b = append(b, ndMTU, 1, 0, 0, 0, 0, 0x05, 0x78)
	b = append(b, 200, 1, 1, 2, 3, 4, 5, 6) // unknown: skipped
	b = append(append(b, ndPrefixInfo, 4, bits, flags, 0, 0, 0x0e, 0x10, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0), prefix[:]...)
	dns := addr6("2001:db8::53")
	return append(append(b, ndRDNSS, 3, 0, 0, 0, 0, 0, 60), dns[:]...)
}

func TestParseRouterAdv(t *testing.T) {
	b := routerAdv(ip6A, 64, 0xc0)
	var r RouterAdv
	if d := ParseRouterAdv(message(addr6("fe80::9"), AllNodes, 255, b), &r); d != DropNone {
		t.Fatal(d)
	}
	want := RouterAdv{
		HopLimit: 64, Preference: 1, Lifetime: 1800 * time.Second, Reachable: 30 * time.Second, Retrans: time.Second, MTU: 1400,
		LLA: MAC{2, 0, 0, 0, 0, 9}, HasLLA: true, NumPrefixes: 1, NumServers: 1,
	}
	want.Prefixes[0] = Prefix{Addr: ip6A, Bits: 64, OnLink: true, Auto: true, Valid: time.Hour, Preferred: Forever}
	want.Servers[0] = DNSServer{addr6("2001:db8::53"), time.Minute}
	if r != want {
		t.Fatalf("%+v, want %+v", r, want)
	}
	if d := ParseRouterAdv(message(ip6A, AllNodes, 255, b), &r); d != DropNDInvalid { // RFC 4861, 6.1.2
		t.Errorf("from an address that is not link-local: %v", d)
	}
	if d := ParseRouterAdv(message(addr6("fe80::9"), AllNodes, 255, b[:15]), &r); d != DropNDInvalid {
		t.Errorf("15 bytes: %v", d)
	}
}

func TestParseMLDQuery(t *testing.T) {
	query := func(code uint16, group Addr, n int) []byte {
		b := make([]byte, 28)
		b[0] = ICMP6MLDQuery
		binary.BigEndian.PutUint16(b[4:], code)
		copy(b[8:], group[:])
		return b[:n]
	}
	ll := addr6("fe80::1")
	for _, c := range []struct {
		name string
		p    *Packet
		want MLDQuery
		drop Drop
	}{
		{"version 1", message(ll, AllNodes, 1, query(10000, Addr{}, 24)), MLDQuery{true, Addr{}, 10 * time.Second}, DropNone},
		{"version 2", message(ll, AllNodes, 1, query(10000, Addr{}, 28)), MLDQuery{false, Addr{}, 10 * time.Second}, DropNone},
		{"floating point", message(ll, AllNodes, 1, query(0x8000|3<<12|0x123, Addr{}, 28)), MLDQuery{false, Addr{}, time.Duration(0x1123<<6) * time.Millisecond}, DropNone}, // RFC 3810, 5.1.3
		{"of a group", message(ll, ip6A.SolicitedNode(), 1, query(1000, ip6A.SolicitedNode(), 28)), MLDQuery{false, ip6A.SolicitedNode(), time.Second}, DropNone},
		{"26 bytes", message(ll, AllNodes, 1, query(1000, Addr{}, 26)), MLDQuery{}, DropNDInvalid},
		{"hop limit 2", message(ll, AllNodes, 2, query(1000, Addr{}, 28)), MLDQuery{}, DropNDInvalid},
		{"from afar", message(ip6A, AllNodes, 1, query(1000, Addr{}, 28)), MLDQuery{}, DropNDInvalid},
		{"of no group", message(ll, AllNodes, 1, query(1000, ip6A, 28)), MLDQuery{}, DropNDInvalid},
	} {
		var q MLDQuery
		if d := ParseMLDQuery(c.p, &q); d != c.drop || d == DropNone && q != c.want {
			t.Errorf("%s: %v, %+v", c.name, d, q)
		}
	}
}

func FuzzParseIPv6(f *testing.F) {
	f.Add(frame6(ProtoHopByHop, cat(ext(ProtoDstOpts, optRouterAlert, 2, 0, 0), ext(ProtoTCP), make([]byte, 20)))[EthLen:])
	f.Add(frame6(ProtoFragment, cat([]byte{ProtoTCP, 0, 0, 1, 0, 0, 0, 9}, make([]byte, 16)))[EthLen:])
	f.Add(frame6(ProtoRouting, ext(ProtoTCP, 0, 1, 0, 0))[EthLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		d := ParseIP(b, &p, false)
		if p.Family != IPv6 {
			return
		}
		if p.Problem.Send && (d == DropNone || int(p.Problem.Ptr) >= len(p.L3)) {
			t.Fatalf("%v with the problem %+v in a packet of %d bytes", d, p.Problem, len(p.L3))
		}
		if d != DropNone {
			return
		}
		// The offsets point at what they say.
		if int(p.L4) > len(p.L3) || !bytes.Equal(p.L3[p.L4:], p.Payload) || int(p.NextAt) >= int(p.L4) {
			t.Fatalf("%+v", p)
		}
		if next := p.L3[p.NextAt]; next != p.Proto && !(p.Frag && next == ProtoFragment) {
			t.Fatalf("the field at %d says %d, the protocol is %d", p.NextAt, next, p.Proto)
		}
		if p.Frag && int(p.FragOff)+len(p.Payload) > 65535 {
			t.Fatalf("a fragment of %d bytes at %d", len(p.Payload), p.FragOff)
		}
		var q Quote
		ParseQuote(append(make([]byte, 4), p.L3...), &q)
	})
}

func FuzzControl6(f *testing.F) {
	f.Add(true, byte(255), routerAdv(ip6A, 64, 0xc0))
	for _, n := range []ND{{Type: ICMP6NeighborSol, Target: ip6B, LLA: macA, HasLLA: true}, {Type: ICMP6NeighborAdv, Target: ip6B, HasNonce: true}, {Type: ICMP6RouterSol}} {
		b := make([]byte, MaxNDLen)
		f.Add(false, byte(255), b[:PutND(b, ip6A, ip6B, &n)])
	}
	f.Add(true, byte(1), append([]byte{ICMP6MLDQuery}, make([]byte, 27)...))
	f.Fuzz(func(t *testing.T, ll bool, hops byte, b []byte) {
		if len(b) < ICMPLen { // ParseICMP6 refuses it
			return
		}
		p := message(ip6A, ip6B.SolicitedNode(), hops, b)
		if ll {
			p.Src = addr6("fe80::1")
		}
		var n ND
		switch b[0] {
		case ICMP6RouterAdv:
			var r RouterAdv
			if ParseRouterAdv(p, &r) == DropNone && (r.NumPrefixes > maxPrefixes || r.NumServers > maxServers) {
				t.Fatalf("%+v", r)
			}
		case ICMP6MLDQuery:
			var q MLDQuery
			ParseMLDQuery(p, &q)
		case ICMP6NeighborSol, ICMP6NeighborAdv, ICMP6RouterSol:
			if ParseND(p, &n) != DropNone {
				return
			}
			// What was parsed can be built again; parsing that gives the same.
			g := make([]byte, MaxNDLen)
			p.Payload = g[:PutND(g, p.Src, p.Dst, &n)]
			var m ND
			if d := ParseND(p, &m); d != DropNone || m != n {
				t.Fatalf("%v: %+v became %+v", d, n, m)
			}
		}
	})
}

func TestIPv6Allocs(t *testing.T) {
	f := frame6(ProtoHopByHop, cat(ext(ProtoTCP, optRouterAlert, 2, 0, 0), make([]byte, 20)))
	if n := testing.AllocsPerRun(1000, func() {
		var p Packet
		Parse(f, &p, false)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkParseIPv6(b *testing.B) {
	f := frame6(ProtoTCP, make([]byte, 1448))
	var p Packet
	for b.Loop() {
		if Parse(f, &p, false) != DropNone {
			b.Fatal("refused")
		}
	}
}

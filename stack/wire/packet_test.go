package wire

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	macA, macB = MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}
	ipA, ipB   = AddrFrom4([4]byte{10, 0, 0, 1}), AddrFrom4([4]byte{10, 0, 0, 2})
)

// frameIP builds a frame with a valid IPv4 header around payload.
func frameIP(proto uint8, payload []byte) []byte {
	b := make([]byte, EthLen+IPv4Len, EthLen+IPv4Len+len(payload))
	PutEthernet(b, macB, macA, EtherTypeIPv4)
	PutIPv4(b[EthLen:], ipA, ipB, proto, 0x2, 64, 0x1234, IPv4Len+len(payload))
	return append(b, payload...)
}

// frameTCP builds a frame with a segment with valid checksums.
func frameTCP(h TCP) []byte {
	seg := make([]byte, TCPLen, 1600)
	PutTCP(seg, &h, TCPLen+len(h.Opts))
	seg = append(append(seg, h.Opts...), h.Payload...)
	binary.BigEndian.PutUint16(seg[TCPChecksum:], Fold(Sum(seg, PseudoSum(ipA, ipB, ProtoTCP, len(seg)))))
	return frameIP(ProtoTCP, seg)
}

// fixIP recomputes the header checksum.
func fixIP(f []byte) {
	ip := f[EthLen:]
	n := int(ip[0]&15) * 4
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], Fold(Sum(ip[:n], 0)))
}

func TestParse(t *testing.T) {
	payload := []byte("payload")
	good := frameIP(ProtoUDP, payload)
	padded := append(append([]byte(nil), good...), make([]byte, EthMinLen-len(good))...)
	var p Packet
	if d := Parse(padded, &p, false); d != DropNone {
		t.Fatal(d)
	}
	if p.EthSrc != macA || p.EthDst != macB || p.EtherType != EtherTypeIPv4 || p.Src != ipA || p.Dst != ipB || p.TOS != 2 ||
		p.TTL != 64 || p.Proto != ProtoUDP || p.ID != 0x1234 || string(p.Payload) != "payload" || len(p.L3) != IPv4Len+len(payload) {
		t.Fatalf("%+v", p)
	}
	// Options do no harm (RFC 9293, MUST-50).
	options := frameIP(ProtoUDP, append([]byte{1, 1, 1, 0}, payload...))
	options[EthLen] = 0x46
	fixIP(options)
	if d := Parse(options, &p, false); d != DropNone || string(p.Payload) != "payload" {
		t.Fatalf("with options: %v, %q", d, p.Payload)
	}
	options[EthLen+20] ^= 1
	if d := Parse(options, &p, false); d != DropIPChecksum {
		t.Fatalf("bad checksum in the options: %v", d)
	}
	if d := Parse(options, &p, true); d != DropNone {
		t.Fatalf("checksum verified by the port: %v", d)
	}
}

func TestParseDrops(t *testing.T) {
	for _, c := range []struct {
		name string
		want Drop
		edit func(f []byte) []byte
	}{
		{"empty", DropRunt, func(f []byte) []byte { return nil }},
		{"13 bytes", DropRunt, func(f []byte) []byte { return f[:13] }},
		{"ethernet header only", DropIPShort, func(f []byte) []byte { return f[:14] }},
		{"half an IP header", DropIPShort, func(f []byte) []byte { return f[:33] }},
		{"truncated", DropIPShort, func(f []byte) []byte { return f[:len(f)-1] }},
		{"version 6", DropIPVersion, func(f []byte) []byte { f[14] = 0x65; return f }},
		{"IHL 4", DropIPHeader, func(f []byte) []byte { f[14] = 0x44; return f }},
		{"IHL 15 of a short packet", DropIPHeader, func(f []byte) []byte { f[14] = 0x4f; return f }},
		{"total below header", DropIPHeader, func(f []byte) []byte { f[16], f[17] = 0, 19; return f }},
		{"total 0", DropIPHeader, func(f []byte) []byte { f[16], f[17] = 0, 0; return f }},
		{"checksum", DropIPChecksum, func(f []byte) []byte { f[24] ^= 1; return f }},
		{"more fragments", DropNone, func(f []byte) []byte { f[20] = 0x20; fixIP(f); return f }},
		{"last fragment", DropNone, func(f []byte) []byte { f[20], f[21] = 0, 1; fixIP(f); return f }},
		{"from multicast", DropIPSource, func(f []byte) []byte { f[26] = 224; fixIP(f); return f }},
		{"from broadcast", DropIPSource, func(f []byte) []byte { copy(f[26:], "\xff\xff\xff\xff"); fixIP(f); return f }},
		{"from loopback", DropIPSource, func(f []byte) []byte { f[26] = 127; fixIP(f); return f }},
		{"from 0.0.0.0", DropIPSource, func(f []byte) []byte { copy(f[26:], "\x00\x00\x00\x00"); fixIP(f); return f }},
		{"TTL 0", DropNone, func(f []byte) []byte { f[22] = 0; fixIP(f); return f }}, // RFC 1122, 3.2.1.7
		{"reserved flag", DropNone, func(f []byte) []byte { f[20] |= 0x80; fixIP(f); return f }},
		{"VLAN", DropVLAN, func(f []byte) []byte { f[12], f[13] = 0x81, 0; return f }},
		{"IPv4 as IPv6", DropIPVersion, func(f []byte) []byte { f[12], f[13] = 0x86, 0xdd; return f }},
		{"LLC", DropEtherType, func(f []byte) []byte { f[12], f[13] = 0, 40; return f }},
	} {
		var p Packet
		if got := Parse(c.edit(frameIP(ProtoTCP, make([]byte, 30))), &p, false); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDropNames(t *testing.T) {
	seen := map[string]bool{}
	for d := range NumDrops {
		if s := d.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("Drop %d is called %q", d, s)
		} else {
			seen[s] = true
		}
	}
	if NumDrops.String() != "unknown" {
		t.Error("NumDrops has a name")
	}
}

// Bad segments, of which those with a bad checksum are dropped (RFC 9293, MUST-3).
func TestParseTCP(t *testing.T) {
	h := TCP{SrcPort: 0x1234, DstPort: 80, Seq: 0xdeadbeef, Ack: 0xcafebabe, Flags: SYN | ACK | AE | CWR, Window: 0xfffe, Urgent: 3,
		Opts: PutTS(nil, 1, 2), Payload: []byte("odd")}
	f := frameTCP(h)
	var p Packet
	var s TCP
	if d := Parse(f, &p, false); d != DropNone {
		t.Fatal(d)
	}
	if d := ParseTCP(&p, &s, false); d != DropNone {
		t.Fatal(d)
	}
	if s.SrcPort != h.SrcPort || s.DstPort != h.DstPort || s.Seq != h.Seq || s.Ack != h.Ack || s.Flags != h.Flags ||
		s.Window != h.Window || s.Urgent != h.Urgent || string(s.Opts) != string(h.Opts) || string(s.Payload) != "odd" {
		t.Fatalf("%+v, want %+v", s, h)
	}
	for _, c := range []struct {
		name string
		want Drop
		edit func(b []byte) []byte
	}{
		{"19 bytes", DropTCPShort, func(b []byte) []byte { return b[:19] }},
		{"offset 4", DropTCPOffset, func(b []byte) []byte { b[12] = 0x40; return b }},
		{"offset beyond", DropTCPOffset, func(b []byte) []byte { b[12] = 0xf0; return b }},
		{"payload changed", DropTCPChecksum, func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b }},
		{"port changed", DropTCPChecksum, func(b []byte) []byte { b[0] ^= 1; return b }},
	} {
		q := p
		q.Payload = c.edit(append([]byte(nil), p.Payload...))
		if got := ParseTCP(&q, &s, false); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	q := p
	q.Src, q.Dst = p.Dst, ipB
	if got := ParseTCP(&q, &s, false); got != DropTCPChecksum {
		t.Errorf("wrong address: %v", got)
	}
	if got := ParseTCP(&q, &s, true); got != DropNone {
		t.Errorf("checksum verified by the port: %v", got)
	}
}

// gopacket reads what we build, and the other way round.
func TestAgainstGopacket(t *testing.T) {
	f := frameTCP(TCP{SrcPort: 1, DstPort: 2, Seq: 3, Ack: 4, Flags: SYN | ECE | AE, Window: 5,
		Opts:    PutOptions(nil, &Options{Set: OptMSS | OptWScale | OptSACKPerm | OptTS, MSS: 1460, WScale: 7, TSVal: 9}),
		Payload: []byte("hello")})
	pkt := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
	if e := pkt.ErrorLayer(); e != nil {
		t.Fatal(e.Error())
	}
	tcp := pkt.Layer(layers.LayerTypeTCP).(*layers.TCP)
	ip := pkt.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if !tcp.SYN || !tcp.ECE || !tcp.NS || tcp.ACK || tcp.Seq != 3 || tcp.Window != 5 || len(tcp.Options) != 5 || string(tcp.Payload) != "hello" {
		t.Fatalf("%+v", tcp)
	}
	if ip.SrcIP.String() != "10.0.0.1" || ip.Flags != layers.IPv4DontFragment || ip.TOS != 2 || ip.TTL != 64 {
		t.Fatalf("%+v", ip)
	}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	buf := gopacket.NewSerializeBuffer()
	eth := pkt.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	opts := gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, tcp, gopacket.Payload("hello")); err != nil {
		t.Fatal(err)
	}
	if string(buf.Bytes()) != string(f) {
		t.Fatalf("gopacket builds\n%x, we\n%x", buf.Bytes(), f)
	}
}

func TestAddr(t *testing.T) {
	a := AddrFrom(netip.MustParseAddr("192.0.2.7"))
	if a != AddrFrom4([4]byte{192, 0, 2, 7}) || !a.Is4() || a.As4() != [4]byte{192, 0, 2, 7} || a.String() != "192.0.2.7" ||
		a.Netip() != netip.MustParseAddr("192.0.2.7") || a != AddrFrom(netip.MustParseAddr("::ffff:192.0.2.7")) {
		t.Fatalf("%v", a)
	}
	is := func(s string) Addr { return AddrFrom(netip.MustParseAddr(s)) }
	if is("::1").Is4() || !is("::1").IsLoopback() || !is("127.3.2.1").IsLoopback() || is("::").IsLoopback() {
		t.Error("IsLoopback")
	}
	if !is("224.0.0.1").IsMulticast() || !is("239.1.1.1").IsMulticast() || is("240.0.0.1").IsMulticast() || !is("ff02::1").IsMulticast() {
		t.Error("IsMulticast")
	}
	if !is("255.255.255.255").IsBroadcast() || is("255.255.255.254").IsBroadcast() {
		t.Error("IsBroadcast")
	}
	if !is("0.0.0.0").IsZero() || !(Addr{}).IsZero() || is("0.0.0.1").IsZero() || AddrFrom(netip.Addr{}) != (Addr{}) {
		t.Error("IsZero")
	}
	if m := (MAC{0, 0x1b, 0xc, 0xd, 0xee, 0xff}); m.String() != "00:1b:0c:0d:ee:ff" || m.IsMulticast() || !Broadcast.IsMulticast() || !Broadcast.IsBroadcast() {
		t.Errorf("MAC %v", m)
	}
}

func TestAllocs(t *testing.T) {
	f := frameTCP(TCP{Flags: ACK, Opts: PutTS(nil, 1, 2), Payload: make([]byte, 1000)})
	var p Packet
	var s TCP
	var o Options
	buf := make([]byte, 0, 64)
	dst := make([]byte, 2000)
	if n := testing.AllocsPerRun(100, func() {
		Parse(f, &p, false)
		ParseTCP(&p, &s, false)
		ParseOptions(s.Opts, &o)
		PutOptions(buf, &o)
		SumCopy(dst, f, 0)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(frameTCP(TCP{Flags: ACK, Opts: PutTS(nil, 1, 2), Payload: []byte("x")}))
	f.Add(frameIP(ProtoICMP, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		if Parse(b, &p, false) != DropNone || p.EtherType != EtherTypeIPv4 {
			return
		}
		// What was parsed can be built again; parsing that gives the same.
		g := make([]byte, EthLen+IPv4Len, EthLen+IPv4Len+len(p.Payload))
		PutEthernet(g, p.EthDst, p.EthSrc, p.EtherType)
		PutIPv4(g[EthLen:], p.Src, p.Dst, p.Proto, p.TOS, p.TTL, uint16(p.ID), IPv4Len+len(p.Payload))
		g = append(g, p.Payload...)
		var q Packet
		if d := Parse(g, &q, false); d != DropNone {
			t.Fatalf("our own frame: %v", d)
		}
		if q.EthSrc != p.EthSrc || q.EthDst != p.EthDst || q.Src != p.Src || q.Dst != p.Dst || q.TOS != p.TOS || q.TTL != p.TTL ||
			q.Proto != p.Proto || q.ID != p.ID || string(q.Payload) != string(p.Payload) {
			t.Fatalf("%+v became %+v", p, q)
		}
	})
}

func FuzzParseTCP(f *testing.F) {
	g := frameTCP(TCP{Flags: ACK, Opts: PutTS(nil, 1, 2), Payload: []byte("x")})
	f.Add(g[EthLen+IPv4Len:])
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Packet{Src: ipA, Dst: ipB, Proto: ProtoTCP, Payload: b}
		var s TCP
		ParseTCP(&p, &s, false)
		if ParseTCP(&p, &s, true) != DropNone {
			return
		}
		if TCPLen+len(s.Opts)+len(s.Payload) != len(b) || len(s.Opts) > MaxTCPOpts {
			t.Fatalf("%d bytes became %d of options and %d of payload", len(b), len(s.Opts), len(s.Payload))
		}
		var q Packet
		var u TCP
		if d := Parse(frameTCP(s), &q, false); len(b) < 1000 && d != DropNone {
			t.Fatalf("our own frame: %v", d)
		}
		if d := ParseTCP(&q, &u, false); len(b) < 1000 && (d != DropNone || u.Flags != s.Flags || u.Seq != s.Seq || string(u.Payload) != string(s.Payload)) {
			t.Fatalf("%+v became %v %+v", s, d, u)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	f := frameTCP(TCP{Flags: ACK, Opts: PutTS(nil, 1, 2), Payload: make([]byte, 1448)})
	var p Packet
	for b.Loop() {
		Parse(f, &p, false)
	}
}

// BenchmarkParseTCP parses header and options.
func BenchmarkParseTCP(b *testing.B) {
	for name, payload := range map[string]int{"ack": 0, "1448": 1448} {
		f := frameTCP(TCP{Flags: ACK, Opts: PutTS(nil, 1, 2), Payload: make([]byte, payload)})
		for csum, done := range map[string]bool{"software": false, "port": true} {
			b.Run(name+"/"+csum, func(b *testing.B) {
				var p Packet
				var s TCP
				var o Options
				for b.Loop() {
					Parse(f, &p, done)
					ParseTCP(&p, &s, done)
					ParseOptions(s.Opts, &o)
				}
			})
		}
	}
}

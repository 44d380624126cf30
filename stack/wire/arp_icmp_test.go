package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestARP(t *testing.T) {
	a := ARP{Op: ARPRequest, SHA: macA, SPA: [4]byte{10, 0, 0, 1}, THA: macB, TPA: [4]byte{10, 0, 0, 2}}
	b := make([]byte, EthLen+ARPLen)
	PutEthernet(b, Broadcast, macA, EtherTypeARP)
	PutARP(b[EthLen:], &a)
	b = append(b, make([]byte, 18)...) // padding
	var p Packet
	if d := Parse(b, &p, false); d != DropNone || p.EtherType != EtherTypeARP {
		t.Fatal(d)
	}
	if got, d := ParseARP(p.Payload); d != DropNone || got != a {
		t.Fatalf("%v, %+v", d, got)
	}
	l, ok := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeARP).(*layers.ARP)
	if !ok || l.Operation != ARPRequest || !bytes.Equal(l.SourceHwAddress, macA[:]) || !bytes.Equal(l.DstProtAddress, a.TPA[:]) {
		t.Fatalf("gopacket reads %+v", l)
	}
	if _, d := ParseARP(p.Payload[:27]); d != DropARPShort {
		t.Error(d)
	}
	for i, v := range map[int]byte{0: 1, 1: 2, 2: 9, 3: 1, 4: 8, 5: 16, 6: 1, 7: 3} {
		c := append([]byte(nil), p.Payload...)
		c[i] = v
		if _, d := ParseARP(c); d != DropARPType {
			t.Errorf("byte %d = %d: %v", i, v, d)
		}
	}
}

func FuzzParseARP(f *testing.F) {
	b := make([]byte, ARPLen)
	PutARP(b, &ARP{Op: ARPReply, SHA: macA})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		a, d := ParseARP(b)
		if d != DropNone {
			return
		}
		g := make([]byte, ARPLen)
		PutARP(g, &a)
		if !bytes.Equal(g, b[:ARPLen]) {
			t.Fatalf("%x became %x", b, g)
		}
	})
}

func TestICMPEcho(t *testing.T) {
	body := []byte{0x12, 0x34, 0, 1, 'p', 'i', 'n', 'g', '!'}
	msg := make([]byte, 100)
	msg = msg[:PutICMP(msg, ICMPEcho, 0, body)]
	p := Packet{Src: ipA, Dst: ipB, Proto: ProtoICMP, Payload: msg}
	typ, code, got, d := ParseICMP(&p)
	if d != DropNone || typ != ICMPEcho || code != 0 || !bytes.Equal(got, body) {
		t.Fatalf("%v %d %d %x", d, typ, code, got)
	}
	reply := make([]byte, 100)
	reply = reply[:PutEchoReply(reply, got)]
	if typ, _, back, d := ParseICMP(&Packet{Payload: reply}); d != DropNone || typ != ICMPEchoReply || !bytes.Equal(back, body) {
		t.Fatalf("%v %d %x", d, typ, back)
	}
	l, ok := gopacket.NewPacket(msg, layers.LayerTypeICMPv4, gopacket.Default).Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !ok || l.Id != 0x1234 || l.Seq != 1 {
		t.Fatalf("gopacket reads %+v", l)
	}
	p.Payload = msg[:7]
	if _, _, _, d := ParseICMP(&p); d != DropICMPShort {
		t.Error(d)
	}
	msg[5] ^= 1
	p.Payload = msg
	if _, _, _, d := ParseICMP(&p); d != DropICMPChecksum {
		t.Error(d)
	}
}

func TestICMPError(t *testing.T) {
	f := frameTCP(TCP{SrcPort: 4000, DstPort: 80, Seq: 77, Flags: ACK, Payload: make([]byte, 1000)})
	buf := make([]byte, ICMPLen+MaxQuote)
	n := PutICMPError(buf, ICMPUnreachable, ICMPFragNeeded, 1400, f[EthLen:])
	if n != 576-IPv4Len { // RFC 1812, 4.3.2.3
		t.Fatalf("an error of %d bytes", n)
	}
	typ, code, body, d := ParseICMP(&Packet{Payload: buf[:n]})
	if d != DropNone || typ != ICMPUnreachable || code != ICMPFragNeeded {
		t.Fatal(d, typ, code)
	}
	var q Quote
	want := Quote{Src: ipA, Dst: ipB, Proto: ProtoTCP, SrcPort: 4000, DstPort: 80, Seq: 77, TotalLen: uint16(len(f) - EthLen), Rest: 1400}
	if !ParseQuote(body, &q) || q != want {
		t.Fatalf("%+v, want %+v", q, want)
	}
	n = PutICMPError(buf, ICMPUnreachable, ICMPPortUnreachable, 0, f[EthLen:EthLen+28]) // RFC 792: header and 8 bytes
	if _, _, body, _ = ParseICMP(&Packet{Payload: buf[:n]}); !ParseQuote(body, &q) || q.Seq != 77 {
		t.Fatalf("the shortest quote: %+v", q)
	}
	if ParseQuote(body[:len(body)-1], &q) {
		t.Error("a quote of 7 bytes was taken")
	}
	body[4] = 0x46
	if ParseQuote(body, &q) {
		t.Error("a quote shorter than its header and 8 bytes was taken")
	}
	body[4], body[11] = 0x45, 1
	if ParseQuote(body, &q) {
		t.Error("the quote of a later fragment was taken")
	}
}

func TestMayAnswerError(t *testing.T) {
	ok := Packet{EthDst: macB, Src: ipA, Dst: ipB, Proto: ProtoTCP}
	if !MayAnswerError(&ok) {
		t.Error("no error about a plain segment")
	}
	echo := ok
	echo.Proto, echo.Payload = ProtoICMP, []byte{ICMPEcho}
	if !MayAnswerError(&echo) {
		t.Error("no error about an echo request")
	}
	for i, edit := range []func(p *Packet){
		func(p *Packet) { p.EthDst = Broadcast },
		func(p *Packet) { p.Dst = AddrFrom4([4]byte{224, 0, 0, 1}) },
		func(p *Packet) { p.Dst = AddrFrom4([4]byte{255, 255, 255, 255}) },
		func(p *Packet) { p.Proto = ProtoICMP },
		func(p *Packet) { p.Proto, p.Payload = ProtoICMP, []byte{ICMPUnreachable} },
	} {
		p := ok
		edit(&p)
		if MayAnswerError(&p) {
			t.Errorf("case %d: an error about what RFC 1122, 3.2.2 forbids", i)
		}
	}
}

func FuzzParseICMP(f *testing.F) {
	buf := make([]byte, 600)
	f.Add(buf[:PutICMPError(buf, 3, 4, 1400, frameTCP(TCP{Seq: 7})[EthLen:])])
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q Quote
		if len(b) > 4 {
			ParseQuote(b[4:], &q)
			b[2], b[3] = 0, 0
			binary.BigEndian.PutUint16(b[2:], Fold(Sum(b, 0)))
		}
		typ, code, body, d := ParseICMP(&Packet{Payload: b})
		if (d == DropNone) != (len(b) >= ICMPLen) {
			t.Fatalf("%d bytes with a right checksum: %v", len(b), d)
		}
		if d == DropNone {
			g := make([]byte, len(b))
			if n := PutICMP(g, typ, code, body); n != len(b) || !bytes.Equal(g, b) {
				t.Fatalf("%x became %x", b, g)
			}
		}
	})
}

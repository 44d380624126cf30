package stack_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// frames builds frames of a peer.
type frames struct{ peer, his wire.MAC }

func (f *frames) eth(etherType uint16, payload []byte) []byte {
	b := make([]byte, wire.EthLen+len(payload))
	wire.PutEthernet(b, f.his, f.peer, etherType)
	copy(b[wire.EthLen:], payload)
	return b
}

// ip is a valid packet from the peer to the stack.
func (f *frames) ip(proto uint8, l4 []byte) []byte {
	b := make([]byte, wire.IPv4Len+len(l4))
	wire.PutIPv4(b, wire.AddrFrom(tcptest.PeerAddr), wire.AddrFrom(tcptest.StackAddr), proto, 0, 64, 1, len(b))
	copy(b[wire.IPv4Len:], l4)
	return f.eth(wire.EtherTypeIPv4, b)
}

// with changes the IP header of a frame and corrects its checksum.
func with(frame []byte, change func(ip []byte)) []byte {
	ip := frame[wire.EthLen:]
	change(ip)
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip[:20], 0)))
	return frame
}

// tcp is a SYN to a port that listens, if its checksum is right.
func (f *frames) tcp(change func(seg []byte) []byte) []byte {
	seg := make([]byte, 20)
	wire.PutTCP(seg, &wire.TCP{SrcPort: 9000, DstPort: 80, Seq: 1, Flags: wire.SYN, Window: 1000}, 20)
	seg = change(seg)
	src, dst := wire.AddrFrom(tcptest.PeerAddr), wire.AddrFrom(tcptest.StackAddr)
	if len(seg) >= 20 {
		binary.BigEndian.PutUint16(seg[16:], wire.Fold(wire.Sum(seg, wire.PseudoSum(src, dst, wire.ProtoTCP, len(seg)))))
	}
	return f.ip(wire.ProtoTCP, seg)
}

func (f *frames) icmp(typ, code uint8, body []byte) []byte {
	b := make([]byte, 4+len(body))
	wire.PutICMP(b, typ, code, body)
	return f.ip(wire.ProtoICMP, b)
}

func (f *frames) arp(change func(a *wire.ARP)) []byte {
	a := wire.ARP{Op: wire.ARPRequest, SHA: f.peer, SPA: tcptest.PeerAddr.As4(), TPA: tcptest.StackAddr.As4()}
	change(&a)
	b := make([]byte, 46)
	wire.PutARP(b, &a)
	return f.eth(wire.EtherTypeARP, b)
}

func ipAddr(at int, s string) func([]byte) {
	return func(ip []byte) {
		a := netip.MustParseAddr(s).As4()
		copy(ip[at:], a[:])
	}
}

// badFrame is one kind of bad frame and the drop that it counts as; DropNone if something else counts it, or nothing.
type badFrame struct {
	name string
	data []byte
	drop wire.Drop
}

func badFrames(peer, his wire.MAC) []badFrame {
	f := &frames{peer, his}
	same := func(seg []byte) []byte { return seg }
	syn := func() []byte { return f.tcp(same) }
	echo := func() []byte { return f.icmp(wire.ICMPEcho, 0, []byte{0, 1, 0, 1, 'x'}) }
	cut := func(b []byte, n int) []byte { return b[:n] }
	put := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
	quote := make([]byte, 4+wire.IPv4Len+8)
	wire.PutIPv4(quote[4:], wire.AddrFrom(tcptest.StackAddr), wire.AddrFrom(tcptest.PeerAddr), wire.ProtoTCP, 0, 64, 0, 40)
	udpQuote := append([]byte(nil), quote...)
	udpQuote[4+9] = wire.ProtoUDP
	oddQuote := append([]byte(nil), quote...)
	oddQuote[4+9] = 132
	return []badFrame{
		{"runt of 1 byte", []byte{1}, wire.DropRunt},
		{"runt of 13 bytes", cut(syn(), 13), wire.DropRunt},
		{"Ethernet header alone", cut(syn(), 14), wire.DropIPShort},
		{"unknown EtherType", f.eth(0x1234, make([]byte, 46)), wire.DropEtherType},
		{"802.3 length", f.eth(0x0026, make([]byte, 46)), wire.DropEtherType},
		{"VLAN", f.eth(wire.EtherTypeVLAN, make([]byte, 46)), wire.DropVLAN},
		{"zeros as IPv6", f.eth(wire.EtherTypeIPv6, make([]byte, 46)), wire.DropIPVersion},
		{"truncated IP header", cut(syn(), 14+19), wire.DropIPShort},
		{"total length beyond the frame", with(syn(), func(ip []byte) { ip[3] = 200 }), wire.DropIPShort},
		{"total length below the header", with(syn(), func(ip []byte) { ip[3] = 19 }), wire.DropIPHeader},
		{"IP version 5", with(syn(), func(ip []byte) { ip[0] = 0x55 }), wire.DropIPVersion},
		{"header length 4", with(syn(), func(ip []byte) { ip[0] = 0x41 }), wire.DropIPHeader},
		{"header longer than the packet", with(syn(), func(ip []byte) { ip[0] = 0x4f }), wire.DropIPHeader},
		{"IP checksum", put(syn(), 14+10, 0xde, 0xad), wire.DropIPChecksum},
		{"first fragment", with(syn(), func(ip []byte) { ip[6] = 0x20 }), wire.DropIPFragment},
		{"fragment that begins in the TCP header", with(syn(), func(ip []byte) { ip[6], ip[7] = 0, 1 }), wire.DropIPFragment},
		// RFC 9293, MUST-63 and MUST-57.
		{"source multicast", with(syn(), ipAddr(12, "224.0.0.1")), wire.DropIPSource},
		{"source broadcast", with(syn(), ipAddr(12, "255.255.255.255")), wire.DropIPSource},
		{"source directed broadcast", with(syn(), ipAddr(12, "10.0.0.255")), wire.DropIPSource},
		{"source loopback", with(syn(), ipAddr(12, "127.0.0.1")), wire.DropIPSource},
		{"source unspecified", with(syn(), ipAddr(12, "0.0.0.0")), wire.DropIPSource},
		{"source is ours", with(syn(), ipAddr(12, "10.0.0.1")), wire.DropIPSource},
		{"ping from a directed broadcast", with(echo(), ipAddr(12, "10.0.0.255")), wire.DropIPSource},
		{"destination another host", with(syn(), ipAddr(16, "10.0.0.3")), wire.DropIPDest},
		{"destination multicast", with(syn(), ipAddr(16, "224.0.0.1")), wire.DropIPDest},
		{"destination broadcast", with(syn(), ipAddr(16, "255.255.255.255")), wire.DropIPDest},
		{"destination directed broadcast", with(syn(), ipAddr(16, "10.0.0.255")), wire.DropIPDest},
		{"ping to the directed broadcast", with(echo(), ipAddr(16, "10.0.0.255")), wire.DropIPDest},
		{"Ethernet broadcast with our IP address", put(syn(), 0, 255, 255, 255, 255, 255, 255), wire.DropIPDest},
		{"Ethernet address of another host", put(syn(), 0, 2, 0, 0, 0, 0, 99), wire.DropIPDest},
		{"UDP header of 7 bytes", f.ip(wire.ProtoUDP, make([]byte, 7)), wire.DropUDPShort},
		{"UDP length 7", f.ip(wire.ProtoUDP, []byte{0, 1, 0, 2, 0, 7, 0, 0}), wire.DropUDPLength},
		{"UDP length beyond the packet", f.ip(wire.ProtoUDP, []byte{0, 1, 0, 2, 0, 9, 0, 0}), wire.DropUDPLength},
		{"UDP checksum", f.ip(wire.ProtoUDP, []byte{0, 1, 0, 2, 0, 8, 0, 1}), wire.DropUDPChecksum},
		{"UDP to no socket", f.ip(wire.ProtoUDP, []byte{0, 1, 0, 2, 0, 8, 0, 0}), wire.DropUDPPort},
		{"UDP to no socket by broadcast", with(put(f.ip(wire.ProtoUDP, []byte{0, 1, 0, 2, 0, 8, 0, 0}), 0, 255, 255, 255, 255, 255, 255), ipAddr(16, "10.0.0.255")), wire.DropUDPPort},
		{"protocol 255", f.ip(255, nil), wire.DropIPProto},
		{"TCP header of 19 bytes", f.tcp(func(s []byte) []byte { return s[:19] }), wire.DropTCPShort},
		{"no TCP header", f.ip(wire.ProtoTCP, nil), wire.DropTCPShort},
		{"TCP offset 4", f.tcp(func(s []byte) []byte { s[12] = 0x40; return s }), wire.DropTCPOffset},
		{"TCP offset beyond the segment", f.tcp(func(s []byte) []byte { s[12] = 0x60; return s }), wire.DropTCPOffset},
		{"TCP checksum", put(syn(), 14+20+16, 0xde, 0xad), wire.DropTCPChecksum},
		{"TCP checksum of the wrong pseudo-header", with(syn(), ipAddr(12, "10.0.0.9")), wire.DropTCPChecksum},
		{"ICMP of 7 bytes", f.ip(wire.ProtoICMP, make([]byte, 7)), wire.DropICMPShort},
		{"ICMP checksum", put(echo(), 14+20+2, 0xde, 0xad), wire.DropICMPChecksum},
		{"ICMP timestamp request", f.icmp(13, 0, make([]byte, 16)), wire.DropICMPType},
		{"ICMP redirect", f.icmp(wire.ICMPRedirect, 0, quote), wire.DropRedirect},
		{"ICMP echo reply", f.icmp(wire.ICMPEchoReply, 0, make([]byte, 8)), wire.DropICMPType},
		{"ICMP error without a quote", f.icmp(wire.ICMPUnreachable, 3, make([]byte, 4)), wire.DropICMPShort},
		{"ICMP error with a short quote", f.icmp(wire.ICMPUnreachable, 3, quote[:28]), wire.DropICMPShort},
		{"ICMP error about UDP of no socket", f.icmp(wire.ICMPUnreachable, 3, udpQuote), wire.DropNone},
		{"ICMP error about another protocol", f.icmp(wire.ICMPUnreachable, 3, oddQuote), wire.DropICMPShort},
		{"ICMP error about no connection", f.icmp(wire.ICMPUnreachable, 3, quote), wire.DropNone},
		{"ARP of 27 bytes", cut(f.arp(func(*wire.ARP) {}), 14+27), wire.DropARPShort},
		{"ARP of another hardware", put(f.arp(func(*wire.ARP) {}), 14, 0, 6), wire.DropARPType},
		{"ARP of another protocol", put(f.arp(func(*wire.ARP) {}), 16, 0x86, 0xdd), wire.DropARPType},
		{"ARP with address lengths 0", put(f.arp(func(*wire.ARP) {}), 18, 0, 0), wire.DropARPType},
		{"ARP operation 3", f.arp(func(a *wire.ARP) { a.Op = 3 }), wire.DropARPType},
		{"ARP of a multicast sender", f.arp(func(a *wire.ARP) { a.SHA = wire.MAC{1, 2, 3, 4, 5, 6} }), wire.DropNone},
		{"ARP of a sender without address", f.arp(func(a *wire.ARP) { a.SHA = wire.MAC{} }), wire.DropNone},
		{"ARP of a multicast IP address", f.arp(func(a *wire.ARP) { a.SPA = [4]byte{224, 0, 0, 1} }), wire.DropNone},
		{"ARP reply that nobody asked for", f.arp(func(a *wire.ARP) { a.Op, a.SPA = wire.ARPReply, [4]byte{10, 0, 0, 77} }), wire.DropNone},
		{"ARP for another host", f.arp(func(a *wire.ARP) { a.TPA, a.SPA = [4]byte{10, 0, 0, 78}, [4]byte{10, 0, 0, 79} }), wire.DropNone},
		{"ARP of one who has our address", f.arp(func(a *wire.ARP) { a.SHA, a.SPA = wire.MAC{2, 9, 9, 9, 9, 9}, tcptest.StackAddr.As4() }), wire.DropNone},
		{"SYN to a closed port", f.tcp(func(s []byte) []byte { s[3] = 81; return s }), wire.DropNone},
		{"ACK of no connection", f.tcp(func(s []byte) []byte { s[13] = 0x10; return s }), wire.DropNone},
		{"no flags", f.tcp(func(s []byte) []byte { s[13] = 0; return s }), wire.DropNone},
		{"all flags", f.tcp(func(s []byte) []byte { s[13] = 0xff; return s }), wire.DropNone},
		{"RST", f.tcp(func(s []byte) []byte { s[13] = 4; return s }), wire.DropNone},
	}
}

const pool = 128

// Each kind of bad frame, three pools' worth of it: counted, and nothing else happens. Then a ping is answered, a connection that was
// there before carries data, and a new one opens. The harness checks that no buffer and no memory is missing at the end.
func TestBadInput(t *testing.T) {
	setup := func(t *testing.T) (*tcptest.Peer, *tcp.Listener, *tcptest.Flow) {
		p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}})
		p.StackPool().Track(true)
		l := p.Listen(10)
		return p, l, p.Passive(l, 5000, "mss 1460", 10000)
	}
	peer, his := func() (a, b wire.MAC) { p, _, _ := setup(t); return p.MACs() }()
	for _, bad := range badFrames(peer, his) {
		t.Run(bad.name, func(t *testing.T) {
			p, l, f := setup(t)
			before := p.Stats()
			for range 3 * pool {
				p.SendFrame(bytes.Clone(bad.data))
				p.Take() // resets, and unreachables at their limited rate
			}
			after := p.Stats()
			for d := range wire.NumDrops {
				want := uint64(0)
				if d == bad.drop && d != wire.DropNone {
					want = 3 * pool
				}
				if got := after.L3.Drops[d] - before.L3.Drops[d]; got != want {
					t.Errorf("%d drops for %v, want %d", got, d, want)
				}
			}
			stillWorks(t, p, l, f)
		})
	}
}

func stillWorks(t *testing.T, p *tcptest.Peer, l *tcp.Listener, f *tcptest.Flow) {
	t.Helper()
	ping(t, p)
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1001")
	f.WantRead(1000)
	f.Write(1000)
	f.Expect("P. 1:1001(1000) ack 1001")
	g := p.Passive(l, 5001, "mss 1460,sackOK,ts * *,ws 7", 1000)
	g.Write(10)
	g.Expect("P. 1:11(10) ack 1")
}

// ping sends an echo request and wants its answer.
func ping(t *testing.T, p *tcptest.Peer) {
	t.Helper()
	peer, his := p.MACs()
	f := &frames{peer, his}
	body := []byte{1, 2, 3, 4, 'h', 'e', 'l', 'l', 'o'}
	p.SendFrame(f.icmp(wire.ICMPEcho, 0, body))
	got := p.Take()
	if len(got) != 1 {
		t.Fatalf("%d answers to a ping", len(got))
	}
	var pk wire.Packet
	if d := wire.Parse(got[0].Data, &pk, false); d != wire.DropNone {
		t.Fatalf("the answer is malformed: %v", d)
	}
	typ, code, b, d := wire.ParseICMP(&pk)
	if d != wire.DropNone || typ != wire.ICMPEchoReply || code != 0 || !bytes.Equal(b, body) || pk.EthDst != peer {
		t.Fatalf("the answer is %d %d %x, %v", typ, code, b, d)
	}
}

// TCP options that are malformed (RFC 9293, MUST-5 and MUST-7): the segment counts, what stands before the bad option too, and nothing breaks.
// Each is counted, once.
func TestBadOptions(t *testing.T) {
	malformed := map[string]bool{"length 0": true, "length 1": true, "beyond the end": true, "kind alone at the end": true, "kind 255, length 0": true}
	for name, opts := range map[string][]byte{
		"length 0":              {2, 0, 0, 0},
		"length 1":              {3, 1, 0, 0},
		"beyond the end":        {2, 40, 0, 0},
		"kind alone at the end": {1, 1, 1, 8},
		"MSS of 3 bytes":        {2, 3, 5, 0},
		"empty SACK":            {5, 2, 0, 0},
		"SACK of 9 bytes":       {1, 1, 1, 5, 9, 0, 0, 0, 0, 0, 0, 0},
		"timestamp of 8 bytes":  {8, 8, 1, 2, 3, 4, 5, 6},
		"window scale 255":      {1, 3, 3, 255},
		"unknown kind":          {77, 4, 1, 2},
		"kind 255, length 0":    {255, 0, 255, 255},
		"all":                   bytes.Repeat([]byte{253, 2}, 20),
		"everything zero":       make([]byte, 40),
	} {
		t.Run(name, func(t *testing.T) {
			p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}})
			l := p.Listen(10)
			f := p.Passive(l, 5000, "mss 1460,sackOK", 10000)
			for i := range 3 * pool {
				sq := uint32(1 + 10*i)
				p.SendFrame(f.Frame(&wire.TCP{SrcPort: 5000, DstPort: 80, Seq: f.ISS + sq, Ack: f.IRS + 1, Flags: wire.ACK, Window: 10000}, opts, sq-1, 10))
				p.Take()
			}
			f.WantRead(3 * pool * 10)
			g := p.Flow(6000, 80)
			p.SendFrame(g.Frame(&wire.TCP{SrcPort: 6000, DstPort: 80, Seq: g.ISS, Flags: wire.SYN, Window: 10000}, opts, 0, 0))
			g.Expect("S. 0:0(0) ack 1")
			p.SendFrame(g.Frame(&wire.TCP{SrcPort: 6000, DstPort: 80, Seq: g.ISS + 1, Ack: g.IRS + 1, Flags: wire.ACK, Window: 10000}, opts, 0, 0))
			g.Accept(l)
			want := uint64(0)
			if malformed[name] {
				want = 3*pool + 2
			}
			if got := p.Stats().TCP.BadOptions; got != want {
				t.Errorf("%d segments with malformed options were counted, want %d", got, want)
			}
			ping(t, p)
		})
	}
}

// Malformed options are counted once in every state, not only in that of established connections.
func TestBadOptionsInEveryState(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{TCP: tcp.Config{SynCookies: tcp.CookiesAlways, TimeWait: time.Minute}}})
	l := p.Listen(10)
	want := uint64(0)
	send := func(state string, f *tcptest.Flow, sq, ack uint32, flags uint16) {
		t.Helper()
		p.SendFrame(f.Frame(&wire.TCP{SrcPort: f.Port, DstPort: f.StackPort, Seq: f.ISS + sq, Ack: ack, Flags: flags, Window: 10000}, []byte{2, 0, 0, 0}, 0, 0))
		p.Idle(time.Microsecond)
		want++
		if got := p.Stats().TCP.BadOptions; got != want {
			t.Errorf("%s: %d counted, want %d", state, got, want)
		}
	}
	f := p.Flow(5000, 80)
	send("LISTEN, SYN", f, 0, 0, wire.SYN)
	f.Expect("S. 0:0(0) ack 1")
	send("LISTEN, cookie", f, 1, f.IRS+1, wire.ACK)
	f.Accept(l)
	send("LISTEN, ACK of nothing", p.Flow(5001, 80), 1, 1, wire.ACK)
	p.Take()
	send("LISTEN, reset", p.Flow(5002, 80), 1, 1, wire.RST)
	g := p.Connect()
	g.Expect("S 0:0(0)")
	send("SYN-SENT", g, 0, g.IRS+1, wire.SYN|wire.ACK)
	g.Expect(". 1:1(0) ack 1")
	g.Close()
	g.Expect("F. 1:1(0) ack 1")
	g.Send("F. 1:1(0) ack 2")
	g.Expect(". 2:2(0) ack 2")
	send("TIME-WAIT", g, 2, g.IRS+2, wire.ACK)
	send("TIME-WAIT, SYN", g, 100_000, 0, wire.SYN)
	p.Take()
}

// Floods that are not malformed, only hostile: SYNs of many ports and addresses, and segments with every combination of flags at every
// edge. The table, the backlog and the ARP cache stay bounded.
func TestFloods(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}, Stack: stack.Config{TCP: tcp.Config{MaxConns: 200}}})
	l := p.Listen(10)
	f := p.Passive(l, 5000, "mss 1460", 10000)
	peer, his := p.MACs()
	fr := &frames{peer, his}
	for i := range 3000 {
		b := fr.tcp(func(s []byte) []byte { binary.BigEndian.PutUint16(s, uint16(10_000+i)); return s })
		p.SendFrame(b)
		p.Take()
	}
	for i := range 3000 { // forged sources that answer no ARP request
		src := netip.AddrFrom4([4]byte{10, 0, 0, byte(3 + i%250)})
		seg := make([]byte, 20)
		wire.PutTCP(seg, &wire.TCP{SrcPort: uint16(i), DstPort: 80, Flags: wire.SYN}, 20)
		binary.BigEndian.PutUint16(seg[16:], wire.Fold(wire.Sum(seg, wire.PseudoSum(wire.AddrFrom(src), wire.AddrFrom(tcptest.StackAddr), wire.ProtoTCP, 20))))
		p.SendFrame(with(fr.ip(wire.ProtoTCP, seg), ipAddr(12, src.String())))
		p.Take()
	}
	s := p.Stats()
	if s.TCP.Conns != 1 || s.TCP.SynRecvs > 128 || s.TCP.ReqQFull < 5000 {
		t.Errorf("%d connections, %d half-open ones, %d SYNs found the queue full", s.TCP.Conns, s.TCP.SynRecvs, s.TCP.ReqQFull)
	}
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1001")
	f.WantRead(1000)
	p.Idle(200e9) // the half-open ones give up
	p.Take()
	if s := p.Stats().TCP; s.Conns != 1 || s.SynRecvs != 0 {
		t.Errorf("%d connections and %d half-open ones after the flood", s.Conns, s.SynRecvs)
	}
	ping(t, p)
	g := p.Passive(l, 7000, "mss 1460", 10000)
	g.Write(1)
	g.Expect("P. 1:2(1) ack 1")
	p.Take()
}

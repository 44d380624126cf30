package stack_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// udpPeer writes datagrams by hand.
type udpPeer struct {
	*tcptest.Peer
	fr frames
}

func newUDPPeer(t *testing.T, cfg tcptest.Config) *udpPeer {
	p := &udpPeer{Peer: tcptest.New(t, cfg)}
	p.fr.peer, p.fr.his = p.MACs()
	return p
}

func (p *udpPeer) datagram(srcPort, dstPort uint16, data string) []byte {
	b := make([]byte, wire.UDPLen+len(data))
	wire.PutUDP(b, wire.AddrFrom(tcptest.PeerAddr), wire.AddrFrom(tcptest.StackAddr), srcPort, dstPort, []byte(data))
	return p.fr.ip(wire.ProtoUDP, b)
}

func (p *udpPeer) listen(addr string) *udp.Endpoint {
	p.T.Helper()
	ep, err := p.Stack.ListenUDP(netip.MustParseAddrPort(addr), 0)
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { p.Stack.CloseUDP(ep) })
	return ep
}

func (p *udpPeer) dial(local, remote string) *udp.Endpoint {
	p.T.Helper()
	ep, err := p.Stack.DialUDP(netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote))
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { p.Stack.CloseUDP(ep) })
	return ep
}

func wantRead(t *testing.T, ep *udp.Endpoint, want, from string) {
	t.Helper()
	buf := make([]byte, 2000)
	n, size, a, err := ep.TryRead(buf)
	if err != nil || string(buf[:n]) != want || size != len(want) || a.String() != from {
		t.Errorf("read %q, %d of %d bytes, from %v, %v; want %q from %s", buf[:n], n, size, a, err, want, from)
	}
}

func wantNothing(t *testing.T, ep *udp.Endpoint) {
	t.Helper()
	if n, _, from, err := ep.TryRead(make([]byte, 100)); err != udp.ErrWouldBlock {
		t.Errorf("read %d bytes from %v, %v; want nothing", n, from, err)
	}
}

// sent parses the frames that the stack has sent; all must be datagrams.
func (p *udpPeer) sent() (ps []wire.Packet, us []wire.UDP) {
	p.T.Helper()
	for _, f := range p.Take() {
		var k wire.Packet
		var u wire.UDP
		if d := wire.Parse(f.Data, &k, false); d != wire.DropNone && d != wire.DropIPSource {
			p.T.Fatalf("the stack sent a bad packet: %v", d)
		}
		if d := wire.ParseUDP(&k, &u, false); k.Proto != wire.ProtoUDP || d != wire.DropNone {
			p.T.Fatalf("the stack sent protocol %d, %v", k.Proto, d)
		}
		ps, us = append(ps, k), append(us, u)
	}
	return ps, us
}

func TestUDPExchange(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep := p.listen("10.0.0.1:53")
	p.SendFrame(p.datagram(4000, 53, "hello"))
	p.SendFrame(p.datagram(4001, 53, "")) // of no bytes, and still one
	wantRead(t, ep, "hello", "10.0.0.2:4000")
	wantRead(t, ep, "", "10.0.0.2:4001")
	wantNothing(t, ep)
	for _, s := range []string{"world", ""} {
		if err := ep.TryWrite([]byte(s), netip.MustParseAddrPort("10.0.0.2:4000")); err != nil {
			t.Fatal(err)
		}
	}
	ps, us := p.sent()
	if len(us) != 2 || string(us[0].Data) != "world" || len(us[1].Data) != 0 || us[0].SrcPort != 53 || us[0].DstPort != 4000 {
		t.Fatalf("sent %v", us)
	}
	if ps[0].TTL != 64 || ps[0].Src != wire.AddrFrom(tcptest.StackAddr) || ps[0].EthDst != p.fr.peer {
		t.Errorf("packet %+v", ps[0])
	}
	i := p.Stack.UDPSockets()[0]
	if i.In != 2 || i.Out != 2 || i.RecvQueue != 0 || i.SendQueue != 0 {
		t.Errorf("figures %+v", i)
	}
}

// A reader's buffer that is too small cuts the datagram, and the next read gets the next one.
func TestUDPTruncation(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep := p.listen("0.0.0.0:53")
	p.SendFrame(p.datagram(4000, 53, "0123456789"))
	p.SendFrame(p.datagram(4000, 53, "next"))
	buf := make([]byte, 4)
	if n, size, _, err := ep.TryRead(buf); n != 4 || size != 10 || err != nil || string(buf) != "0123" {
		t.Errorf("read %d of %d, %v", n, size, err)
	}
	wantRead(t, ep, "next", "10.0.0.2:4000")
}

// RFC 768: without a checksum a datagram counts; behind the UDP length is no data (RFC 1122 leaves it, Linux cuts).
func TestUDPChecksum(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep := p.listen("10.0.0.1:53")
	none := p.datagram(4000, 53, "no sum")
	binary.BigEndian.PutUint16(none[wire.EthLen+wire.IPv4Len+6:], 0)
	p.SendFrame(none)
	wantRead(t, ep, "no sum", "10.0.0.2:4000")
	bad := p.datagram(4000, 53, "bad sum")
	bad[len(bad)-1] ^= 1
	p.SendFrame(bad)
	wantNothing(t, ep)
	l4 := p.datagram(4000, 53, "short")[wire.EthLen+wire.IPv4Len:]
	p.SendFrame(p.fr.ip(wire.ProtoUDP, append(l4, "tail"...)))
	wantRead(t, ep, "short", "10.0.0.2:4000")
	if s := p.Stats(); s.UDP.InErrors != 1 || s.L3.Drops[wire.DropUDPChecksum] != 1 {
		t.Errorf("%d errors counted", s.UDP.InErrors)
	}
}

// A checksum that computes to 0 is sent as ffff (RFC 768).
func TestUDPZeroSum(t *testing.T) {
	for v := range 1 << 16 {
		var b [wire.UDPLen + 2]byte
		data := []byte{byte(v >> 8), byte(v)}
		wire.PutUDP(b[:], wire.AddrFrom(tcptest.StackAddr), wire.AddrFrom(tcptest.PeerAddr), 1, 2, data)
		sum := binary.BigEndian.Uint16(b[6:])
		if sum == 0 {
			t.Fatalf("checksum 0 of %x", data)
		}
		if sum == 0xffff {
			p := wire.Packet{Src: wire.AddrFrom(tcptest.StackAddr), Dst: wire.AddrFrom(tcptest.PeerAddr), Payload: b[:]}
			var u wire.UDP
			if d := wire.ParseUDP(&p, &u, false); d != wire.DropNone {
				t.Errorf("not accepted: %v", d)
			}
			return
		}
	}
	t.Error("no data gives ffff")
}

// The closest match gets a datagram: connected before bound to an address before unspecified.
func TestUDPDemux(t *testing.T) {
	e := udp.New(udp.Env{Arena: mem.NewHeapArena(new(mem.Budget))}, 1)
	local, remote := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddrPort("10.0.0.2:4000")
	any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), 53)
	eps := map[string]*udp.Endpoint{
		"any":            udp.NewEndpoint(udp.Config{Local: any4}),
		"only IPv6":      udp.NewEndpoint(udp.Config{Local: netip.AddrPortFrom(netip.IPv6Unspecified(), 53), Only6: true}),
		"bound":          udp.NewEndpoint(udp.Config{Local: netip.AddrPortFrom(local, 53)}),
		"connected":      udp.NewEndpoint(udp.Config{Local: netip.AddrPortFrom(local, 53), Remote: remote}),
		"connected, any": udp.NewEndpoint(udp.Config{Local: any4, Remote: remote}),
	}
	for _, c := range []struct {
		add, from, to, want string
	}{
		{"only IPv6", "10.0.0.2:4000", "10.0.0.1", ""},
		{"any", "10.0.0.2:4000", "10.0.0.1", "any"},
		{"bound", "10.0.0.2:4000", "10.0.0.1", "bound"},
		{"connected, any", "10.0.0.2:4000", "10.0.0.1", "connected, any"},
		{"connected", "10.0.0.2:4000", "10.0.0.1", "connected"},
		{"", "10.0.0.2:4001", "10.0.0.1", "bound"},
		{"", "10.0.0.3:4000", "10.0.0.1", "bound"},
		{"", "10.0.0.2:4000", "10.0.0.7", "connected, any"},
		{"", "10.0.0.2:4001", "10.0.0.7", "any"},
		{"", "[2001:db8::1]:4000", "2001:db8::2", "only IPv6"},
	} {
		if c.add != "" {
			e.Add(eps[c.add])
		}
		from := netip.MustParseAddrPort(c.from)
		got := ""
		if ep := e.Find(wire.AddrFrom(from.Addr()), wire.AddrFrom(netip.MustParseAddr(c.to)), &wire.UDP{SrcPort: from.Port(), DstPort: 53}); ep != nil {
			for name, x := range eps {
				if x == ep {
					got = name
				}
			}
		}
		if got != c.want {
			t.Errorf("from %s to %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

func TestUDPBindConflicts(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	listen := func(addr string, only int) error {
		ep, err := p.Stack.ListenUDP(netip.MustParseAddrPort(addr), only)
		if err == nil {
			t.Cleanup(func() { p.Stack.CloseUDP(ep) })
		}
		return err
	}
	p.listen("10.0.0.1:53")
	p.listen("0.0.0.0:54")
	for _, c := range []struct {
		addr string
		only int
		want error
	}{
		{"10.0.0.1:53", 0, syscall.EADDRINUSE},
		{"0.0.0.0:53", 0, syscall.EADDRINUSE},
		{"[::]:53", 6, nil},
		{"[::]:53", 0, syscall.EADDRINUSE},
		{"10.0.0.1:54", 0, syscall.EADDRINUSE},
		{"10.0.0.9:55", 0, syscall.EADDRNOTAVAIL},
	} {
		if err := listen(c.addr, c.only); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("bind to %s, %d: %v, want %v", c.addr, c.only, err, c.want)
		}
	}
}

// Ephemeral ports are within the range, all different, without a pattern (RFC 6056, 3.3.1), and run out with an error.
func TestUDPEphemeralPorts(t *testing.T) {
	cfg := tcptest.Config{}
	cfg.Stack.TCP.PortLow, cfg.Stack.TCP.PortHigh = 40000, 40199
	p := newUDPPeer(t, cfg)
	seen := map[uint16]bool{}
	last, rising := uint16(0), 0
	for range 200 {
		ep := p.listen("0.0.0.0:0")
		port := ep.Local().Port()
		if port < 40000 || port > 40199 || seen[port] {
			t.Fatalf("port %d", port)
		}
		seen[port] = true
		if port > last {
			rising++
		}
		last = port
	}
	if rising > 150 || rising < 50 {
		t.Errorf("%d of 200 ports are larger than the one before", rising)
	}
	if _, err := p.Stack.ListenUDP(netip.MustParseAddrPort("0.0.0.0:0"), 0); err != syscall.EADDRINUSE {
		t.Errorf("error %v when all ports are taken", err)
	}
}

// An endpoint on all addresses learns which one a datagram was sent to, and answers from it, though the route prefers another (RFC 1122, 4.1.3.5).
func TestUDPAddressAsked(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	second := netip.MustParseAddr("10.0.0.9")
	if err := p.Stack.AddAddr(netip.PrefixFrom(second, 24)); err != nil {
		t.Fatal(err)
	}
	p.Idle(5 * time.Second) // until it is verified
	p.Take()
	ep := p.listen("0.0.0.0:53")
	p.SendFrame(p.datagram(4000, 53, "first"))
	l4 := make([]byte, wire.UDPLen+6)
	wire.PutUDP(l4, wire.AddrFrom(tcptest.PeerAddr), wire.AddrFrom(second), 4000, 53, []byte("second"))
	p.SendFrame(with(p.fr.ip(wire.ProtoUDP, l4), func(ip []byte) { copy(ip[16:], second.AsSlice()) }))
	buf := make([]byte, 100)
	for _, want := range []netip.Addr{tcptest.StackAddr, second} {
		n, _, from, to, err := ep.TryReadMsg(buf)
		if err != nil || to != want {
			t.Fatalf("%q went to %v, %v; want %v", buf[:n], to, err, want)
		}
		if err := ep.TryWriteMsg(buf[:n], to, from); err != nil {
			t.Fatal(err)
		}
		if ps, _ := p.sent(); len(ps) != 1 || ps[0].Src != wire.AddrFrom(want) {
			t.Errorf("answered from %v, want %v", ps, want)
		}
	}
	peer := netip.AddrPortFrom(tcptest.PeerAddr, 4000)
	for _, bad := range []string{"10.0.0.77", "10.0.0.255", "fe80::1"} {
		if err := ep.TryWriteMsg(buf[:1], netip.MustParseAddr(bad), peer); err != syscall.EINVAL {
			t.Errorf("from %s: %v", bad, err)
		}
	}
	if err := p.listen("10.0.0.1:54").TryWriteMsg(buf[:1], second, peer); err != syscall.EINVAL {
		t.Errorf("from another address than the endpoint's: %v", err)
	}
}

package stack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
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

// RFC 1122, 4.1.3.1: a datagram for a closed port is answered with port unreachable, within the limit of ICMP errors; not if it was broadcast.
func TestUDPPortUnreachable(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	d := p.datagram(4000, 99, "nobody")
	p.SendFrame(d)
	fs := p.Take()
	if len(fs) != 1 {
		t.Fatalf("%d frames", len(fs))
	}
	icmp := fs[0].Data[wire.EthLen+wire.IPv4Len:]
	if icmp[0] != wire.ICMPUnreachable || icmp[1] != wire.ICMPPortUnreachable || !bytes.Equal(icmp[8:], d[wire.EthLen:]) {
		t.Errorf("answer %x", icmp)
	}
	p.SendFrame(d)
	if n := len(p.Take()); n != 0 {
		t.Errorf("%d answers within a millisecond", n)
	}
	p.Idle(2 * time.Millisecond)
	b := with(p.datagram(4000, 99, ""), ipAddr(16, "10.0.0.255"))
	copy(b, wire.Broadcast[:])
	binary.BigEndian.PutUint16(b[wire.EthLen+wire.IPv4Len+6:], 0)
	p.SendFrame(b)
	if n := len(p.Take()); n != 0 {
		t.Errorf("%d answers to a broadcast", n)
	}
	if s := p.Stats().UDP; s.NoPorts != 3 {
		t.Errorf("%d counted", s.NoPorts)
	}
}

// unreachable is an ICMP error about a datagram of ep.
func (p *udpPeer) unreachable(ep *udp.Endpoint, typ, code uint8, remote string) []byte {
	q := make([]byte, 4+wire.IPv4Len+8)
	r := netip.MustParseAddrPort(remote)
	wire.PutIPv4(q[4:], wire.AddrFrom(tcptest.StackAddr), wire.AddrFrom(r.Addr()), wire.ProtoUDP, 0, 64, 0, 28)
	binary.BigEndian.PutUint16(q[24:], ep.Local().Port())
	binary.BigEndian.PutUint16(q[26:], r.Port())
	return p.fr.icmp(typ, code, q)
}

// ICMP errors about a connected endpoint's datagrams are the result of the next call, once; soft ones are not, and others do not hear of it.
func TestUDPICMPErrors(t *testing.T) {
	for _, workers := range []int{1, 3} {
		p := newUDPPeer(t, tcptest.Config{Stack: stack.Config{Workers: make([]stack.WorkerConfig, workers)}})
		c := p.dial("0.0.0.0:0", "10.0.0.2:53")
		l := p.listen("0.0.0.0:77")
		for _, x := range []struct {
			typ, code uint8
			want      error
		}{
			{wire.ICMPUnreachable, wire.ICMPPortUnreachable, syscall.ECONNREFUSED},
			{wire.ICMPUnreachable, wire.ICMPProtoUnreachable, syscall.ENOPROTOOPT},
			{wire.ICMPUnreachable, wire.ICMPHostUnreachable, nil},
			{wire.ICMPUnreachable, wire.ICMPNetUnreachable, nil},
			{wire.ICMPUnreachable, 13, syscall.EHOSTUNREACH},
			{wire.ICMPUnreachable, 200, nil},
			{wire.ICMPTimeExceeded, 0, nil},
		} {
			p.SendFrame(p.unreachable(c, x.typ, x.code, "10.0.0.2:53"))
			err := c.TryWrite([]byte("x"), netip.AddrPort{})
			if !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
				t.Errorf("ICMP %d %d: %v, want %v", x.typ, x.code, err, x.want)
			}
			if err := c.TryWrite([]byte("x"), netip.AddrPort{}); err != nil {
				t.Errorf("ICMP %d %d: the second write fails too: %v", x.typ, x.code, err)
			}
		}
		p.SendFrame(p.unreachable(c, wire.ICMPUnreachable, wire.ICMPPortUnreachable, "10.0.0.2:53"))
		if _, _, _, err := c.TryRead(nil); err != syscall.ECONNREFUSED {
			t.Errorf("read: %v", err)
		}
		p.SendFrame(p.unreachable(c, wire.ICMPUnreachable, wire.ICMPPortUnreachable, "10.0.0.2:54")) // not what it has sent
		wantNothing(t, c)
		p.SendFrame(p.unreachable(l, wire.ICMPUnreachable, wire.ICMPPortUnreachable, "10.0.0.2:53"))
		wantNothing(t, l)
		p.Take()
	}
}

// Errors of writes that need no network.
func TestUDPWriteErrors(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep := p.listen("10.0.0.1:53")
	for _, c := range []struct {
		n    int
		to   string
		want error
	}{
		{1, "", syscall.EDESTADDRREQ},
		{1, "10.0.0.2:0", syscall.EINVAL},
		{1, "192.0.2.1:53", syscall.ENETUNREACH},
		{1, "10.0.0.255:53", syscall.EACCES},
		{1, "255.255.255.255:53", syscall.EACCES},
		{1, "[2001:db8::1]:53", syscall.EAFNOSUPPORT},
		{70000, "10.0.0.2:53", syscall.EMSGSIZE},
		{65508, "10.0.0.2:53", syscall.EMSGSIZE},
		{1472, "10.0.0.2:53", nil},
	} {
		to := netip.AddrPort{}
		if c.to != "" {
			to = netip.MustParseAddrPort(c.to)
		}
		if err := ep.TryWrite(make([]byte, c.n), to); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%d bytes to %s: %v, want %v", c.n, c.to, err, c.want)
		}
	}
	if ps, _ := p.sent(); len(ps) != 1 || len(ps[0].L3) != 1500 {
		t.Errorf("sent %d packets", len(ps))
	}
}

// A queue that nobody reads is bounded; what does not fit is counted. The budget counts what waits, and gets it back.
func TestUDPReceiveQueue(t *testing.T) {
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p := newUDPPeer(t, tcptest.Config{Stack: stack.Config{Budget: budget}})
	ep := p.listen("10.0.0.1:53")
	ep.SetBuffers(20480, 0)
	for i := range 100 {
		p.SendFrame(p.datagram(4000, 53, fmt.Sprint(i)))
	}
	if s := p.Stats(); s.UDP.RcvbufErrors != 90 || s.UDP.InDatagrams != 10 || s.L3.Drops[wire.DropUDPQueue] != 90 {
		t.Errorf("%d delivered, %d dropped", s.UDP.InDatagrams, s.UDP.RcvbufErrors)
	}
	if budget.Used() < 20480 {
		t.Errorf("%d bytes charged", budget.Used())
	}
	for i := range 10 {
		wantRead(t, ep, fmt.Sprint(i), "10.0.0.2:4000")
	}
	wantNothing(t, ep)
	if i := ep.Info(); i.Drops != 90 {
		t.Errorf("%d drops", i.Drops)
	}
	// Without memory datagrams are dropped too.
	if err := budget.SetLimits(mem.Limits{Low: 1, Pressure: 1, High: 1}); err != nil {
		t.Fatal(err)
	}
	p.Arena.Trim()
	p.SendFrame(p.datagram(4000, 53, "x"))
	wantNothing(t, ep)
	if err := ep.TryWrite([]byte("x"), netip.MustParseAddrPort("10.0.0.2:1")); err != syscall.ENOBUFS {
		t.Errorf("write without memory: %v", err)
	}
	if s := p.Stats().UDP; s.MemErrors != 1 {
		t.Errorf("%d counted", s.MemErrors)
	}
}

// A writer is held up when its buffer is full, and goes on when datagrams have left. Endpoints take turns.
func TestUDPSendBuffer(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{Link: memlink.Config{Ring: 256}})
	a, b := p.listen("10.0.0.1:53"), p.listen("10.0.0.1:54")
	to := netip.MustParseAddrPort("10.0.0.2:9")
	a.SetBuffers(0, 40*2048)
	for i := range 40 {
		if err := a.TryWrite([]byte{byte(i)}, to); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	if err := a.TryWrite([]byte{40}, to); err != udp.ErrWouldBlock {
		t.Errorf("write to a full buffer: %v", err)
	}
	if err := b.TryWrite([]byte{99}, to); err != nil {
		t.Fatal(err)
	}
	_, us := p.sent()
	if len(us) != 41 {
		t.Fatalf("%d datagrams", len(us))
	}
	next := byte(0)
	for i, u := range us {
		if u.SrcPort == 54 {
			if i > 10 {
				t.Errorf("the other endpoint's turn comes after %d datagrams", i)
			}
			continue
		}
		if u.Data[0] != next {
			t.Fatalf("datagram %d has number %d", i, u.Data[0])
		}
		next++
	}
	if err := a.TryWrite([]byte{40}, to); err != nil {
		t.Errorf("write after that: %v", err)
	}
	p.sent()
}

// What was written before Close still leaves.
func TestUDPCloseSends(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep := p.listen("10.0.0.1:53")
	if err := ep.TryWrite([]byte("last"), netip.MustParseAddrPort("10.0.0.2:9")); err != nil {
		t.Fatal(err)
	}
	p.Stack.CloseUDP(ep)
	if _, us := p.sent(); len(us) != 1 || string(us[0].Data) != "last" {
		t.Errorf("sent %v", us)
	}
	if n := len(p.Stack.UDPSockets()); n != 0 {
		t.Errorf("%d sockets left", n)
	}
	p.listen("10.0.0.1:53")
}

// Broadcast: sent when allowed, to the link's broadcast address; received by who is bound to no address.
func TestUDPBroadcast(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep, bound := p.listen("0.0.0.0:68"), p.listen("10.0.0.1:69")
	ep.SetBroadcast(true)
	for _, dst := range []string{"255.255.255.255:67", "10.0.0.255:67"} {
		if err := ep.TryWrite([]byte("x"), netip.MustParseAddrPort(dst)); err != nil {
			t.Fatal(err)
		}
		if ps, _ := p.sent(); len(ps) != 1 || ps[0].EthDst != wire.Broadcast || ps[0].Src != wire.AddrFrom(tcptest.StackAddr) {
			t.Errorf("to %s: %+v", dst, ps)
		}
	}
	for _, dst := range []string{"255.255.255.255", "10.0.0.255"} {
		for _, port := range []uint16{68, 69} {
			b := with(p.datagram(67, port, "all"), ipAddr(16, dst))
			binary.BigEndian.PutUint16(b[wire.EthLen+wire.IPv4Len+6:], 0)
			copy(b, wire.Broadcast[:])
			p.SendFrame(b)
		}
		wantRead(t, ep, "all", "10.0.0.2:67")
		wantNothing(t, bound)
	}
	p.Take()
}

// The packets of a datagram whose next hop is not known yet wait; the latest are kept.
func TestUDPUnresolved(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{Silent: true})
	ep := p.listen("10.0.0.1:53")
	for i := range 5 {
		if err := ep.TryWrite([]byte{byte(i)}, netip.MustParseAddrPort("10.0.0.2:9")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.Take()); n != 0 {
		t.Fatalf("%d packets without an address", n)
	}
	p.Speak()
	p.SendFrame(p.ARP(wire.ARPReply, p.fr.peer, tcptest.PeerAddr, p.fr.his, tcptest.StackAddr))
	if _, us := p.sent(); len(us) != 3 || us[2].Data[0] != 4 {
		t.Errorf("%d datagrams", len(us))
	}
}

// The end of the stack ends its endpoints: calls return net.ErrClosed, what waits to be read can be read, and nothing leaks.
func TestUDPStackClose(t *testing.T) {
	w := newTwoStacks(t, memlink.Config{}, [2]int{2, 1})
	w.learn(t)
	var eps []*udp.Endpoint
	for _, s := range w.s {
		ep, err := s.ListenUDP(netip.MustParseAddrPort("0.0.0.0:53"), 0)
		if err != nil {
			t.Fatal(err)
		}
		eps = append(eps, ep)
	}
	if err := eps[1].TryWrite([]byte("before"), netip.MustParseAddrPort("10.0.0.1:53")); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return eps[0].Info().In == 1 })
	if err := eps[0].TryWrite([]byte("unsent"), netip.MustParseAddrPort("10.0.0.2:53")); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.s {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wantRead(t, eps[0], "before", "10.0.0.2:53")
	if _, _, _, err := eps[0].TryRead(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if err := eps[0].TryWrite(nil, netip.MustParseAddrPort("10.0.0.2:9")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	for i, s := range w.s {
		s.CloseUDP(eps[i])
	}
	if err := w.arena.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.s[0].ListenUDP(netip.MustParseAddrPort("0.0.0.0:1"), 0); !errors.Is(err, stack.ErrClosed) {
		t.Errorf("bind: %v", err)
	}
}

// learn has all workers of both stacks learn each other's link addresses: few packets wait for an unknown one.
func (w *twoStacks) learn(t *testing.T) {
	for i, s := range w.s {
		for range s.Workers() {
			to := w.s[1-i].Addrs()[0].Addr()
			ep, err := s.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(to, 7))
			if err != nil {
				t.Fatal(err)
			}
			if err := ep.TryWrite(nil, netip.AddrPort{}); err != nil {
				t.Fatal(err)
			}
			w.until(func() bool { return ep.Info().Out == 1 })
			w.until(func() bool { _, _, _, err := ep.TryRead(nil); return err == syscall.ECONNREFUSED })
			s.CloseUDP(ep)
			w.clock.now += 2e6 // the limit of ICMP errors
		}
	}
}

// Several workers, over one queue and over many: whichever worker gets a datagram delivers it; each flow's stay in order.
func TestUDPWorkers(t *testing.T) {
	for _, c := range []struct {
		name    string
		link    memlink.Config
		workers [2]int
	}{
		{"one queue", memlink.Config{}, [2]int{3, 2}},
		{"three queues", memlink.Config{Queues: 3}, [2]int{3, 3}},
		{"RSS", rss(t, 2), [2]int{2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTwoStacks(t, c.link, c.workers)
			defer w.close()
			server, err := w.s[1].ListenUDP(netip.MustParseAddrPort("10.0.0.2:53"), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.s[1].CloseUDP(server)
			var clients []*udp.Endpoint
			for range 12 {
				c, err := w.s[0].DialUDP(netip.AddrPort{}, server.Local())
				if err != nil {
					t.Fatal(err)
				}
				defer w.s[0].CloseUDP(c)
				clients = append(clients, c)
			}
			asked, answered := make([]int, len(clients)), make([]int, len(clients))
			buf := make([]byte, 100)
			w.learn(t)
			w.until(func() bool {
				done := true
				for i, c := range clients {
					if asked[i] == answered[i] && asked[i] < 20 {
						if err := c.TryWrite([]byte{byte(i), byte(asked[i])}, netip.AddrPort{}); err != nil {
							t.Fatal(err)
						}
						asked[i]++
					}
					if n, _, from, err := c.TryRead(buf); err == nil {
						if n != 2 || int(buf[0]) != i || int(buf[1]) != answered[i] || from != server.Local() {
							t.Fatalf("client %d got %v from %v", i, buf[:n], from)
						}
						answered[i]++
					}
					done = done && answered[i] == 20
				}
				for {
					n, _, from, err := server.TryRead(buf)
					if err != nil {
						return done
					}
					if err := server.TryWrite(buf[:n], from); err != nil {
						t.Fatal(err)
					}
				}
			})
			homes := map[int]bool{}
			for _, i := range w.s[0].UDPSockets() {
				homes[i.Worker] = true
			}
			if len(homes) != c.workers[0] {
				t.Errorf("endpoints at home on %d workers of %d", len(homes), c.workers[0])
			}
		})
	}
}

// Sending and receiving allocate nothing.
func TestUDPAllocs(t *testing.T) {
	w := newTwoStacks(t, memlink.Config{}, [2]int{1, 1})
	defer w.close()
	server, err := w.s[1].ListenUDP(netip.MustParseAddrPort("10.0.0.2:53"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.s[1].CloseUDP(server)
	client, err := w.s[0].DialUDP(netip.AddrPort{}, server.Local())
	if err != nil {
		t.Fatal(err)
	}
	defer w.s[0].CloseUDP(client)
	buf := make([]byte, 1000)
	turn := func() {
		w.s[0].Turn()
		w.s[1].Turn()
		w.clock.now += 1000
	}
	trip := func() {
		if err := client.TryWrite(buf, netip.AddrPort{}); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, from, err := server.TryRead(buf)
			if err == nil {
				if err := server.TryWrite(buf[:n], from); err != nil {
					t.Fatal(err)
				}
				break
			}
			turn()
		}
		for {
			if _, _, _, err := client.TryRead(buf); err == nil {
				return
			}
			turn()
		}
	}
	for range 100 {
		trip()
	}
	if n := testing.AllocsPerRun(500, trip); n != 0 {
		t.Errorf("%v allocations per round trip", n)
	}
}

package stack_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// frame6 is a packet from the peer to the stack, or to dst.
func frame6(p *tcptest.Peer, dst wire.Addr, next, hops uint8, body []byte) []byte {
	peer, his := p.MACs()
	if dst == (wire.Addr{}) {
		dst = wire.AddrFrom(tcptest.StackAddr6)
	}
	if dst.IsMulticast() {
		his = dst.GroupMAC()
	}
	b := make([]byte, wire.EthLen+wire.IPv6Len, wire.EthLen+wire.IPv6Len+len(body))
	wire.PutEthernet(b, his, peer, wire.EtherTypeIPv6)
	wire.PutIPv6(b[wire.EthLen:], wire.AddrFrom(tcptest.PeerAddr6), dst, next, 0, hops, 0, len(body))
	return append(b, body...)
}

func icmp6(dst wire.Addr, typ, code uint8, body []byte) []byte {
	b := make([]byte, 4+len(body))
	wire.PutICMP6(b, wire.AddrFrom(tcptest.PeerAddr6), dst, typ, code, body)
	return b
}

// answer6 returns the one ICMPv6 message that the stack has sent; typ is 0 if there is none.
func answer6(t *testing.T, p *tcptest.Peer) (pk wire.Packet, typ, code uint8, body []byte) {
	t.Helper()
	got := p.Take()
	if len(got) == 0 {
		return
	}
	if len(got) > 1 {
		t.Fatalf("%d frames", len(got))
	}
	if d := wire.Parse(got[0].Data, &pk, false); d != wire.DropNone {
		t.Fatal(d)
	}
	typ, code, body, d := wire.ParseICMP6(&pk, false)
	if d != wire.DropNone {
		t.Fatal(d)
	}
	return pk, typ, code, body
}

// What each IPv6 packet counts as, and what the sender is told (RFC 8200, 4; RFC 4443, 2.4).
func TestIPv6Input(t *testing.T) {
	ours, solicited := wire.AddrFrom(tcptest.StackAddr6), wire.AddrFrom(tcptest.StackAddr6).SolicitedNode()
	syn := make([]byte, 20)
	wire.PutTCP(syn, &wire.TCP{SrcPort: 1, DstPort: 2, Flags: wire.SYN}, 20)
	echo := []byte{0, 1, 0, 2, 'x'}
	for _, c := range []struct {
		name       string
		dst        wire.Addr
		next, hops uint8
		body       []byte
		drop       wire.Drop
		typ, code  uint8
		rest       byte // last byte of the second word of an error
	}{
		{"unknown protocol", ours, 253, 64, []byte("x"), wire.DropIPProto, 4, 1, 6},
		{"unknown option, tell", ours, wire.ProtoDstOpts, 64, []byte{6, 0, 0x80, 0, 0, 0, 0, 0}, wire.DropIPv6Option, 4, 2, 42},
		{"unknown option, tell, to a group", wire.AllNodes, wire.ProtoDstOpts, 64, []byte{6, 0, 0x80, 0, 0, 0, 0, 0}, wire.DropIPv6Option, 4, 2, 42},
		{"unknown option, tell unless group, to a group", wire.AllNodes, wire.ProtoDstOpts, 64, []byte{6, 0, 0xc0, 0, 0, 0, 0, 0}, wire.DropIPv6Option, 0, 0, 0},
		{"routing header type 0", ours, wire.ProtoRouting, 64, []byte{6, 0, 0, 1, 0, 0, 0, 0}, wire.DropIPv6Routing, 4, 0, 42},
		{"routing header to another host", wire.Addr{0: 0x20, 15: 1}, wire.ProtoRouting, 64, []byte{6, 0, 0, 1, 0, 0, 0, 0}, wire.DropIPv6Routing, 0, 0, 0},
		{"to another host", wire.Addr{0: 0x20, 15: 1}, wire.ProtoTCP, 64, syn, wire.DropIPDest, 0, 0, 0},
		{"to a group of others", wire.Addr{0: 0xff, 1: 2, 15: 0x99}, wire.ProtoICMPv6, 64, icmp6(wire.Addr{0: 0xff, 1: 2, 15: 0x99}, 128, 0, echo), wire.DropIPDest, 0, 0, 0},
		{"TCP to a group", wire.AllNodes, wire.ProtoTCP, 64, syn, wire.DropIPDest, 0, 0, 0},
		{"TCP checksum", ours, wire.ProtoTCP, 64, syn, wire.DropTCPChecksum, 0, 0, 0},
		{"ICMPv6 checksum", ours, wire.ProtoICMPv6, 64, icmp6(wire.AllNodes, 128, 0, echo), wire.DropICMPChecksum, 0, 0, 0},
		{"echo request", ours, wire.ProtoICMPv6, 64, icmp6(ours, 128, 0, echo), wire.DropNone, 129, 0, 2},
		{"echo request to all nodes", wire.AllNodes, wire.ProtoICMPv6, 64, icmp6(wire.AllNodes, 128, 0, echo), wire.DropNone, 129, 0, 2},
		{"echo request to our group", solicited, wire.ProtoICMPv6, 64, icmp6(solicited, 128, 0, echo), wire.DropNone, 129, 0, 2},
		{"unknown error", ours, wire.ProtoICMPv6, 64, icmp6(ours, 100, 0, make([]byte, 60)), wire.DropICMPType, 0, 0, 0},
		{"redirect", ours, wire.ProtoICMPv6, 255, icmp6(ours, 137, 0, make([]byte, 36)), wire.DropRedirect, 0, 0, 0},
		{"a fragment of 9 bytes that is not the last", ours, wire.ProtoFragment, 64, append([]byte{17, 0, 0, 1, 0, 0, 0, 1}, make([]byte, 9)...), wire.DropIPFragment, 4, 0, 4},
		{"a last fragment beyond 65535 bytes", ours, wire.ProtoFragment, 64, append([]byte{17, 0, 0xff, 0xf8, 0, 0, 0, 1}, make([]byte, 16)...), wire.DropIPFragment, 4, 0, 42},
		{"a fragment beyond 65535 bytes that is not the last", ours, wire.ProtoFragment, 64, append([]byte{17, 0, 0xff, 0xf9, 0, 0, 0, 1}, make([]byte, 8)...), wire.DropIPFragment, 4, 0, 42},
		{"solicitation from afar", ours, wire.ProtoICMPv6, 254, icmp6(ours, 135, 0, make([]byte, 20)), wire.DropNDInvalid, 0, 0, 0},
		{"nothing behind the header", ours, wire.ProtoNone, 64, nil, wire.DropIPv6NoNext, 0, 0, 0},
		{"ICMP of IPv4", ours, wire.ProtoICMP, 64, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, wire.DropIPProto, 4, 1, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := tcptest.New(t, tcptest.Config{IPv6: true})
			before := p.Stats().L3
			p.SendFrame(frame6(p, c.dst, c.next, c.hops, c.body))
			after := p.Stats().L3
			for d := range wire.NumDrops {
				if n := after.Drops[d] - before.Drops[d]; (d == c.drop && d != wire.DropNone) != (n == 1) {
					t.Errorf("%v: %d", d, n)
				}
			}
			pk, typ, code, body := answer6(t, p)
			if typ != c.typ || code != c.code || typ != 0 && (body[3] != c.rest || pk.Src != ours) {
				t.Errorf("answered by type %d, code %d, %x from %v", typ, code, body, pk.Src)
			}
		})
	}
}

// RFC 4861, 7.2.4: a solicited answer says so, and replaces what is known; one to somebody who verifies an address goes to all (RFC 4862,
// 5.4.3).
func TestSolicited(t *testing.T) {
	for _, workers := range []int{1, 3} {
		p := tcptest.New(t, tcptest.Config{IPv6: true, Stack: stack.Config{Workers: make([]stack.WorkerConfig, workers)}})
		peer, his := p.MACs()
		group := wire.AddrFrom(tcptest.StackAddr6).SolicitedNode()
		ask := wire.ND{Type: wire.ICMP6NeighborSol, Target: wire.AddrFrom(tcptest.StackAddr6), LLA: peer, HasLLA: true}
		p.Watch6(true)
		p.SendFrame(p.ND(group.GroupMAC(), tcptest.PeerAddr6, group.Netip(), &ask))
		ask.HasLLA = false
		p.SendFrame(p.ND(group.GroupMAC(), netip.IPv6Unspecified(), group.Netip(), &ask))
		got := p.Take()
		if len(got) != 2 {
			t.Fatalf("%d answers with %d workers", len(got), workers)
		}
		for i, want := range []struct {
			to    wire.MAC
			dst   wire.Addr
			flags uint8
		}{{peer, wire.AddrFrom(tcptest.PeerAddr6), wire.NDSolicited | wire.NDOverride}, {wire.AllNodes.GroupMAC(), wire.AllNodes, wire.NDOverride}} {
			var pk wire.Packet
			var n wire.ND
			if d := wire.Parse(got[i].Data, &pk, false); d != wire.DropNone {
				t.Fatal(d)
			}
			if d := wire.ParseND(&pk, &n); d != wire.DropNone || pk.EthDst != want.to || pk.Dst != want.dst || n.Flags != want.flags || n.LLA != his || n.Target != ask.Target {
				t.Errorf("%v: %+v to %v, %v", d, n, pk.Dst, pk.EthDst)
			}
		}
	}
}

// Addresses and routes change while connections are open, for all workers.
func TestChangeAddresses(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true, Stack: stack.Config{Workers: make([]stack.WorkerConfig, 2)}})
	l, err := p.Stack.Listen(netip.MustParseAddrPort("[::]:80"), 10)
	if err != nil {
		t.Fatal(err)
	}
	f := p.Passive(l, 5000, "mss 1440", 65535)
	second := netip.MustParsePrefix("2001:db8:2::1/64")
	if err := p.Stack.AddAddr(second); err != nil {
		t.Fatal(err)
	}
	if err := p.Stack.AddAddr(second); err == nil {
		t.Error("an address was added twice")
	}
	if err := p.Stack.AddAddr(netip.MustParsePrefix("192.0.2.1/24")); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(p.Stack.Addrs(), second) {
		t.Errorf("addresses %v", p.Stack.Addrs())
	}
	ping := func(want uint8) {
		t.Helper()
		dst := wire.AddrFrom(second.Addr())
		p.SendFrame(frame6(p, dst, wire.ProtoICMPv6, 64, icmp6(dst, 128, 0, []byte{0, 1, 0, 2})))
		if _, typ, _, _ := answer6(t, p); typ != want {
			t.Errorf("a ping is answered by type %d, want %d", typ, want)
		}
	}
	ping(wire.ICMP6EchoReply)
	r := stack.Route{Prefix: netip.MustParsePrefix("2001:db8:9::/48"), Gateway: netip.MustParseAddr("2001:db8:2::9")}
	if err := p.Stack.AddRoute(r); err != nil {
		t.Fatal(err)
	}
	if err := p.Stack.AddRoute(stack.Route{Prefix: r.Prefix, Gateway: netip.MustParseAddr("2001:db8:77::1")}); err == nil {
		t.Error("a gateway that is not on link was taken")
	}
	if _, _, ok := p.Stack.Reach(netip.MustParseAddr("2001:db8:9::1")); !ok {
		t.Error("the route is not used")
	}
	if err := p.Stack.RemoveRoute(r); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := p.Stack.Reach(netip.MustParseAddr("2001:db8:9::1")); ok {
		t.Error("the route is still used")
	}
	if err := p.Stack.RemoveAddr(second.Addr()); err != nil {
		t.Fatal(err)
	}
	ping(0)
	if err := p.Stack.RemoveAddr(second.Addr()); err == nil {
		t.Error("an address was removed twice")
	}
	f.Write(100)
	f.Expect("P. 1:101(100) ack 1")
}

// An address that is being verified is no source yet; Settled waits for it.
func TestTentative(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{SLAAC: true}})
	remote := netip.MustParseAddrPort("[fe80::99]:80")
	if _, err := p.Stack.Connect(netip.AddrPort{}, remote); err != stack.ErrTentative {
		t.Fatalf("connecting at once: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Stack.Settled(ctx); err == nil {
		t.Error("settled at once")
	}
	p.Until(3*time.Second, func() bool { p.Take(); return p.Stack.Settled(ctx) == nil })
	c, err := p.Stack.Connect(netip.AddrPort{}, remote)
	if err != nil {
		t.Fatal(err)
	}
	c.Abort()
	p.Take()
	if a := p.Stack.Addresses(); len(a) != 2 || a[1].Origin != "link-local" || a[1].State != "preferred" || a[1].Valid != plugins.Never {
		t.Errorf("%+v", a)
	}
}

// The MTU that a router says bounds segments and messages of IPv6, and lasts for connections to come (RFC 4861, 6.3.4).
func TestRouterMTU(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true, Stack: stack.Config{SLAAC: true}})
	p.Idle(2 * time.Second)
	b := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 0x05, 0x14} // 1300
	src := wire.Addr{0: 0xfe, 1: 0x80, 15: 9}
	f := frame6(p, wire.AllNodes, wire.ProtoICMPv6, 255, make([]byte, 4+len(b)))
	copy(f[wire.EthLen+8:], src[:])
	wire.PutICMP6(f[wire.EthLen+wire.IPv6Len:], src, wire.AllNodes, wire.ICMP6RouterAdv, 0, b)
	p.SendFrame(f)
	flow := p.Connect()
	flow.Expect("S 0:0(0) <mss 1240,sackOK,ts *,ws 14>")
	flow.Abort()
}

// A stack with IPv6 alone answers no ARP and needs none.
func TestIPv6Only(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true})
	peer, _ := p.MACs()
	p.SendFrame(p.ARP(wire.ARPRequest, peer, tcptest.PeerAddr, wire.MAC{}, tcptest.StackAddr))
	if _, err := p.Stack.Connect(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:80")); err == nil {
		t.Error("connected over IPv4")
	}
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1440", 65535)
	f.Send("P. 1:101(100) ack 1")
	f.Expect(". 1:1(0) ack 101")
	f.WantRead(100)
	var errs []error
	for _, cfg := range []stack.Config{{}, {Addrs: []netip.Prefix{netip.MustParsePrefix("ff02::1/64")}}} {
		cfg.Port = p.Stack.Port()
		_, err := stack.New(cfg)
		errs = append(errs, err)
	}
	if slices.Contains(errs, nil) {
		t.Errorf("bad configurations: %v", errs)
	}
}

// A duplicate address takes its network's routes with it; everything else goes on (RFC 4862, 5.4.5).
func TestDuplicateAddress(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{SLAAC: true}})
	taken := netip.MustParsePrefix("2001:db8:5::1/64")
	if err := p.Stack.AddAddr(taken); err != nil {
		t.Fatal(err)
	}
	if err := p.Stack.AddRoute(stack.Route{Prefix: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("2001:db8:5::9")}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := p.Stack.Reach(netip.MustParseAddr("2001:db8:99::1")); !ok {
		t.Error("no default route through the gateway")
	}
	group := wire.AddrFrom(taken.Addr()).SolicitedNode()
	p.SendFrame(p.ND(group.GroupMAC(), netip.IPv6Unspecified(), group.Netip(), &wire.ND{Type: wire.ICMP6NeighborSol, Target: wire.AddrFrom(taken.Addr())}))
	p.Idle(5 * time.Second)
	p.Take()
	states := map[string]string{}
	for _, a := range p.Stack.Addresses() {
		states[a.Origin+" "+a.Prefix.String()] = a.State
	}
	if states["static "+taken.String()] != "duplicate" || states["static 10.0.0.1/24"] != "preferred" || slices.Contains(p.Stack.Addrs(), taken) {
		t.Errorf("%v", states)
	}
	if _, _, ok := p.Stack.Reach(netip.MustParseAddr("2001:db8:99::1")); ok {
		t.Error("there is a route through a network that we are not in")
	}
	if _, _, ok := p.Stack.Reach(netip.MustParseAddr("fe80::99")); !ok {
		t.Error("no route to the link")
	}
}

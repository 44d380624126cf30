package dhcp

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// world is a client and a small server, on virtual time; messages take 10 ms each way.
type world struct {
	t        *testing.T
	c        *Client
	now      plugins.Time
	start    plugins.Time
	sent     []sent
	inUse    map[netip.Addr]bool // conflict detection finds these
	bound    []*Lease
	lost     []*Lease
	answer   func(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 // nil: the server is down
	next     netip.Addr
	lease    time.Duration
	arriving []arrival
}

type sent struct {
	at       time.Duration // since the start
	src, dst netip.Addr
	m        *dhcpv4.DHCPv4
}

type arrival struct {
	at   plugins.Time
	data []byte
}

const delay = 10 * time.Millisecond

var (
	server1 = netip.MustParseAddr("192.0.2.1")
	server2 = netip.MustParseAddr("192.0.2.2")
	mac     = net.HardwareAddr{2, 0, 0, 0, 0, 1}
)

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: 1e9, start: 1e9, inUse: map[netip.Addr]bool{}, next: netip.MustParseAddr("192.0.2.100"), lease: time.Hour}
	w.c = NewClient(ClientConfig{MAC: mac, HostName: "h", Rand: rand.New(rand.NewPCG(1, 2))}, w.now)
	w.answer = w.serve
	return w
}

// serve answers as a server does that has the next address for everybody.
func (w *world) serve(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
	typ := dhcpv4.MessageTypeOffer
	addr := w.next
	if m.MessageType() == dhcpv4.MessageTypeRequest {
		typ = dhcpv4.MessageTypeAck
		if a := addrOf(m.ClientIPAddr); a.IsValid() {
			addr = a
		}
	} else if m.MessageType() != dhcpv4.MessageTypeDiscover {
		return nil
	}
	return []*dhcpv4.DHCPv4{w.reply(m, typ, addr, server1)}
}

func (w *world) reply(m *dhcpv4.DHCPv4, typ dhcpv4.MessageType, addr, server netip.Addr, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	w.t.Helper()
	mods := append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(typ), dhcpv4.WithServerIP(server.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())),
	}, more...)
	if typ != dhcpv4.MessageTypeNak {
		mods = append([]dhcpv4.Modifier{
			dhcpv4.WithYourIP(addr.AsSlice()), dhcpv4.WithLeaseTime(uint32(w.lease / time.Second)), dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
			dhcpv4.WithRouter(server1.AsSlice()), dhcpv4.WithDNS(server2.AsSlice()),
		}, mods...)
	}
	r, err := dhcpv4.NewReplyFromRequest(m, mods...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// act does what the client wants.
func (w *world) act() {
	for {
		a, ok := w.c.Next()
		if !ok {
			return
		}
		switch {
		case a.Send != nil:
			m, err := dhcpv4.FromBytes(a.Send.Data)
			if err != nil {
				w.t.Fatalf("the client sends what cannot be parsed: %v", err)
			}
			w.sent = append(w.sent, sent{w.now.Sub(w.start), a.Send.Src, a.Send.Dst, m})
			if w.answer != nil {
				for _, r := range w.answer(m) {
					w.arriving = append(w.arriving, arrival{w.now.Add(2 * delay), r.ToBytes()})
				}
			}
		case a.Check.IsValid():
			w.c.Checked(w.now, w.inUse[a.Check])
		case a.Bind != nil:
			w.bound = append(w.bound, a.Bind)
		case a.Lost != nil:
			w.lost = append(w.lost, a.Lost)
		}
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for {
		at := w.c.Deadline()
		if len(w.arriving) > 0 {
			at = min(at, w.arriving[0].at)
		}
		if at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		if len(w.arriving) > 0 && w.arriving[0].at <= w.now {
			data := w.arriving[0].data
			w.arriving = w.arriving[1:]
			_ = w.c.Input(w.now, data) // refusals are what some tests want
		} else {
			w.c.Timer(w.now)
		}
		w.act()
	}
}

func (w *world) want(s State) {
	w.t.Helper()
	if w.c.State() != s {
		w.t.Fatalf("state %v after %v, want %v", w.c.State(), w.now.Sub(w.start), s)
	}
}

func (w *world) types() (ts []dhcpv4.MessageType) {
	for _, s := range w.sent {
		ts = append(ts, s.m.MessageType())
	}
	return ts
}

func (w *world) wantTypes(want ...dhcpv4.MessageType) {
	w.t.Helper()
	if got := w.types(); !slices.Equal(got, want) {
		w.t.Fatalf("sent %v, want %v", got, want)
	}
}

const (
	discover = dhcpv4.MessageTypeDiscover
	request  = dhcpv4.MessageTypeRequest
	decline  = dhcpv4.MessageTypeDecline
	release  = dhcpv4.MessageTypeRelease
)

// RFC 2131, 3.1: DISCOVER, OFFER, REQUEST, ACK; the fields of table 5.
func TestBind(t *testing.T) {
	w := newWorld(t)
	w.run(time.Second)
	w.want(Bound)
	w.wantTypes(discover, request)
	for _, s := range w.sent {
		if s.dst != limitedBroadcast || !s.src.IsUnspecified() || !s.m.IsBroadcast() || !s.m.ClientIPAddr.IsUnspecified() {
			t.Errorf("%v from %v to %v, broadcast %v, ciaddr %v", s.m.MessageType(), s.src, s.dst, s.m.IsBroadcast(), s.m.ClientIPAddr)
		}
	}
	r := w.sent[1].m
	if addrOf(r.RequestedIPAddress()) != w.next || serverOf(r) != server1 || r.TransactionID != w.sent[0].m.TransactionID || r.NumSeconds != w.sent[0].m.NumSeconds {
		t.Errorf("request %s", r.Summary())
	}
	l := w.bound[0]
	if l.Addr != netip.MustParsePrefix("192.0.2.100/24") || len(l.Routes) != 1 || l.Routes[0].Via != server1 || len(l.DNS) != 1 || l.DNS[0] != server2 {
		t.Errorf("lease %+v", l)
	}
	if at := w.start.Add(2 * delay); l.Renew != at.Add(w.lease/2) || l.Rebind != at.Add(w.lease*7/8) || l.Expires != at.Add(w.lease) {
		t.Errorf("times %v %v %v after the request", l.Renew.Sub(at), l.Rebind.Sub(at), l.Expires.Sub(at))
	}
}

// RFC 2131, 4.1: 4, 8, 16, 32, 64, 64 … seconds, each plus or minus one.
func TestDiscoverBackoff(t *testing.T) {
	w := newWorld(t)
	w.answer = nil
	w.run(5 * time.Minute)
	w.want(Selecting)
	for i, want := range []time.Duration{4, 8, 16, 32, 64, 64, 64} {
		d := w.sent[i+1].at - w.sent[i].at
		if d < want*time.Second-time.Second || d > want*time.Second+time.Second {
			t.Errorf("wait %d is %v, want %ds", i, d, want)
		}
		if got := time.Duration(w.sent[i+1].m.NumSeconds) * time.Second; got != w.sent[i+1].at.Truncate(time.Second) {
			t.Errorf("secs %v after %v", got, w.sent[i+1].at)
		}
	}
	w.answer = w.serve
	w.run(2 * time.Minute)
	w.want(Bound)
}

// RFC 2131, 3.1, 5: REQUEST four times within about a minute, then from the beginning.
func TestRequestUnanswered(t *testing.T) {
	w := newWorld(t)
	w.answer = func(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
		if m.MessageType() == request {
			return nil
		}
		return w.serve(m)
	}
	w.run(70 * time.Second)
	w.sent = w.sent[:7]
	w.wantTypes(discover, request, request, request, request, discover, request)
	if d := w.sent[5].at; d < 56*time.Second || d > 64*time.Second+time.Second {
		t.Errorf("began again after %v", d)
	}
	if w.sent[0].m.TransactionID == w.sent[5].m.TransactionID {
		t.Error("the same transaction id in the next round")
	}
}

// RFC 2131, 4.4.5: T1 by unicast with ciaddr and without server identifier and requested address; the lease counts from the request.
func TestRenew(t *testing.T) {
	w := newWorld(t)
	w.run(31 * time.Minute)
	w.want(Bound)
	w.wantTypes(discover, request, request)
	s := w.sent[2]
	if s.dst != server1 || s.src != w.next || addrOf(s.m.ClientIPAddr) != w.next || s.m.IsBroadcast() || s.m.ServerIdentifier() != nil || s.m.RequestedIPAddress() != nil {
		t.Errorf("renewal from %v to %v: %s", s.src, s.dst, s.m.Summary())
	}
	if at := w.start.Add(s.at); len(w.bound) != 2 || w.bound[1].Expires != at.Add(w.lease) || len(w.lost) != 0 {
		t.Errorf("%d leases, %d lost", len(w.bound), len(w.lost))
	}
	w.run(24 * time.Hour)
	w.want(Bound)
	if len(w.lost) != 0 {
		t.Error("the address was lost")
	}
}

// RFC 2131, 4.4.5: unanswered renewals at halves of what is left, at least a minute apart; from T2 on by broadcast; at the end of the lease
// the address goes, and all begins again.
func TestRebindAndExpire(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.answer = nil
	w.sent = nil
	w.run(51 * time.Minute)
	w.want(Renewing)
	last := time.Duration(0)
	for i, s := range w.sent {
		if s.dst != server1 {
			t.Errorf("renewal %d to %v", i, s.dst)
		}
		if i > 0 && s.at-last < time.Minute {
			t.Errorf("renewal %d after %v", i, s.at-last)
		}
		last = s.at
	}
	if d := w.sent[1].at - w.sent[0].at; d != time.Hour*3/8/2 {
		t.Errorf("second renewal after %v", d)
	}
	w.run(2 * time.Minute)
	w.want(Rebinding)
	if s := w.sent[len(w.sent)-1]; s.dst != limitedBroadcast || addrOf(s.m.ClientIPAddr) != w.next || s.src != w.next {
		t.Errorf("rebinding from %v to %v", s.src, s.dst)
	}
	w.run(7 * time.Minute)
	w.want(Selecting)
	if len(w.lost) != 1 || w.c.Lease() != nil {
		t.Errorf("%d leases lost", len(w.lost))
	}
	w.answer = w.serve
	w.run(2 * time.Minute)
	w.want(Bound)
	if len(w.bound) != 2 {
		t.Errorf("%d leases", len(w.bound))
	}
}

// Another server may take over a lease while rebinding.
func TestRebindOtherServer(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.answer = func(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
		if w.sent[len(w.sent)-1].dst != limitedBroadcast {
			return nil
		}
		return []*dhcpv4.DHCPv4{w.reply(m, dhcpv4.MessageTypeAck, w.next, server2)}
	}
	w.run(54 * time.Minute)
	w.want(Bound)
	if w.c.Lease().Server != server2 || len(w.lost) != 0 {
		t.Errorf("lease %+v, %d lost", w.c.Lease(), len(w.lost))
	}
}

// RFC 2131, 3.1, 5: an address that another host uses is declined, and ten seconds pass before all begins again.
func TestDecline(t *testing.T) {
	w := newWorld(t)
	first := w.next
	w.inUse[first] = true
	w.answer = func(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
		if m.MessageType() == decline {
			w.next = first.Next()
		}
		return w.serve(m)
	}
	w.run(9 * time.Second)
	w.want(Init)
	w.wantTypes(discover, request, decline)
	d := w.sent[2]
	if d.dst != limitedBroadcast || addrOf(d.m.RequestedIPAddress()) != first || serverOf(d.m) != server1 || !d.m.ClientIPAddr.IsUnspecified() {
		t.Errorf("decline to %v: %s", d.dst, d.m.Summary())
	}
	w.run(10 * time.Second)
	w.want(Bound)
	if w.c.Lease().Addr.Addr() != first.Next() || len(w.bound) != 1 {
		t.Errorf("lease %+v", w.c.Lease())
	}
}

// A NAK ends the lease at once; a server that always refuses is not asked all the time.
func TestNak(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.answer = func(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
		if m.MessageType() == request {
			return []*dhcpv4.DHCPv4{w.reply(m, dhcpv4.MessageTypeNak, netip.Addr{}, server1)}
		}
		return w.serve(m)
	}
	w.sent = nil
	w.run(29*time.Minute + 2*time.Second)
	if len(w.lost) != 1 || w.c.Lease() != nil {
		t.Fatalf("%d leases lost after a NAK", len(w.lost))
	}
	w.run(5 * time.Minute)
	if n := len(w.sent); n > 20 || n < 9 {
		t.Errorf("%d messages in five minutes to a server that refuses", n)
	}
	w.answer = w.serve
	w.run(2 * time.Minute)
	w.want(Bound)
}

// RFC 2131, 4.4.6.
func TestRelease(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.sent = nil
	w.c.Stop()
	w.act()
	w.wantTypes(release)
	if s := w.sent[0]; s.dst != server1 || s.src != w.next || addrOf(s.m.ClientIPAddr) != w.next || serverOf(s.m) != server1 {
		t.Errorf("release from %v to %v: %s", s.src, s.dst, s.m.Summary())
	}
	if len(w.lost) != 1 || w.c.Deadline() != plugins.Never {
		t.Error("not at an end")
	}
}

// A lease without an end is never renewed.
func TestInfinite(t *testing.T) {
	w := newWorld(t)
	w.lease = infinite
	w.run(10 * 365 * 24 * time.Hour)
	w.want(Bound)
	w.wantTypes(discover, request)
}

// What the client must not take: messages for others, of other transactions, from servers that were not asked, and nonsense.
func TestIgnored(t *testing.T) {
	w := newWorld(t)
	w.answer = nil
	w.run(time.Second)
	d := w.sent[0].m
	good := func(mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
		return w.reply(d, dhcpv4.MessageTypeOffer, w.next, server1, mods...)
	}
	other := good()
	other.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	late := good()
	late.TransactionID[0]++
	asked := good()
	asked.OpCode = dhcpv4.OpcodeBootRequest
	for name, m := range map[string]*dhcpv4.DHCPv4{
		"another client's":     other,
		"another transaction":  late,
		"a request":            asked,
		"ACK before a request": w.reply(d, dhcpv4.MessageTypeAck, w.next, server1),
		"NAK before a request": w.reply(d, dhcpv4.MessageTypeNak, w.next, server1),
		"no server":            good(dhcpv4.WithoutOption(dhcpv4.OptionServerIdentifier)),
		"no lease time":        good(dhcpv4.WithoutOption(dhcpv4.OptionIPAddressLeaseTime)),
		"broadcast address":    good(dhcpv4.WithYourIP(net.IPv4bcast)),
		"no address":           good(dhcpv4.WithYourIP(net.IPv4zero)),
		"mask with holes":      good(dhcpv4.WithNetmask(net.IPMask{255, 0, 255, 0})),
	} {
		if err := w.c.Input(w.now, m.ToBytes()); err == nil || w.c.State() != Selecting {
			t.Errorf("%s: error %v, state %v", name, err, w.c.State())
		}
	}
	if err := w.c.Input(w.now, good().ToBytes()); err != nil {
		t.Fatal(err)
	}
	w.act()
	w.want(Requesting)
	for _, typ := range []dhcpv4.MessageType{dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak} {
		if err := w.c.Input(w.now, w.reply(d, typ, w.next, server2).ToBytes()); err == nil {
			t.Errorf("%v of a server that was not asked", typ)
		}
	}
}

// RFC 3442: classless routes replace the routers, and may name gateways or none.
func TestClasslessRoutes(t *testing.T) {
	w := newWorld(t)
	w.answer = func(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
		rs := w.serve(m)
		for _, r := range rs {
			r.UpdateOption(dhcpv4.OptClasslessStaticRoute(
				&dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4(198, 51, 100, 0).To4(), Mask: net.CIDRMask(24, 32)}, Router: server2.AsSlice()},
				&dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4(203, 0, 113, 0).To4(), Mask: net.CIDRMask(25, 32)}, Router: net.IPv4zero},
			))
		}
		return rs
	}
	w.run(time.Second)
	w.want(Bound)
	want := []Route{{netip.MustParsePrefix("198.51.100.0/24"), server2}, {netip.MustParsePrefix("203.0.113.0/25"), netip.Addr{}}}
	if got := w.c.Lease().Routes; !slices.Equal(got, want) {
		t.Errorf("routes %v, want %v", got, want)
	}
}

// FuzzClient feeds arbitrary messages to a client in any state, as a hostile server could. Leases that it takes make sense.
func FuzzClient(f *testing.F) {
	w := newWorld(&testing.T{})
	w.run(time.Second)
	for _, s := range w.sent {
		for _, r := range w.serve(s.m) {
			f.Add(r.ToBytes(), uint8(2))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, steps uint8) {
		c := NewClient(ClientConfig{MAC: mac, Rand: rand.New(rand.NewPCG(1, 2))}, 1)
		now := plugins.Time(1)
		for range steps % 8 {
			c.Timer(now)
			copy(c.xid[:], data[min(4, len(data)):])
			_ = c.Input(now, data)
			for {
				a, ok := c.Next()
				if !ok {
					break
				}
				if a.Check.IsValid() {
					c.Checked(now, steps&8 != 0)
				}
				if l := a.Bind; l != nil && (!l.Addr.IsValid() || l.Renew > l.Rebind || l.Rebind > l.Expires || l.Expires < now) {
					t.Fatalf("lease %+v at %v", l, now)
				}
			}
			if d := c.Deadline(); d != plugins.Never {
				now = max(now, d)
			}
		}
	})
}

package udp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// wireTap takes what is sent, and remembers the last path MTU.
type wireTap struct {
	mtu   int
	whole bool
}

func (l *wireTap) QueueUDP(g *tcp.Guest) { g.Flow.SendSome(1 << 16) }

func (l *wireTap) SendUDP(d *udp.Datagram) udp.Sent {
	l.mtu, l.whole = d.MTU, d.Whole
	return udp.SentOK
}

// RFC 8201, 4: a Packet Too Big about one of the endpoint's datagrams lowers its path MTU for ten minutes, never below 1280, and is
// not raised by another one. Those about others' datagrams, and all about IPv4, change nothing.
func TestTooBig(t *testing.T) {
	tap := &wireTap{}
	e := udp.New(udp.Env{Arena: mem.NewHeapArena(budget(t)), Link: tap, Wake: (*tcp.Waiter).Wake, Kicked: func() {}}, 1)
	now := plugins.Time(1e9)
	local, remote := netip.MustParseAddrPort("[fd00::1]:5000"), netip.MustParseAddrPort("[fd00::2]:53")
	ep := udp.NewEndpoint(udp.Config{
		Local: local, Remote: remote, Only6: true,
		Space: func(wire.Addr, bool) int { return wire.MaxUDP6 }, Check: func(wire.Addr) (bool, error) { return false, nil },
	})
	e.Adopt(ep)
	e.Add(ep)
	l, r := wire.AddrFrom(local.Addr()), wire.AddrFrom(remote.Addr())
	want := func(mtu int) {
		t.Helper()
		e.Begin(now)
		if err := ep.TryWrite([]byte("x"), netip.AddrPort{}); err != nil {
			t.Fatal(err)
		}
		e.Run()
		if tap.mtu != mtu || ep.PathMTU(now) != mtu {
			t.Errorf("path MTU %d and %d, want %d", tap.mtu, ep.PathMTU(now), mtu)
		}
	}
	want(0)
	e.TooBig(l, r, 5000, 54, 1300)
	e.TooBig(r, r, 5000, 53, 1300)
	e.TooBig(wire.AddrFrom4([4]byte{10, 0, 0, 1}), wire.AddrFrom4([4]byte{10, 0, 0, 2}), 5000, 53, 600)
	want(0)
	e.TooBig(l, r, 5000, 53, 1400)
	want(1400)
	e.TooBig(l, r, 5000, 53, 1450)
	want(1400)
	e.TooBig(l, r, 5000, 53, 68)
	want(1280)
	now = now.Add(10 * time.Minute)
	want(0)
	e.TooBig(l, r, 5000, 53, 1450)
	want(1450)
	ep.SetWhole(true) // the application's own probes are not cut (RFC 8899, 4.6)
	if err := ep.TryWrite([]byte("x"), netip.AddrPort{}); err != nil {
		t.Fatal(err)
	}
	if e.Run(); tap.mtu != 0 || !tap.whole || ep.PathMTU(now) != 1450 {
		t.Errorf("MTU %d, whole %v; the application is told %d", tap.mtu, tap.whole, ep.PathMTU(now))
	}
}

func budget(t *testing.T) *mem.Budget {
	b, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

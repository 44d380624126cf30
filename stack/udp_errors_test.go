package stack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

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

// RFC 8899, 3 and 4.6: an application that looks for the path's MTU itself has datagrams that nobody cuts, and hears what routers say about
// them; what is said about others' does not count.
func TestUDPWhole(t *testing.T) {
	p := newUDPPeer(t, tcptest.Config{})
	ep := p.dial("10.0.0.1:5000", "10.0.0.2:53")
	send := func(n int, want error) (ps []wire.Packet) {
		t.Helper()
		if err := ep.TryWrite(make([]byte, n), netip.AddrPort{}); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%d bytes: %v, want %v", n, err, want)
		}
		ps, _ = p.sent()
		return ps
	}
	told := func(want int) {
		t.Helper()
		if n := ep.PathMTU(p.Clock.Now()); n != want {
			t.Errorf("path MTU %d, want %d", n, want)
		}
	}
	tooBig := func(mtu uint16, remote string) {
		f := p.unreachable(ep, wire.ICMPUnreachable, wire.ICMPFragNeeded, remote)
		binary.BigEndian.PutUint16(f[wire.EthLen+wire.IPv4Len+6:], mtu)
		binary.BigEndian.PutUint16(f[wire.EthLen+wire.IPv4Len+2:], 0)
		binary.BigEndian.PutUint16(f[wire.EthLen+wire.IPv4Len+2:], wire.Fold(wire.Sum(f[wire.EthLen+wire.IPv4Len:], 0)))
		p.SendFrame(f)
	}
	if err := ep.TryWrite(make([]byte, 1473), netip.AddrPort{}); err != nil {
		t.Fatal(err)
	}
	if n := len(p.Take()); n != 2 {
		t.Errorf("%d packets of what may be cut", n)
	}
	tooBig(1400, "10.0.0.2:53") // nothing of it was sent with DF
	told(0)
	ep.SetWhole(true)
	send(1473, syscall.EMSGSIZE)
	df := func(n int) {
		t.Helper()
		if ps := send(n, nil); len(ps) != 1 || len(ps[0].L3) != n+28 || ps[0].L3[6]&0x40 == 0 {
			t.Errorf("%d bytes: %d packets", n, len(ps))
		}
	}
	df(1472)
	tooBig(1400, "10.0.0.2:54")
	tooBig(0, "10.0.0.2:53")
	told(0)
	tooBig(1400, "10.0.0.2:53")
	told(1400)
	df(1472) // a probe is the application's to send
	if err := ep.TryWrite([]byte("x"), netip.AddrPort{}); err != nil {
		t.Errorf("after what a router said: %v", err)
	}
	p.sent()
	tooBig(20, "10.0.0.2:53")
	told(68)
	p.Idle(10 * time.Minute)
	told(0)
}

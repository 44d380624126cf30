package stack_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

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

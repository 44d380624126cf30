package stack_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/filter"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func compile(t *testing.T, otherwise filter.Action, rules ...filter.Rule) *filter.Table {
	t.Helper()
	table, err := filter.Compile(rules, otherwise)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestFilter: what the filter refuses reaches neither listener nor ping; a rejected segment is answered by a reset, other packets by
// ICMP, a denied one by nothing. A new table is in force at once.
func TestFilter(t *testing.T) {
	peerNet := []netip.Prefix{netip.PrefixFrom(tcptest.PeerAddr, 32)}
	tcpTo := func(a filter.Action, port uint16) filter.Rule {
		return filter.Rule{Action: a, Sources: peerNet, Protocols: []uint8{wire.ProtoTCP}, DestPorts: []filter.Ports{{Min: port, Max: port}}, State: filter.New}
	}
	cfg := tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}}
	cfg.Stack.Filter = compile(t, filter.Allow, tcpTo(filter.Deny, 80), tcpTo(filter.Reject, 81), filter.Rule{Action: filter.Reject, Protocols: []uint8{wire.ProtoUDP}},
		filter.Rule{Action: filter.Deny, Protocols: []uint8{wire.ProtoICMP}})
	p := tcptest.New(t, cfg)
	l := p.Listen(10)
	peer, his := p.MACs()
	f := &frames{peer, his}

	p.Flow(5000, 80).Send("S 0:0(0) win 1000 <mss 1460>")
	p.Quiet(1e9)
	rejected := p.Flow(5001, 81)
	rejected.Send("S 0:0(0) win 1000 <mss 1460>")
	rejected.Expect("R. 0:0(0) ack 1 win 0")
	p.SendFrame(f.ip(wire.ProtoUDP, make([]byte, 20)))
	pk := answer(t, p, true)
	if typ, code, _, d := wire.ParseICMP(&pk); typ != wire.ICMPUnreachable || code != 13 || d != wire.DropNone {
		t.Errorf("the answer to UDP is %d %d, %v", typ, code, d)
	}
	// A packet for another host is nobody's to reject.
	p.SendFrame(with(f.ip(wire.ProtoUDP, make([]byte, 20)), ipAddr(16, "10.0.0.77")))
	// Fragments are judged when they are whole.
	p.Idle(1e9)
	for _, frame := range f.cut(t, f.icmp(wire.ICMPEcho, 0, append([]byte{0, 1, 0, 1}, make([]byte, 2000)...)), 1500, 1) {
		p.SendFrame(frame)
	}
	p.Quiet(1e9)
	want := []filter.Count{{Packets: 1, Bytes: 44}, {Packets: 1, Bytes: 44}, {Packets: 2, Bytes: 80}, {Packets: 1, Bytes: 2028}, {}}
	if got := p.Stack.FilterCounts(); !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if n := p.Stats().L3.Drops[wire.DropFilter]; n != 5 {
		t.Errorf("%d drops, want 5", n)
	}

	// The opposite: only established connections and pings.
	p.Stack.SetFilter(nil)
	flow := p.Passive(l, 5002, "mss 1460", 10000)
	p.Stack.SetFilter(compile(t, filter.Deny, filter.Rule{State: filter.Established}, filter.Rule{Protocols: []uint8{wire.ProtoICMP}}))
	p.Flow(5003, 80).Send("S 0:0(0) win 1000 <mss 1460>")
	p.Quiet(1e9)
	stillWorksFiltered(t, p, flow)
	if got := p.Stack.FilterCounts(); len(got) != 3 || got[0].Packets != 2 || got[1].Packets != 1 || got[2].Packets != 1 {
		t.Errorf("counted %v", got)
	}
}

func stillWorksFiltered(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
	t.Helper()
	f.Send("P. 1:1001(1000) ack 1")
	f.Expect(". 1:1(0) ack 1001")
	f.WantRead(1000)
	f.Write(10)
	f.Expect("P. 1:11(10) ack 1001")
	f.Send(". 1001:1001(0) ack 11")
	ping(t, p)
}

// TestFilterWorkers: whichever worker receives a packet, it is judged once.
func TestFilterWorkers(t *testing.T) {
	cfg := tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}}
	cfg.Stack.Workers = make([]stack.WorkerConfig, 3)
	cfg.Stack.Filter = compile(t, filter.Allow)
	p := tcptest.New(t, cfg)
	peer, his := p.MACs()
	f := &frames{peer, his}
	echo := f.icmp(wire.ICMPEcho, 0, append([]byte{0, 1, 0, 1}, make([]byte, 2000)...))
	for _, frame := range f.cut(t, echo, 1500, 1) {
		p.SendFrame(bytes.Clone(frame))
	}
	answer(t, p, false)
	if got := p.Stack.FilterCounts(); len(got) != 1 || got[0].Packets != 1 {
		t.Errorf("counted %v", got)
	}
}

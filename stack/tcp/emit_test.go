package tcp

import (
	"net/netip"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// oneLink knows one link address.
type oneLink struct{}

func (oneLink) Resolve(*neigh.Ref, wire.Addr) (wire.MAC, bool) {
	return wire.MAC{2, 0, 0, 0, 0, 2}, true
}
func (oneLink) Confirm(neigh.Ref)            {}
func (oneLink) Hold(_ neigh.Ref, b *pmd.Buf) { b.Free() }

func (oneLink) Doubt(neigh.Ref) {}

// emitter is an engine with a connection that has a megabyte to send; sent frames go back to the pool.
func emitter(t testing.TB, local, remote string, caps pmd.Caps) (emit func(n uint32) bool, last func() []byte) {
	pool, err := pmd.NewPool("emit", 64, 2048)
	if err != nil {
		t.Fatal(err)
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	arena := mem.NewHeapArena(budget)
	fifo := pmd.NewFifo(64)
	e := New(Config{}, Env{Pool: pool, Fifo: fifo, Caps: caps, MAC: wire.MAC{2, 0, 0, 0, 0, 1}, Arena: arena, Budget: budget, Link: oneLink{},
		Mine: func(*Tuple) bool { return true }, Wake: func(*Waiter) {}, Kicked: func() {}}, 1e9)
	c := e.newConn(&Tuple{Local: wire.AddrFrom(netip.MustParseAddr(local)), Remote: wire.AddrFrom(netip.MustParseAddr(remote)), LocalPort: 80, RemotePort: 5000})
	c.state, c.tsOK = Established, true
	c.sndLimit.Store(1 << 20)
	c.flags.Or(flagUp)
	if n, err := c.TryWrite(make([]byte, 1<<20)); n != 1<<20 {
		t.Fatal(n, err)
	}
	t.Cleanup(func() {
		for fifo.Len() > 0 {
			pool.Put(fifo.Front(1)[0])
			fifo.Drop(1)
		}
		c.snd.Reset()
		if err := pool.CheckLeaks(); err != nil {
			t.Error(err)
		}
		_ = pool.Unmap()
	})
	off := uint64(0)
	emit = func(n uint32) bool {
		if fifo.Len() == 32 {
			for range 32 {
				pool.Put(fifo.Front(1)[0])
				fifo.Drop(1)
			}
		}
		off = (off + uint64(n)) % (1 << 19)
		return e.prepareHeader(c) && e.emit(c, uint32(off), wire.ACK, off, n)
	}
	return emit, func() []byte { f := fifo.Front(64); return f[len(f)-1].Bytes() }
}

var families = []struct{ name, local, remote string }{{"IPv4", "10.0.0.1", "10.0.0.2"}, {"IPv6", "2001:db8::1", "2001:db8::2"}}

// A segment of either family costs no allocation, and its checksums hold (RFC 9293, MUST-2).
func TestEmit(t *testing.T) {
	for _, f := range families {
		emit, last := emitter(t, f.local, f.remote, 0)
		if n := testing.AllocsPerRun(1000, func() {
			if !emit(1400) {
				t.Fatal("not sent")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", f.name, n)
		}
		var p wire.Packet
		var s wire.TCP
		if d := wire.Parse(last(), &p, false); d != wire.DropNone {
			t.Fatalf("%s: %v", f.name, d)
		}
		if d := wire.ParseTCP(&p, &s, false); d != wire.DropNone || len(s.Payload) != 1400 {
			t.Fatalf("%s: %v, %d bytes", f.name, d, len(s.Payload))
		}
		// With the port's help the field holds the sum of the pseudo-header (virtio 1.2, 5.1.6.2).
		emit, last = emitter(t, f.local, f.remote, pmd.TxCsum)
		if !emit(1401) {
			t.Fatal("not sent")
		}
		wire.Parse(last(), &p, true)
		want := ^wire.Fold(wire.PseudoSum(p.Src, p.Dst, wire.ProtoTCP, len(p.Payload)))
		if got := uint16(p.Payload[16])<<8 | uint16(p.Payload[17]); got != want {
			t.Errorf("%s: the field holds %#x, the pseudo-header's sum is %#x", f.name, got, want)
		}
	}
}

func BenchmarkEmit(b *testing.B) {
	for _, f := range families {
		for name, size := range map[string]uint32{"data": 1428, "ack": 0} {
			b.Run(f.name+"/"+name, func(b *testing.B) {
				emit, _ := emitter(b, f.local, f.remote, 0)
				for b.Loop() {
					if !emit(size) {
						b.Fatal("not sent")
					}
				}
			})
		}
	}
}
